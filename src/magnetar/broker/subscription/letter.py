"""A dead letter: a message that failed, as it is published to a dead letter topic, with where and why it failed.

Owns the reasons and the way from an entry to its letters. Knows nothing of subscriptions or topics: what
is dead, and what happens then, is decided in `failures`; how the properties are read is in `epitaph`.

A message of a batch becomes a letter of its own. What cannot be taken apart (an encrypted batch, a chunk, an entry that
nobody can read) becomes one letter as it is, and its description says so.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from magnetar.deadletter.properties import (
    DEATH_DESCRIPTION,
    DEATH_HISTORY,
    DEATH_REASON,
    ORIGIN_MESSAGE_ID,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUMETIMES,
    Death,
    history_of,
    id_in,
)
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import split_batch
from magnetar.wire.compression import CompressionError, decompress
from magnetar.wire.metadata import MetadataError, build_blob, split_blob

REDRIVE_GENERATION = "REDRIVE_GENERATION"  # how often a dead letter was sent back: it may die again each time

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

HISTORY_MAX = 20
"""Deaths that are remembered: a message that is sent back and dies again and again must not grow for ever."""


class Reason(enum.StrEnum):
    """Why a message is dead: the codes of DEATH_REASON."""

    MaxRedeliveries = "MaxRedeliveries"  # it was given back more often than the policy allows
    ConsumerCrash = "ConsumerCrash"  # consumers that had nothing but it vanished, more often than the policy allows
    Expired = "Expired"  # its time to live was over
    BacklogEvicted = "BacklogEvicted"  # the backlog was over its quota


class Origin(msgspec.Struct, frozen=True):
    """Where a letter says it comes from. `topic` is as the client spells it, `batch_index` -1 outside of a batch."""

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    generation: str
    retries: str = ""


def texts_of(properties: Iterable[pb.KeyValue]) -> dict[str, str]:
    """Properties by key. What is not UTF-8, which protobuf lets pass as bytes, is no text and left out."""
    pairs = ((pair.key, pair.value) for pair in properties)
    return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}


def origin_of(properties: Mapping[str, str]) -> Origin | None:
    """Where a letter of a client comes from, if it is one: ids in all the ways that clients write them."""
    topic, found = properties.get(REAL_TOPIC), id_in(properties)
    if not topic or found is None:
        return None
    ledger_id, entry_id, batch_index = found
    generation, retries = properties.get(REDRIVE_GENERATION, ""), properties.get(RECONSUMETIMES, "")
    return Origin(topic, ledger_id, entry_id, batch_index, generation, retries)


class FailureSite(msgspec.Struct, frozen=True, kw_only=True):
    """What all letters of an entry have in common: where it died, and how to name and number what is published."""

    topic: str
    subscription: str
    ledger_id: int
    entry_id: int
    partition: int
    reason: Reason
    description: str
    producer: str
    now_ms: int


# count, time of the first and of the last failure; by index of the messages of a batch
Failures = dict[int, tuple[int, int, int]]


def letters_of(blob: bytes, site: FailureSite, failures: Failures, size_max: int) -> tuple[list[bytes], bool]:
    """Blobs of the letters: one per index in `failures`, or a single one for an entry that stays whole, and which."""
    try:
        metadata, payload = split_blob(blob)
    except MetadataError:
        return [_unreadable(blob, site, failures)], True
    if not metadata.HasField("num_messages_in_batch"):
        return [_whole(metadata, payload, site, failures, "")], True
    if metadata.encryption_keys:
        note = f" It is an encrypted batch of {metadata.num_messages_in_batch} messages, which stays whole."
        return [_whole(metadata, payload, site, failures, note)], True
    try:
        content = decompress(metadata.compression, payload, metadata.uncompressed_size, size_max)
        messages = split_batch(metadata, content)
    except (MetadataError, CompressionError) as error:
        note = f" It is a batch that cannot be taken apart: {error}."
        return [_whole(metadata, payload, site, failures, note)], True
    letters = [
        _single(metadata, single, content, site, index, failures[index])
        for index, (single, content) in enumerate(messages)
        if index in failures and not single.compacted_out
    ]
    return letters, False


def _whole(metadata: pb.MessageMetadata, payload: bytes, site: FailureSite, failures: Failures, note: str) -> bytes:
    """The entry as it is, compressed and encrypted as it came; `metadata` gets more properties and is used up."""
    _restamp(metadata, site)
    _add_properties(metadata.properties, site, -1, _worst(failures), note)
    return build_blob(metadata, payload)


def _single(
    metadata: pb.MessageMetadata,
    single: pb.SingleMessageMetadata,
    payload: bytes,
    site: FailureSite,
    index: int,
    failure: tuple[int, int, int],
) -> bytes:
    """A message of a batch by itself: with everything of its own, and of its batch what held for it."""
    letter = pb.MessageMetadata()
    if metadata.HasField("schema_version"):
        letter.schema_version = metadata.schema_version
    if metadata.HasField("replicated_from"):
        letter.replicated_from = metadata.replicated_from
    letter.properties.extend(single.properties)
    for field in ("partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "null_value"):
        if single.HasField(field):
            setattr(letter, field, getattr(single, field))
    if single.HasField("null_partition_key"):
        letter.null_partition_key = single.null_partition_key
    letter.uncompressed_size = len(payload)
    _restamp(letter, site)
    _add_properties(letter.properties, site, index, failure, "")
    return build_blob(letter, payload)


def _unreadable(blob: bytes, site: FailureSite, failures: Failures) -> bytes:
    letter = pb.MessageMetadata()
    _restamp(letter, site)
    _add_properties(letter.properties, site, -1, _worst(failures), " Its metadata cannot be read: this is all of it.")
    return build_blob(letter, blob)


def _restamp(letter: pb.MessageMetadata, site: FailureSite) -> None:
    """It is the broker that publishes it, now, and at once."""
    letter.producer_name = site.producer
    letter.sequence_id = site.entry_id
    letter.publish_time = site.now_ms
    letter.ClearField("highest_sequence_id")
    letter.ClearField("deliver_at_time")
    letter.ClearField("replicate_to")


def _add_properties(
    properties: RepeatedCompositeFieldContainer[pb.KeyValue],
    site: FailureSite,
    index: int,
    failure: tuple[int, int, int],
    note: str,
) -> None:
    count, first_ms, last_ms = failure
    death = Death(
        topic=site.topic,
        subscription=site.subscription,
        reason=site.reason,
        count=count,
        first=first_ms or site.now_ms,
        last=last_ms or site.now_ms,
    )
    history = [*history_of(texts_of(properties)), death][-HISTORY_MAX:]
    batch = f":{index}" if index >= 0 else ""
    added = {
        REAL_TOPIC: site.topic,
        REAL_SUBSCRIPTION: site.subscription,
        ORIGIN_MESSAGE_ID: f"{site.ledger_id}:{site.entry_id}:{site.partition}{batch}",
        DEATH_REASON: site.reason,
        DEATH_DESCRIPTION: site.description + note,
        DEATH_HISTORY: msgspec.json.encode(history).decode(),
    }
    for position in reversed(range(len(properties))):  # what it said of itself when it died before
        if properties[position].key in added:
            del properties[position]
    for key, value in added.items():
        properties.add(key=key, value=value)


def _worst(failures: Failures) -> tuple[int, int, int]:
    counts, firsts, lasts = zip(*failures.values(), strict=True)
    return max(counts), min(firsts), max(lasts)
