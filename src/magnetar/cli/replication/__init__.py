"""Geo-replication commands."""
