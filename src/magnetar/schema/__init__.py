"""Schemas as clients and brokers exchange them: types, KEY_VALUE framing, Avro definitions."""
