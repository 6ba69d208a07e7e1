"""Entries as the broker stores and sends them, and their messages. Owns batches and chunks.

Knows nothing of connections and acknowledgements; checksums and compression are in `wire.entry`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from magnetar.client.errors import UnreadableMessage
from magnetar.client.message import Message, MessageId
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import split_batch
from magnetar.wire.compression import decompress
from magnetar.wire.entry import UNCOMPRESSED_SIZE_MAX, content_of, open_entry
from magnetar.wire.errors import EntryError
from magnetar.wire.text import readable

_WORD_BITS = 64
CHUNKED_OPEN_MAX = 100
"""The most chunked messages that are assembled at once; beyond it the oldest is dropped, as in other clients."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry as stored and sent: the raw bytes of one message, a batch or a chunk."""

    topic: str
    id: MessageId
    redelivery_count: int
    ack_set: tuple[int, ...]
    blob: bytes


class EntryRun(msgspec.Struct, frozen=True, gc=False):
    """Consecutive entries, starting with `entry_id`: cheaper than an object for each."""

    topic: str
    partition: int
    ledger_id: int
    entry_id: int
    redelivery_count: int
    ack_set: tuple[int, ...]
    blobs: list[bytes]

    def entry(self, index: int) -> Entry:
        position = MessageId(self.ledger_id, self.entry_id + index, self.partition)
        return Entry(self.topic, position, self.redelivery_count, self.ack_set, self.blobs[index])

    def entries(self) -> list[Entry]:
        topic, ledger_id, partition = self.topic, self.ledger_id, self.partition
        redelivery_count, ack_set = self.redelivery_count, self.ack_set
        return [
            Entry(topic, MessageId(ledger_id, entry_id, partition), redelivery_count, ack_set, blob)
            for entry_id, blob in enumerate(self.blobs, self.entry_id)
        ]


class _Chunked:
    """A message that is assembled from its chunks, which arrive in order."""

    __slots__ = ("count", "ids", "parts", "size")

    def __init__(self, count: int) -> None:
        self.count = count
        self.ids: list[MessageId] = []
        self.parts: list[bytes] = []
        self.size = 0


class EntryDecoder:
    """Decodes the entries of one topic or partition in order; keeps chunks until the last one arrives."""

    def __init__(self) -> None:
        self._chunked: dict[str, _Chunked] = {}

    def decode(self, entry: Entry) -> tuple[list[Message], int]:
        """The messages of an entry, and the permits it used. Raises `UnreadableMessage`.

        A chunk that is not the last, a marker and an acknowledged message of a batch yield none.
        """
        try:
            metadata, start = open_entry(entry.blob)
            permits = max(1, metadata.num_messages_in_batch)
            if metadata.HasField("marker_type"):
                return [], permits
            return self._decode(entry, metadata, entry.blob[start:]), permits
        except EntryError as error:
            raise _unreadable(entry, str(error)) from None

    def _decode(self, entry: Entry, metadata: pb.MessageMetadata, payload: bytes) -> list[Message]:
        if metadata.num_chunks_from_msg > 1 and not metadata.encryption_keys:
            chunked = self._add_chunk(entry, metadata, payload)
            if chunked is None:
                return []
            data, size = b"".join(chunked.parts), metadata.uncompressed_size
            value = decompress(metadata.compression, data, size, UNCOMPRESSED_SIZE_MAX)
            return [_message(entry, metadata, value, tuple(chunked.ids))]
        payload = content_of(metadata, payload)
        if not metadata.HasField("num_messages_in_batch"):
            return [_message(entry, metadata, payload)]
        singles = split_batch(metadata, payload)
        return [
            _message_of_batch(entry, metadata, single, value, index)
            for index, (single, value) in enumerate(singles)
            if not single.compacted_out and _is_open(entry.ack_set, index)
        ]

    def _add_chunk(self, entry: Entry, metadata: pb.MessageMetadata, payload: bytes) -> _Chunked | None:
        """The whole message once the last chunk has arrived."""
        uuid, number = readable(metadata.uuid), metadata.chunk_id
        chunked = self._chunked.get(uuid)
        if number == 0:
            self._chunked.pop(uuid, None)
            if len(self._chunked) >= CHUNKED_OPEN_MAX:
                del self._chunked[next(iter(self._chunked))]
            chunked = self._chunked[uuid] = _Chunked(metadata.num_chunks_from_msg)
        if chunked is None:
            if number == metadata.num_chunks_from_msg - 1:
                raise EntryError(f"it is the last of {number + 1} chunks, and the first were not read")
            return None
        if number < len(chunked.parts):
            return None  # a duplicate chunk
        if number != len(chunked.parts) or number >= chunked.count:
            del self._chunked[uuid]
            raise EntryError(f"chunk {len(chunked.parts)} of {chunked.count} of message {uuid!r} is missing")
        chunked.parts.append(payload)
        chunked.ids.append(entry.id)
        chunked.size += len(payload)
        if chunked.size > UNCOMPRESSED_SIZE_MAX:
            del self._chunked[uuid]
            raise EntryError(f"chunks of message {uuid!r} exceed {UNCOMPRESSED_SIZE_MAX} bytes")
        if len(chunked.parts) < chunked.count:
            return None
        return self._chunked.pop(uuid)


