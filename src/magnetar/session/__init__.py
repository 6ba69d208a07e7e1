"""Sessions: commands of a client in, calls to the broker, replies out. No socket and no clock."""
