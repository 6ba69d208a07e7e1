"""Transformation of an entry by a route policy: some of its messages, with masked values and a property about it.

Owns the rebuilding of entries: one entry becomes one or none, because a copy is identified by the position of its
original. `where` chose the messages before, and `masks` edits their values. Knows nothing of connections, and does not
check where an entry comes from or goes to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from magnetar.client.schema import Schema
from magnetar.pipelines.transform.masks import Masks
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import ROUTE, RoutePolicy
from magnetar.replication.route import applied_changes
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch, split_batch
from magnetar.wire.entry import content_of, pack
from magnetar.wire.errors import EntryError
from magnetar.wire.text import copy_field

Kept = Collection[int] | str
"""Indexes of the messages of a batch to keep, 0 for an entry that is no batch; or why the choice failed."""

_Message = tuple[pb.SingleMessageMetadata, bytes]
_Metadata = pb.MessageMetadata | pb.SingleMessageMetadata


class Transform:
    """The transformation of one topic. `schema_of` returns the schema of a version, None for messages without one."""

    def __init__(self, policy: RoutePolicy, topic: str, schema_of: Callable[[bytes | None], Schema | None]) -> None:
        self._policy = policy
        self._route = applied_changes(policy)
        self._masks = Masks(policy.masks, topic, schema_of) if policy.masks else None

    def apply(
        self, metadata: pb.MessageMetadata, payload: bytes, kept: Kept | None = None
    ) -> tuple[pb.MessageMetadata, bytes] | None:
        """The entry to copy, or None if none of its messages is kept. Changes no argument. Raises `MessageRefused`.

        `kept` is None where the policy has no `where`: all messages are kept. `payload` is as stored, compressed.
        """
        if isinstance(kept, str):
            raise MessageRefused(kept)
        if kept is None and self._policy.where:
            raise ValueError(f"the messages to keep were not chosen by {self._policy.where!r}")
        is_chunk = metadata.num_chunks_from_msg > 1
        if self._policy.changes_messages:
            _refuse_if_closed(metadata, is_chunk)
        if kept is not None and not kept:
            return None
        changed = pb.MessageMetadata()
        changed.CopyFrom(metadata)
        if is_chunk or metadata.encryption_keys:  # renamed only: the property is in the metadata that readers get
            _mark(changed, self._route)
            return changed, payload
        try:
            data = content_of(metadata, payload)
            if metadata.HasField("num_messages_in_batch"):
                batch = self._batch(changed, split_batch(metadata, data), kept)
                return None if batch is None else (changed, pack(changed, batch))
        except EntryError as error:
            raise MessageRefused(f"the entry cannot be opened: {error}") from None
        if kept is not None and 0 not in kept:
            return None
        _mark(changed, self._route)
        return changed, pack(changed, self._value(metadata, data, is_empty=metadata.null_value))

    def _batch(self, changed: pb.MessageMetadata, messages: list[_Message], kept: Kept | None) -> bytes | None:
        """The messages to keep; sets their number in the metadata of the batch."""
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
            return b""  # bytes that are there nevertheless are not masked
        return self._masks.masked(value, metadata.schema_version if metadata.HasField("schema_version") else None)


def _refuse_if_closed(metadata: pb.MessageMetadata, is_chunk: bool) -> None:
    if metadata.encryption_keys:
        raise MessageRefused("the entry is encrypted: it cannot be filtered or masked")
    if is_chunk:
        raise MessageRefused(
            f"the entry is one of {metadata.num_chunks_from_msg} chunks of a message:"
            " chunked messages cannot be filtered or masked"
        )


def _renumber(batch: pb.MessageMetadata, chosen: list[tuple[int, pb.SingleMessageMetadata, bytes]]) -> None:
    """Corrects the fields that count messages or come from the first one: a batch is ordered by its key."""
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
            copy_field(first, batch, "partition_key")
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
