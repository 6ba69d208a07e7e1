"""Commands over many dead letters at once, on Spark: SQL, the report, purge."""
