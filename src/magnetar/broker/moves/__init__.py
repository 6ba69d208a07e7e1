"""Moves: entries that are stored together with the acknowledgement of the messages that they replace."""
