"""Access: who a client is, and what it may do. No socket, no clock, no broker."""
