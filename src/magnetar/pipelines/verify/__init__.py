"""Verification of topics against their remote copies, and repair."""
