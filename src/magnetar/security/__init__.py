"""Tokens, TLS and credentials, for connections that we open and for ports that we offer."""
