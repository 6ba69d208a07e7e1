"""Geo-replication as the broker sees it: what is declared, and what pipelines report."""
