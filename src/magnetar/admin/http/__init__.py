"""Requests over HTTP: the router, checked parameters and bodies, errors, unsupported calls."""
