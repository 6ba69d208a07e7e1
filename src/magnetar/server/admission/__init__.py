"""Who is let in: room for connections, the acceptor of the binary port, and limits of HTTP connections."""
