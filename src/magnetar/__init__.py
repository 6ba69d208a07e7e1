"""Magnetar: a broker that speaks the Pulsar protocol and never loses a failed message."""

__version__ = "0.1.0.dev0"
