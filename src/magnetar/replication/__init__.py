"""Geo-replication: the types that broker, admin, CLI and pipelines share."""
