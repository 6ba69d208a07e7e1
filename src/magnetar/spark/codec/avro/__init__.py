"""The codec between Avro payloads and columns."""
