"""The broker's settings: their names, kinds, defaults and the file format they are read from."""
