"""Transformation of copied entries: masks, and the messages that a filter kept."""
