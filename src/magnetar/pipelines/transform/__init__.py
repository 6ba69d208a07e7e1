"""Transformation of copied entries: filters and masks."""
