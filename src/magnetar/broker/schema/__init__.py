"""Schemas of topics: the registry, its compatibility rules, and the admission of clients' schemas."""
