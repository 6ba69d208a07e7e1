"""Writing topics: `df.write` and `df.writeStream`."""
