"""One client's conversation: commands in, calls to the broker, replies out. No socket and no clock."""
