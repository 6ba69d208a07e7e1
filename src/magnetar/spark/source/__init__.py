"""The source: `spark.read` and `spark.readStream`."""
