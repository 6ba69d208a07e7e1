"""Redrive commands."""
