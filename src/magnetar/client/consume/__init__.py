"""Consumers, readers and watchers, of messages and of whole entries."""
