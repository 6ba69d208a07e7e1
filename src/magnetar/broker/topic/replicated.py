"""Which entries of other clusters a topic has already: what producers that write copies are told apart by.

Our own pipelines number what they send by its position in the source, under a name for each ledger (`Copies`). Apache
Pulsar's replicators put the position into the metadata of each entry (`ForeignCopies`), or, where they are too old for
that, go by what the original producer said. Both are remembered whatever the policies of the topic say, and stored in
the transaction of the messages themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker import keys
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.replication.model import SOURCE_POSITION
from magnetar.storage.api import Batch, Space, Storage
from magnetar.wire.metadata import MetadataError, metadata_of

MARKER_STORED = 1 << 63
"""Stands for the highest sequence id in the receipt of a marker: the smallest number of Java, without its sign."""

_DIGITS_MAX = 19  # of a positive number of 64 bits

SourcePosition = tuple[int, int]
"""Ledger and entry. An entry is never stored after one with a higher position."""


class Copies(Deduplication):
    """Of a producer for each ledger of a source: `magnetar.repl.{cluster}/{topic}/{ledger}`."""

    __slots__ = ()

    def __init__(self, storage: Storage | None, topic_id: int) -> None:
        super().__init__(storage, topic_id, keys.COPIES)

    def is_whole(self, blob: bytes, is_chunk: bool) -> bool:
        """Each chunk is an entry of the source, with a number of its own."""
        return True

    def forget_idle(self, batch: Batch, now_ms: int, patience_ms: int, connected: set[str], producers_max: int) -> None:
        """Drops a ledger once its source is that much further on. However long a pipeline stood still, what it sends
        again when it is back is known: time alone makes nothing forgotten.
        """
        newest_ms: dict[str, int] = {}
        for name, used_ms in self._used_ms.items():
            newest_ms[_source_of(name)] = max(used_ms, newest_ms.get(_source_of(name), 0))
        behind = sorted(
            (used_ms, name)
            for name, used_ms in self._used_ms.items()
            if name not in connected and used_ms < newest_ms[_source_of(name)]
        )
        excess = max(0, len(self._sequences) - producers_max)
        for index, (used_ms, name) in enumerate(behind):
            if index < excess or used_ms < newest_ms[_source_of(name)] - patience_ms:
                self.forget(batch, name)


def _source_of(producer_name: str) -> str:
    return producer_name.rpartition("/")[0]


class ForeignCopies:
    """Of Apache Pulsar's replicators, by their producer's name: one for each cluster that copies to this topic."""

    __slots__ = ("_positions", "_topic_id", "_used_ms")

    def __init__(self, storage: Storage | None, topic_id: int) -> None:
        self._topic_id = topic_id
        self._positions: dict[str, SourcePosition] = {}
        self._used_ms: dict[str, int] = {}
        if storage is None:
            return
        start = keys.under(keys.FOREIGN_COPIES, topic_id)
        for key, value in storage.scan(Space.STATE, start, keys.after(start)):
            ledger_id, entry_id, used_ms = keys.COPIED.unpack(value)
            self._positions[key[9:].decode()] = ledger_id, entry_id
            self._used_ms[key[9:].decode()] = used_ms

    def is_duplicate(self, producer_name: str, position: SourcePosition) -> bool:
        last = self._positions.get(producer_name)
        return last is not None and position <= last

    def record(self, producer_name: str, position: SourcePosition) -> None:
        self._positions[producer_name] = position

    def store(self, batch: Batch, producer_name: str, now_ms: int) -> None:
        self._used_ms[producer_name] = now_ms
        batch.put(self._key(producer_name), keys.COPIED.pack(*self._positions[producer_name], now_ms))

    def is_whole(self, blob: bytes, is_chunk: bool) -> bool:
        """Each chunk is an entry of the source."""
        return True

    def forget_idle(self, batch: Batch, now_ms: int, patience_ms: int, connected: set[str], producers_max: int) -> None:
        """Drops only what is above `producers_max`: a replicator may come back after any time."""
        idle = sorted((used_ms, name) for name, used_ms in self._used_ms.items() if name not in connected)
        for _, name in idle[: max(0, len(self._positions) - producers_max)]:
            del self._positions[name], self._used_ms[name]
            batch.delete(self._key(name))

    def _key(self, producer_name: str) -> bytes:
        return keys.under(keys.FOREIGN_COPIES, self._topic_id, producer_name.encode())


@dataclass(frozen=True, slots=True)
class Original:
    """What an entry of a replicator of Apache Pulsar says of where it comes from."""

    is_marker: bool
    position: SourcePosition | None
    producer_name: str
    sequence_id: int
    highest_id: int


def original_of(blob: bytes) -> Original | None:
    """None where its metadata cannot be read."""
    try:
        metadata = metadata_of(blob)
    except MetadataError:
        return None
    text = next((pair.value for pair in metadata.properties if pair.key == SOURCE_POSITION), "")
    return Original(
        metadata.HasField("marker_type"),
        position_in(text),
        metadata.producer_name,
        metadata.sequence_id,
        max(metadata.highest_sequence_id, metadata.sequence_id),
    )


def position_in(text: str) -> SourcePosition | None:
    """`ledger:entry`; None for anything else."""
    ledger, _, entry = text.partition(":")
    if not (ledger.isascii() and ledger.isdigit() and entry.isascii() and entry.isdigit()):
        return None
    if max(len(ledger), len(entry)) > _DIGITS_MAX:
        return None
    position = int(ledger), int(entry)
    return position if max(position) < 1 << 63 else None
