"""Settings of a broker: names, kinds of values, defaults, and the file format."""
