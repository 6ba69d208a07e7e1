"""Wire errors that several modules raise."""

from __future__ import annotations


class EntryError(ValueError):
    """An entry that cannot be turned into messages; the text gives the reason. Each module has its own kinds."""
