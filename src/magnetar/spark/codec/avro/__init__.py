"""Avro payloads as columns and back."""
