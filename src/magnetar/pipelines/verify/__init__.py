"""Comparing topics with their remote copies, and repairing them."""
