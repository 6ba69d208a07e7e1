"""Tokens, TLS and credentials, for our own client and for our own ports."""
