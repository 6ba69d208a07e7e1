"""`magnetar doctor`: diagnosis and repair."""
