"""Processes that the broker starts beside itself: pipelines, and the console."""
