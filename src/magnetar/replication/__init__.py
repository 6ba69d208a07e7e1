"""Geo-replication in words that broker, admin, CLI and pipelines share: states, route policies, remote clusters."""
