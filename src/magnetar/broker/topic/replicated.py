"""Replicated entries: the last position that a topic has stored from each source, so that nothing is stored twice.

Our pipelines number entries by their position in the source, under one producer name per ledger
(`ReplicatedEntries`). Apache Pulsar's replicators put the position into the metadata of each entry
(`PulsarReplicatedEntries`) or, in older versions, keep the original producer's sequence id. Positions are kept whatever
the topic's deduplication policy is, and stored in the transaction of the entries.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from magnetar.broker import keys
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.replication.model import SOURCE_POSITION
from magnetar.storage.api import Batch, Space, Storage
from magnetar.wire.metadata import MetadataError, metadata_of
from magnetar.wire.text import readable

MARKER_STORED = 1 << 63
"""The highest sequence id in the receipt of a marker: Java's smallest long, unsigned."""

_DIGITS_MAX = 19  # of a positive number of 64 bits

SourcePosition = tuple[int, int]
"""Ledger and entry in the source. An entry is never stored after one with a higher position."""


class ReplicatedEntries(Deduplication):
    """From our pipelines, whose producer names are `magnetar.repl.{cluster}/{topic}/{ledger}`."""

    __slots__ = ()

    def __init__(self, storage: Storage | None, topic_id: int) -> None:
        super().__init__(storage, topic_id, keys.REPLICATED)

    def is_whole(self, blob: bytes, is_chunk: bool) -> bool:
        """Each chunk is an entry of the source, with its own position."""
        return True

    def forget_idle(self, batch: Batch, now_ms: int, patience_ms: int, connected: set[str], producers_max: int) -> None:
        """Drops a ledger once its source is `patience_ms` ahead of it. Time alone drops nothing: a pipeline may be
        stopped for any time, and what it sends again must still be recognised.
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


class PulsarReplicatedEntries:
    """From Apache Pulsar's replicators, by producer name: one per source cluster."""

    __slots__ = ("_positions", "_topic_id", "_used_ms")

    def __init__(self, storage: Storage | None, topic_id: int) -> None:
        self._topic_id = topic_id
        self._positions: dict[str, SourcePosition] = {}
        self._used_ms: OrderedDict[str, int] = OrderedDict()  # the longest idle first
        if storage is None:
            return
        start = keys.under(keys.PULSAR_REPLICATED, topic_id)
        rows = storage.scan(Space.STATE, start, keys.after(start))
        found = [(key[9:].decode(), *keys.REPLICATED_POSITION.unpack(value)) for key, value in rows]
        for name, ledger_id, entry_id, used_ms in sorted(found, key=lambda row: row[3]):
            self._positions[name] = ledger_id, entry_id
            self._used_ms[name] = used_ms

    def is_duplicate(self, producer_name: str, position: SourcePosition) -> bool:
        last = self._positions.get(producer_name)
        return last is not None and position <= last

    def record(
        self, producer_name: str, position: SourcePosition, batch: Batch, now_ms: int, producers_max: int
    ) -> None:
        """As that of deduplication."""
        batch.put(self._key(producer_name), keys.REPLICATED_POSITION.pack(*position, now_ms))
        self._positions[producer_name] = position
        self._used_ms[producer_name] = now_ms
        self._used_ms.move_to_end(producer_name)
        while len(self._used_ms) > producers_max:
            self.forget(batch, next(iter(self._used_ms)))

    def is_whole(self, blob: bytes, is_chunk: bool) -> bool:
        """Each chunk is an entry of the source."""
        return True

    def forget_idle(self, batch: Batch, now_ms: int, patience_ms: int, connected: set[str], producers_max: int) -> None:
        """Drops only the excess above `producers_max`: a replicator may reconnect after any time."""
        idle = sorted((used_ms, name) for name, used_ms in self._used_ms.items() if name not in connected)
        for _, name in idle[: max(0, len(self._positions) - producers_max)]:
            self.forget(batch, name)

    def forget(self, batch: Batch, producer_name: str) -> None:
        del self._positions[producer_name], self._used_ms[producer_name]
        batch.delete(self._key(producer_name))

    def _key(self, producer_name: str) -> bytes:
        return keys.under(keys.PULSAR_REPLICATED, self._topic_id, producer_name.encode())


@dataclass(frozen=True, slots=True)
class Original:
    """The origin of an entry from a replicator of Apache Pulsar, by its metadata."""

    is_marker: bool
    position: SourcePosition | None
    producer_name: str
    sequence_id: int
    highest_id: int


def original_of(blob: bytes) -> Original | None:
    """None if the metadata cannot be read."""
    try:
        metadata = metadata_of(blob)
    except MetadataError:
        return None
    text = next((pair.value for pair in metadata.properties if pair.key == SOURCE_POSITION), "")
    name = metadata.producer_name
    return Original(
        metadata.HasField("marker_type"),
        position_in(readable(text)),
        # Spelt out, not replaced: two names must not become one.
        name if isinstance(name, str) else name.decode(errors="backslashreplace"),
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
