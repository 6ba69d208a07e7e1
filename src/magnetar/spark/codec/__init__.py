"""Messages as columns and columns as messages."""
