"""Entry state: what a subscription stores about one unacknowledged entry. Owns its bytes on disk."""

from __future__ import annotations

import sys

import msgspec

from magnetar.broker.bits import indexes_in


class EntryState(msgspec.Struct, array_like=True, omit_defaults=True):
    """`count` is the number of failures, between `first_ms` and `last_ms`; the entry backs off until `due_ms`.

    `suspicions` is the number of consumers that crashed while they held this entry and others. `open_bytes` are the
    open messages of a batch as big-endian bits; empty means all. `index_counts` holds the counts of single messages of
    a batch, by index, where they differ from `count`. `published` are the dead letters that a client has published for
    it (DL12), as hashes; they are forgotten when the entry is acknowledged. `failed_by` is the identity of the consumer
    that failed last. `errors` are the application's error texts, by batch index, -1 for the entry.
    """

    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    due_ms: int = 0
    suspicions: int = 0
    open_bytes: bytes = b""
    index_counts: dict[int, int] = {}
    published: list[str] = []
    failed_by: str = ""
    errors: dict[int, str] = {}

    @property
    def open_bits(self) -> int | None:
        """None while every message is open."""
        return int.from_bytes(self.open_bytes, "big") if self.open_bytes else None

    def set_open_bits(self, bits: int) -> None:
        self.open_bytes = bits.to_bytes((bits.bit_length() + 7) // 8, "big")

    def count_of(self, index: int) -> int:
        return self.index_counts.get(index, self.count)

    @property
    def highest_count(self) -> int:
        """The redelivery count that is sent: that of the open message that failed most often."""
        if not self.index_counts:
            return self.count
        if not self.open_bytes:
            return max(self.index_counts.values())
        octets = self.open_bytes[::-1] + bytes(1)  # lowest first; those above are not open
        last = len(octets) - 1
        counts = [
            count for index, count in self.index_counts.items() if octets[min(index >> 3, last)] >> (index & 7) & 1
        ]
        return max(counts, default=self.count)

    def publish(self, key: str, kept: int) -> None:
        """Remembers a dead letter that a client published, beside the last ones, `kept` in all."""
        self.published = [*self.published, key][-kept:]

    def suspect(self) -> None:
        self.suspicions += 1

    def back_off(self, due_ms: int) -> None:
        self.due_ms = due_ms

    def report(self, index: int, error: str) -> None:
        self.errors = {**self.errors, index: error}

    def error_of(self, index: int) -> str:
        """The error text of a message or else of its entry; for an entry as a whole (-1), any."""
        if index < 0:
            return next(iter(self.errors.values()), "")
        return self.errors.get(index) or self.errors.get(-1, "")

    def fail(self, now_ms: int, indexes: int | None = None, failed_by: str = "") -> None:
        """Counts a failure of the whole entry, or of the messages of a batch whose bits are set in `indexes`."""
        self.first_ms = self.first_ms or now_ms
        self.last_ms = now_ms
        self.failed_by = failed_by
        if indexes is None:
            self.count += 1
            self.index_counts = {index: count + 1 for index, count in self.index_counts.items()}
            return
        counts = dict(self.index_counts)
        for index in indexes_in(indexes):
            counts[index] = self.count_of(index) + 1
        self.index_counts = counts


ACKED = b"a"
"""The stored value of a position that is acknowledged."""

OPEN = b"o"
"""The first byte of the stored value of one that is not; the state follows."""

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EntryState).decode


def decode(data: bytes) -> EntryState:
    state = _decode(data)
    if state.failed_by:
        state.failed_by = sys.intern(state.failed_by)  # a few consumers fail many entries
    return state
