"""Which messages of which producer a topic has already, by producer name and sequence id.

The highest sequence id of a producer is stored in the same transaction as its messages, so it is as true after a
crash as they are. Producers unheard of for long are forgotten, as Apache Pulsar does.
"""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.storage.api import Batch, Space, Storage
from magnetar.wire.metadata import MetadataError, metadata_of


class Deduplication:
    __slots__ = ("_sequences", "_topic_id", "_used_ms")

    def __init__(self, storage: Storage | None, topic_id: int) -> None:
        """Without a storage to read from, nothing is remembered yet."""
        self._topic_id = topic_id
        self._sequences: dict[str, int] = {}
        self._used_ms: dict[str, int] = {}
        if storage is None:
            return
        start = keys.under(keys.DEDUPLICATION, topic_id)
        for key, value in storage.scan(Space.STATE, start, keys.after(start)):
            name = key[9:].decode()
            self._sequences[name], self._used_ms[name] = keys.SEQUENCE.unpack(value)

    def last_sequence(self, producer_name: str) -> int:
        return self._sequences.get(producer_name, -1)

    def is_duplicate(self, producer_name: str, sequence_id: int) -> bool:
        return sequence_id <= self._sequences.get(producer_name, -1)

    def record(self, batch: Batch, producer_name: str, sequence_id: int, now_ms: int) -> None:
        self._sequences[producer_name] = sequence_id
        self._used_ms[producer_name] = now_ms
        batch.put(self._key(producer_name), keys.SEQUENCE.pack(sequence_id, now_ms))

    @staticmethod
    def is_whole(blob: bytes, is_chunk: bool) -> bool:
        """Whether a message is complete with this entry: its chunks share a sequence id, which the last one records."""
        if not is_chunk:
            return True
        try:
            metadata = metadata_of(blob)
        except MetadataError:
            return True
        return metadata.chunk_id == metadata.num_chunks_from_msg - 1

    def forget_idle(self, batch: Batch, before_ms: int, connected: set[str], producers_max: int) -> None:
        """Drops producers not heard of since `before_ms`, and the longest idle ones above `producers_max`."""
        idle = sorted((used, name) for name, used in self._used_ms.items() if name not in connected)
        excess = max(0, len(self._sequences) - producers_max)
        for index, (used, name) in enumerate(idle):
            if used >= before_ms and index >= excess:
                break
            del self._sequences[name], self._used_ms[name]
            batch.delete(self._key(name))

    def delete(self, batch: Batch) -> None:
        start = keys.under(keys.DEDUPLICATION, self._topic_id)
        batch.delete_range(Space.STATE, start, keys.after(start))

    def _key(self, producer_name: str) -> bytes:
        return keys.under(keys.DEDUPLICATION, self._topic_id, producer_name.encode())
