"""Message deduplication of a topic: the highest sequence id of each producer name.

It is stored in the same transaction as the messages, so both survive a crash together. Producers that were idle for
long are forgotten, as in Apache Pulsar. Replicators from other clusters are in `replicated`.
"""

from __future__ import annotations

from collections import OrderedDict

from magnetar.broker import keys
from magnetar.storage.api import Batch, Space, Storage
from magnetar.wire.metadata import MetadataError, metadata_of


class Deduplication:
    """`record` is called once per producer and publish, with the batch that has the messages."""

    __slots__ = ("_kind", "_sequences", "_topic_id", "_used_ms")

    def __init__(self, storage: Storage | None, topic_id: int, kind: bytes = keys.DEDUPLICATION) -> None:
        """Starts empty without a storage to load from."""
        self._topic_id = topic_id
        self._kind = kind
        self._sequences: dict[str, int] = {}
        self._used_ms: OrderedDict[str, int] = OrderedDict()  # the longest idle first
        if storage is None:
            return
        start = keys.under(kind, topic_id)
        rows = storage.scan(Space.STATE, start, keys.after(start))
        found = [(key[9:].decode(), *keys.SEQUENCE.unpack(value)) for key, value in rows]
        for name, sequence_id, used_ms in sorted(found, key=lambda row: row[2]):
            self._sequences[name], self._used_ms[name] = sequence_id, used_ms

    def last_sequence(self, producer_name: str) -> int:
        return self._sequences.get(producer_name, -1)

    def is_duplicate(self, producer_name: str, sequence_id: int) -> bool:
        return sequence_id <= self._sequences.get(producer_name, -1)

    def record(self, producer_name: str, sequence_id: int, batch: Batch, now_ms: int, producers_max: int) -> None:
        """Producers above `producers_max` are forgotten, the longest idle first."""
        batch.put(self._key(producer_name), keys.SEQUENCE.pack(sequence_id, now_ms))
        self._sequences[producer_name] = sequence_id
        self._used_ms[producer_name] = now_ms
        self._used_ms.move_to_end(producer_name)
        while len(self._used_ms) > producers_max:
            self.forget(batch, next(iter(self._used_ms)))

    def is_whole(self, blob: bytes, is_chunk: bool) -> bool:
        """Whether this entry completes a message: chunks share a sequence id, and only the last one records it."""
        if not is_chunk:
            return True
        try:
            metadata = metadata_of(blob)
        except MetadataError:
            return True
        return metadata.chunk_id == metadata.num_chunks_from_msg - 1

    def forget_idle(self, batch: Batch, now_ms: int, patience_ms: int, connected: set[str], producers_max: int) -> None:
        """Drops producers idle for `patience_ms`, and the longest idle ones above `producers_max`."""
        idle = sorted((used, name) for name, used in self._used_ms.items() if name not in connected)
        excess = max(0, len(self._sequences) - producers_max)
        for index, (used, name) in enumerate(idle):
            if used >= now_ms - patience_ms and index >= excess:
                break
            self.forget(batch, name)

    def forget(self, batch: Batch, producer_name: str) -> None:
        del self._sequences[producer_name], self._used_ms[producer_name]
        batch.delete(self._key(producer_name))

    def delete(self, batch: Batch) -> None:
        delete_all(batch, self._kind, self._topic_id)

    def _key(self, producer_name: str) -> bytes:
        return keys.under(self._kind, self._topic_id, producer_name.encode())


def delete_all(batch: Batch, kind: bytes, topic_id: int) -> None:
    start = keys.under(kind, topic_id)
    batch.delete_range(Space.STATE, start, keys.after(start))
