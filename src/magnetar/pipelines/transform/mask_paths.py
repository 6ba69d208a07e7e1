"""Mask paths: the fields to hide, and their replacements.

A path goes through objects by its names, and through arrays to each element. A name may contain dots: every name that
starts the path is tried, since hiding too much is better than too little. Knows neither JSON nor Avro.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from magnetar.replication.model import Mask, MaskKind

Wanted = tuple[tuple[tuple[str, ...], Mask], ...]
"""The rest of each path from here on, and its mask. An empty path is the value itself."""


class CannotMask(Exception):
    """A value that does not match its schema, or whose type cannot hold a mask; the text has the reason."""


def wanted(masks: tuple[Mask, ...]) -> Wanted:
    return tuple((tuple(mask.field.split(".")), mask) for mask in masks)


@lru_cache(maxsize=1024)
def by_name(paths: Wanted) -> dict[str, Wanted]:
    """The paths inside each member of an object."""
    found: dict[str, list[tuple[tuple[str, ...], Mask]]] = {}
    for path, mask in paths:
        for end in range(1, len(path) + 1):
            found.setdefault(".".join(path[:end]), []).append((path[end:], mask))
    return {name: tuple(rest) for name, rest in found.items()}


def mask_here(paths: Wanted) -> Mask | None:
    """The mask that hides the whole value."""
    return next((mask for path, mask in paths if not path), None)


def replacement(mask: Mask, value: bytes) -> str:
    """The text for hash and fixed; the caller writes null."""
    return hashlib.sha256(value).hexdigest() if mask.kind is MaskKind.HASH else mask.text
