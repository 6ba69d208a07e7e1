"""Geo-replication, the verb `replicate`: schedules copies of declared topics to remote clusters."""
