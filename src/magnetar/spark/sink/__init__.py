"""The sink: `df.write` and `df.writeStream`."""
