"""Magnetar: a broker that speaks the Pulsar protocol and never loses a failed message."""

from magnetar.version import __version__

__all__ = ["__version__"]
