"""The part of a process that runs in Spark's workers: read, call, write."""
