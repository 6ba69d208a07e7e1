"""What a way makes of an entry: some of its messages, their values masked, and a property that says so.

Owns the rebuilding of entries: one goes in, one or none comes out, so that the position in the source stays what a copy
is known by. Which messages stay was decided before (see `where`), what a mask does to a value is in `masks`. Knows
nothing of connections; it does not look at who sent an entry and where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from magnetar.client.admin.schemas import Schema
from magnetar.pipelines.transform.masks import Masks, Refused
from magnetar.replication.model import ROUTE, RoutePolicy
from magnetar.replication.route import applied_changes
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch, split_batch
from magnetar.wire.entry import content_of, pack
from magnetar.wire.errors import EntryError

__all__ = ["Kept", "Refused", "Transform"]

Kept = Collection[int] | str
"""Indexes of the messages of a batch that stay, 0 for an entry that is no batch; or why that cannot be told."""

_Message = tuple[pb.SingleMessageMetadata, bytes]
_Metadata = pb.MessageMetadata | pb.SingleMessageMetadata


class Transform:
    """Of one topic. `schema_of` is asked for the schema of a version, which is None for messages without one."""

    def __init__(self, policy: RoutePolicy, topic: str, schema_of: Callable[[bytes | None], Schema | None]) -> None:
        self._policy = policy
        self._route = applied_changes(policy)
        self._masks = Masks(policy.masks, topic, schema_of) if policy.masks else None

    def apply(
        self, metadata: pb.MessageMetadata, payload: bytes, kept: Kept | None = None
    ) -> tuple[pb.MessageMetadata, bytes] | None:
        """The entry as it goes on, or None if nothing of it does. What is given stays as it is. Raises `Refused`.

        `kept` is None where the way has no `where`: all messages stay. `payload` is as it is stored, compressed.
        """
        if isinstance(kept, str):
            raise Refused(kept)
        if kept is None and self._policy.where:
            raise ValueError(f"nobody said which messages stay of what the way filters by {self._policy.where!r}")
        is_chunk = metadata.num_chunks_from_msg > 1
        if self._policy.changes_messages:
            _refuse_if_closed(metadata, is_chunk)
        if kept is not None and not kept:
            return None
        changed = pb.MessageMetadata()
        changed.CopyFrom(metadata)
        if is_chunk or metadata.encryption_keys:  # a renaming way: who reads the whole message sees the property
            _mark(changed, self._route)
            return changed, payload
        try:
            data = content_of(metadata, payload)
            if metadata.HasField("num_messages_in_batch"):
                batch = self._batch(changed, split_batch(metadata, data), kept)
                return None if batch is None else (changed, pack(changed, batch))
        except EntryError as error:
            raise Refused(f"the entry cannot be opened: {error}") from None
        if kept is not None and 0 not in kept:
            return None
        _mark(changed, self._route)
        return changed, pack(changed, self._value(metadata, data, is_empty=metadata.null_value))

    def _batch(self, changed: pb.MessageMetadata, messages: list[_Message], kept: Kept | None) -> bytes | None:
        """The messages that stay; puts their number into the metadata of the batch."""
        chosen = [(index, *message) for index, message in enumerate(messages) if kept is None or index in kept]
        if not chosen:
            return None
        if len(chosen) < len(messages):
            _renumber(changed, chosen)
        stay: list[_Message] = []
        for _, single, value in chosen:
            _mark(single, self._route)
            is_empty = single.null_value or single.compacted_out
            stay.append((single, self._value(changed, value, is_empty=is_empty)))
        return build_batch(stay)

    def _value(self, metadata: pb.MessageMetadata, value: bytes, *, is_empty: bool) -> bytes:
        if self._masks is None:
            return value
        if is_empty:
            return b""  # should there be bytes nevertheless, nobody has masked them
        return self._masks.masked(value, metadata.schema_version if metadata.HasField("schema_version") else None)


def _refuse_if_closed(metadata: pb.MessageMetadata, is_chunk: bool) -> None:
    if metadata.encryption_keys:
        raise Refused("the entry is encrypted: it can be neither filtered nor masked on the way")
    if is_chunk:
        raise Refused(
            f"the entry is chunk {metadata.chunk_id} of the {metadata.num_chunks_from_msg} of a message: messages in"
            " chunks can be neither filtered nor masked on the way"
        )


def _renumber(batch: pb.MessageMetadata, chosen: list[tuple[int, pb.SingleMessageMetadata, bytes]]) -> None:
    """Puts right what counts messages, or is of the first one: a batch is ordered by the key of that."""
    batch.num_messages_in_batch = len(chosen)
    for index, single, _ in chosen:
        if not single.HasField("sequence_id"):
            single.sequence_id = batch.sequence_id + index
    places = {index: place for place, (index, _, _) in enumerate(chosen)}
    batch.compacted_batch_indexes[:] = [places[index] for index in batch.compacted_batch_indexes if index in places]
    first = chosen[0][1]
    if batch.HasField("partition_key"):
        batch.ClearField("partition_key")
        batch.ClearField("partition_key_b64_encoded")
        if first.HasField("partition_key"):
            batch.partition_key = first.partition_key
            batch.partition_key_b64_encoded = first.partition_key_b64_encoded
    if batch.HasField("ordering_key"):
        batch.ClearField("ordering_key")
        if first.HasField("ordering_key"):
            batch.ordering_key = first.ordering_key


def _mark(message: _Metadata, route: str) -> None:
    for pair in message.properties:
        if pair.key == ROUTE:
            pair.value = route
            return
    message.properties.add(key=ROUTE, value=route)
