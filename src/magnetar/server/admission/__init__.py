"""Admission of connections: their number, acceptors of ports, and limits of HTTP connections."""
