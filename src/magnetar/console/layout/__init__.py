"""The frame of every page, and the parts that pages are built from."""
