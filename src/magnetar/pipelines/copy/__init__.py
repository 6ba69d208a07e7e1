"""Copying entries from a topic to its remote topic."""
