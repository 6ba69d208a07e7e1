"""Dead letter blobs: a stored entry becomes the entries that are published to a dead letter topic.

Each failed message of a batch becomes its own dead letter. An entry that cannot be split (an encrypted batch, a chunk,
corrupt bytes) becomes one dead letter, whole, and its description says so. Knows neither subscriptions nor topics:
the subscription decides which messages are dead-lettered.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from magnetar.bounds import BYTES_SPLIT, MESSAGES_SPLIT
from magnetar.broker.subscription.single_messages import FIELDS_OF_ONE
from magnetar.deadletter.properties import FailureRecord, Reason
from magnetar.deadletter.stamp import set_publisher, stamp
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import EncryptedEntry, batch_messages_of
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import MetadataError, build_blob, split_blob
from magnetar.wire.text import copy_field


class FailureSite(msgspec.Struct, frozen=True, kw_only=True):
    """Where and why an entry failed, and the producer of its dead letters."""

    topic: str
    subscription: str
    ledger_id: int
    entry_id: int
    partition: int
    reason: Reason
    description: str
    producer: str
    now_ms: int
    consumer: str
    address: str
    client_version: str
    error_of: Callable[[int], str]
    batch_failed: Container[int]  # messages of a batch that failed only together with it


Failures = dict[int, tuple[int, int, int]]
"""By batch index: the delivery count, and the times of the first and last failure."""


def dead_letter_blobs(blob: bytes, site: FailureSite, failures: Failures, messages: int) -> tuple[list[bytes], bool]:
    """One blob per index in `failures`, or a single one for an entry that stays whole; and whether it stays whole.

    `messages` is the number of messages that the log has for the entry.
    """
    try:
        metadata, payload = split_blob(blob)
    except MetadataError:
        note = " Its metadata cannot be read: this is all of it."
        return [_whole(pb.MessageMetadata(), blob, site, failures, note)], True
    if not metadata.HasField("num_messages_in_batch"):
        return [_whole(metadata, payload, site, failures, "")], True
    try:
        return _singles(metadata, payload, site, failures, messages), False
    except EncryptedEntry:
        note = f" It is an encrypted batch of {metadata.num_messages_in_batch} messages, which stays whole."
        return [_whole(metadata, payload, site, failures, note)], True
    except EntryError as error:
        note = f" It is a batch that cannot be taken apart: {error}."
        return [_whole(metadata, payload, site, failures, note)], True


def _singles(
    metadata: pb.MessageMetadata, payload: bytes, site: FailureSite, failures: Failures, messages: int
) -> list[bytes]:
    """The failed messages on their own; reads the batch up to the last of them. Raises EntryError."""
    if metadata.num_messages_in_batch != messages:
        raise EntryError(f"it has {metadata.num_messages_in_batch} messages, and its producer announced {messages}")
    if messages > MESSAGES_SPLIT.limit:
        raise EntryError(f"its {messages} messages exceed {MESSAGES_SPLIT.limit}")
    blobs: list[bytes] = []
    last, size = max(failures), 0
    for index, (single, content) in enumerate(batch_messages_of(metadata, payload)):
        failure = failures.get(index)
        if failure is not None and not single.compacted_out:
            blobs.append(_single(metadata, single, content, site, index, failure))
            size += len(blobs[-1])
            if size > BYTES_SPLIT.limit:
                raise EntryError(f"its dead letters would exceed {BYTES_SPLIT.limit} bytes")
        if index == last:
            break
    return blobs


def _whole(metadata: pb.MessageMetadata, payload: bytes, site: FailureSite, failures: Failures, note: str) -> bytes:
    """The entry as it is, still compressed and encrypted. Changes `metadata`."""
    _stamp(metadata, site, -1, _worst(failures), note)
    return build_blob(metadata, payload)


def _single(
    metadata: pb.MessageMetadata,
    single: pb.SingleMessageMetadata,
    payload: bytes,
    site: FailureSite,
    index: int,
    failure: tuple[int, int, int],
) -> bytes:
    """A message of a batch on its own, with the metadata of its batch that applies to it."""
    dead_letter = pb.MessageMetadata()
    for field in ("schema_version", "replicated_from"):
        if metadata.HasField(field):
            copy_field(metadata, dead_letter, field)
    dead_letter.properties.extend(single.properties)
    for field in FIELDS_OF_ONE:
        if single.HasField(field):  # type: ignore[arg-type]
            copy_field(single, dead_letter, field)
    dead_letter.uncompressed_size = len(payload)
    batch = metadata.num_messages_in_batch if index in site.batch_failed else 0
    note = f" It failed together with its whole batch of {batch}, which the client nacks as one." if batch else ""
    _stamp(dead_letter, site, index, failure, note, batch)
    return build_blob(dead_letter, payload)


def _stamp(
    metadata: pb.MessageMetadata,
    site: FailureSite,
    index: int,
    failure: tuple[int, int, int],
    note: str,
    batch: int = 0,
) -> None:
    count, first_ms, last_ms = failure
    record = FailureRecord(
        topic=site.topic,
        subscription=site.subscription,
        reason=site.reason,
        count=count,
        first=first_ms or site.now_ms,
        last=last_ms or site.now_ms,
        consumer=site.consumer,
        address=site.address,
        client_version=site.client_version,
        error=site.error_of(index),
        batch=batch,
    )
    suffix = f":{index}" if index >= 0 else ""
    set_publisher(metadata, site.producer, site.entry_id)
    metadata.publish_time = site.now_ms
    message_id = f"{site.ledger_id}:{site.entry_id}:{site.partition}{suffix}"
    stamp(metadata.properties, record, message_id, site.description + note)


def _worst(failures: Failures) -> tuple[int, int, int]:
    counts, firsts, lasts = zip(*failures.values(), strict=True)
    return max(counts), min(firsts), max(lasts)
