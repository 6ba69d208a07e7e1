"""Copying the entries of a topic to its remote topic."""
