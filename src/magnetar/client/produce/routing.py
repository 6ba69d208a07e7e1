"""Routing of messages to partitions. Owns the hashes that Pulsar's clients share; knows nothing of connections.

The hash of its key decides the partition of a message. Messages without a key go round: one by one without batching,
and with it for some time to each partition, so that batches stay whole.
"""

from __future__ import annotations

from itertools import count
from typing import Literal

import mmh3

HashingScheme = Literal["Murmur3_32Hash", "JavaStringHash"]

_INT_MAX = 0x7FFF_FFFF


def murmur3_hash(key: str) -> int:
    return mmh3.hash(key.encode(), 0, signed=False) & _INT_MAX


def java_string_hash(key: str) -> int:
    """`String.hashCode` of Java, over UTF-16 units, without the sign."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value & _INT_MAX


HASHES = {"Murmur3_32Hash": murmur3_hash, "JavaStringHash": java_string_hash}


class Router:
    """Chooses among `partitions`; a batching producer stays with one of them for `turn_s`."""

    __slots__ = ("_hash", "_next", "_partitions", "_start", "_turn_s")

    def __init__(self, partitions: int, scheme: str, *, turn_s: float, start: int = 0) -> None:
        self._partitions = partitions
        self._hash = HASHES[scheme]
        self._turn_s = turn_s
        self._start = start
        self._next = count(start)

    def choose(self, key: str | None, now_s: float) -> int:
        if self._partitions == 1:
            return 0
        if key is not None:
            return self._hash(key) % self._partitions
        turn = int(now_s / self._turn_s) + self._start if self._turn_s > 0 else next(self._next)
        return turn % self._partitions
