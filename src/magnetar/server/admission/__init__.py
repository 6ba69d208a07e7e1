"""Who is let in: room for connections, acceptors of ports, and limits of HTTP connections."""
