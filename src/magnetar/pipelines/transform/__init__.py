"""Transforming copied entries: filters and masks."""
