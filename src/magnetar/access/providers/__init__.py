"""Providers of authentication, one per method of Pulsar's clients."""
