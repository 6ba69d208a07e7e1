"""Schemas of topics: the registry and its compatibility rules."""
