"""The version of this package, for whoever has to say it."""

__version__ = "0.1.0.dev0"
