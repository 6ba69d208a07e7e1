"""Producers of messages and of whole entries."""
