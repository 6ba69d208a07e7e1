"""Policies of namespaces and topics over REST: one table, its JSON and its routes."""