def _is_open(ack_set: Sequence[int], index: int) -> bool:
    if not ack_set:
        return True
    word, bit = divmod(index, _WORD_BITS)
    return word < len(ack_set) and bool(ack_set[word] >> bit & 1)


def _unreadable(entry: Entry, reason: str) -> UnreadableMessage:
    return UnreadableMessage(
        f"message {entry.id} of {entry.topic} cannot be read: {reason}", topic=entry.topic, message_id=entry.id
    )


def _message(
    entry: Entry, metadata: pb.MessageMetadata, value: bytes, chunk_ids: tuple[MessageId, ...] = ()
) -> Message:
    return Message(
        topic=entry.topic,
        id=entry.id,
        value=value,
        key=readable(metadata.partition_key) if metadata.HasField("partition_key") else None,
        key_is_base64=metadata.partition_key_b64_encoded,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        properties={readable(pair.key): readable(pair.value) for pair in metadata.properties},
        publish_time_ms=metadata.publish_time,
        event_time_ms=metadata.event_time or None,
        deliver_at_ms=metadata.deliver_at_time if metadata.HasField("deliver_at_time") else None,
        producer_name=readable(metadata.producer_name),
        sequence_id=metadata.sequence_id,
        redelivery_count=entry.redelivery_count,
        schema_version=metadata.schema_version if metadata.HasField("schema_version") else None,
        replicated_from=readable(metadata.replicated_from) or None,
        is_null=metadata.null_value,
        chunk_ids=chunk_ids,
    )


def _message_of_batch(
    entry: Entry, metadata: pb.MessageMetadata, single: pb.SingleMessageMetadata, value: bytes, index: int
) -> Message:
    position = entry.id
    return Message(
        topic=entry.topic,
        id=MessageId(position.ledger_id, position.entry_id, position.partition, index, metadata.num_messages_in_batch),
        value=value,
        key=readable(single.partition_key) if single.HasField("partition_key") else None,
        key_is_base64=single.partition_key_b64_encoded,
        ordering_key=single.ordering_key if single.HasField("ordering_key") else None,
        properties={readable(pair.key): readable(pair.value) for pair in single.properties},
        publish_time_ms=metadata.publish_time,
        event_time_ms=single.event_time or None,
        deliver_at_ms=metadata.deliver_at_time if metadata.HasField("deliver_at_time") else None,
        producer_name=readable(metadata.producer_name),
        sequence_id=single.sequence_id if single.HasField("sequence_id") else metadata.sequence_id + index,
        redelivery_count=entry.redelivery_count,
        schema_version=metadata.schema_version if metadata.HasField("schema_version") else None,
        replicated_from=readable(metadata.replicated_from) or None,
        is_null=single.null_value,
    )
