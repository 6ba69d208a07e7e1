"""The broker's ports: which there are, the addresses that clients get, and the certificates of those with TLS."""
