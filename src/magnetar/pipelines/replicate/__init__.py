"""Geo-replication: a driver that schedules topics, and the tasks that it runs."""
