"""Routing of messages to partitions. Knows nothing of connections.

The hash of its key decides the partition of a message. Messages without a key go round: one by one without batching,
and with it for some time to each partition, so that batches stay whole.
"""

from __future__ import annotations

from itertools import count
from typing import Literal

from magnetar.wire.key_hash import boost_hash, java_string_hash, murmur3_hash

HashingScheme = Literal["JavaStringHash", "Murmur3_32Hash", "BoostHash"]
"""JavaStringHash is the default of Java's and Go's clients, BoostHash that of C++, Python and Node."""

HASHING_DEFAULT: HashingScheme = "JavaStringHash"

HASHES = {"JavaStringHash": java_string_hash, "Murmur3_32Hash": murmur3_hash, "BoostHash": boost_hash}


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
