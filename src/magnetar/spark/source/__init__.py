"""Reading topics: `spark.read` and `spark.readStream`."""
