"""The fields that masks hide, and what stands in their place.

A path goes through objects by its names and through arrays to each of their elements. A name may have dots in it: all
names that begin the path are tried, since hiding too much is better than too little. Knows neither JSON nor Avro.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from magnetar.replication.model import Mask, MaskKind

Wanted = tuple[tuple[tuple[str, ...], Mask], ...]
"""What is left of each path, from here on, and its mask. An empty path is the value itself."""


class CannotMask(Exception):
    """A value that is not what it is declared to be, or whose type has no room for a mask; the text says why."""


def wanted(masks: tuple[Mask, ...]) -> Wanted:
    return tuple((tuple(mask.field.split(".")), mask) for mask in masks)


@lru_cache(maxsize=1024)
def by_name(paths: Wanted) -> dict[str, Wanted]:
    """What is wanted inside of each member of an object."""
    found: dict[str, list[tuple[tuple[str, ...], Mask]]] = {}
    for path, mask in paths:
        for end in range(1, len(path) + 1):
            found.setdefault(".".join(path[:end]), []).append((path[end:], mask))
    return {name: tuple(rest) for name, rest in found.items()}


def mask_here(paths: Wanted) -> Mask | None:
    """The one that hides the value as a whole."""
    return next((mask for path, mask in paths if not path), None)


def replacement(mask: Mask, value: bytes) -> str:
    """Of a hash or a fixed text; null is for who knows how to write it."""
    return hashlib.sha256(value).hexdigest() if mask.kind is MaskKind.HASH else mask.text
