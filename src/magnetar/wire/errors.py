"""Wire errors that several modules raise."""

from __future__ import annotations


class EntryError(ValueError):
    """An entry that cannot be turned into messages; the text says why. Each module has its kinds."""
