"""Login: who the client of a connection is, at CONNECT and as long as it stays."""
