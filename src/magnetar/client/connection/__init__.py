"""Connections to brokers: protocol, pool, lookup, HTTP, retries."""
