"""Durable storage: ordered bytes on RocksDB, and an in-memory twin."""
