"""Geo-replication in the broker: declared routes and their policies, and reports of pipelines processes."""
