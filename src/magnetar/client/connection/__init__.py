"""Connections to brokers: protocol, pool, lookup, retries."""
