"""The supervisor that runs the broker."""
