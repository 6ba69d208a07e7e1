"""Declared pipelines: their records and reported state, and the pipelines process as the broker sees it."""
