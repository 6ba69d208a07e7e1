"""What of that which is published is stored: nothing twice, and nothing that is to be delayed for too long.

Owns the decision and the answer to each. What is remembered of producers is in `deduplication` and `copies`; the topic
gives entries their place in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.peer import Receipt
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.replicated import MARKER_STORED, ForeignCopies, Original, SourcePosition, original_of
from magnetar.broker.topic.run import NewEntry
from magnetar.errors import MetadataInvalid, NotAllowed
from magnetar.replication.model import SOURCE_POSITION
from magnetar.storage.api import Batch
from magnetar.wire.metadata import MetadataError, metadata_of

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.topic import Publish

Admitted = tuple[list[NewEntry], list[Receipt]]
"""What is stored, and the receipts of all that is answered, in order."""


def admit(
    topic: PersistentTopic, batch: Batch, producer: Producer, publishes: Sequence[Publish], now_ms: int
) -> Admitted:
    if isinstance(producer.copies, ForeignCopies):
        return _admit_foreign(topic, batch, producer, producer.copies, publishes, now_ms)
    deduplication, next_id = producer.copies or topic.deduplication, topic.log.last + 1
    new: list[NewEntry] = []
    receipts: list[Receipt] = []
    is_recorded, is_copy = False, producer.copies is not None
    for sequence_id, highest_id, messages, blob, may_be_delayed, is_chunk in publishes:
        if is_copy and producer.refused is not None:
            # What is remembered is the last position, so all before it has to be there: nothing is taken after a gap.
            producer.peer.send_error(producer, sequence_id, producer.refused)
            continue
        if deduplication is not None and deduplication.is_duplicate(producer.name, sequence_id):
            receipts.append((sequence_id, highest_id, -1))
            continue
        deliver_at_ms = _deliver_at_ms(topic, blob, now_ms) if may_be_delayed else 0
        if deliver_at_ms and _is_too_long(topic, producer, sequence_id, deliver_at_ms - now_ms):
            continue
        if deduplication is not None and deduplication.is_whole(blob, is_chunk):
            deduplication.record(producer.name, max(sequence_id, highest_id))
            is_recorded = True
        receipts.append((sequence_id, highest_id, next_id + len(new)))
        new.append((messages, deliver_at_ms, blob))
    if deduplication is not None and is_recorded:
        deduplication.store(batch, producer.name, now_ms)
    return new, receipts


class _BySequence(NamedTuple):
    """An entry as the original producer numbered it, which counts where the topic's policies say so."""

    memory: Deduplication | None
    name: str
    first: int
    last: int
    answer: tuple[int, int]


class _ByPosition(NamedTuple):
    """An entry by its position in the source, which is also what its replicator wants to hear of it."""

    memory: ForeignCopies
    name: str
    first: SourcePosition
    last: SourcePosition
    answer: tuple[int, int]


def _admit_foreign(
    topic: PersistentTopic,
    batch: Batch,
    producer: Producer,
    copies: ForeignCopies,
    publishes: Sequence[Publish],
    now_ms: int,
) -> Admitted:
    """Of a replicator of Apache Pulsar. Its markers are for brokers that keep snapshots of subscriptions as Apache
    Pulsar does: they are answered and not stored, so that no consumer ever gets one.
    """
    new: list[NewEntry] = []
    receipts: list[Receipt] = []
    recorded: dict[str, _BySequence | _ByPosition] = {}
    for publish in publishes:
        sequence_id, highest_id, messages, blob, may_be_delayed, is_chunk = publish
        original = original_of(blob)
        if original is not None and original.is_marker:
            receipts.append((sequence_id, MARKER_STORED if producer.knows_positions else highest_id, -1))
            continue
        identity = None if original is None else _identity(topic, producer, copies, original, publish)
        if identity is None:
            error = MetadataInvalid(
                f"copy with sequence id {sequence_id} has no position in property {SOURCE_POSITION}"
            )
            producer.peer.send_error(producer, sequence_id, error)
            continue
        if identity.memory is not None and identity.memory.is_duplicate(identity.name, identity.first):  # type: ignore[arg-type]
            receipts.append((*identity.answer, -1))
            continue
        deliver_at_ms = _deliver_at_ms(topic, blob, now_ms) if may_be_delayed else 0
        if deliver_at_ms and _is_too_long(topic, producer, sequence_id, deliver_at_ms - now_ms):
            continue
        if identity.memory is not None and identity.memory.is_whole(blob, is_chunk):
            identity.memory.record(identity.name, identity.last)  # type: ignore[arg-type]
            recorded[identity.name] = identity
        receipts.append((*identity.answer, topic.log.last + 1 + len(new)))
        new.append((messages, deliver_at_ms, blob))
    for identity in recorded.values():
        if identity.memory is not None:
            identity.memory.store(batch, identity.name, now_ms)
    return new, receipts


def _identity(
    topic: PersistentTopic, producer: Producer, copies: ForeignCopies, original: Original, publish: Publish
) -> _BySequence | _ByPosition | None:
    if not producer.knows_positions:
        first, last = original.sequence_id, original.highest_id
        return _BySequence(topic.deduplication, original.producer_name, first, last, (publish[0], publish[1]))
    position = original.position
    return None if position is None else _ByPosition(copies, producer.name, position, position, position)


def _deliver_at_ms(topic: PersistentTopic, blob: bytes, now_ms: int) -> int:
    if not topic.policies.delayed_delivery.active:
        return 0
    try:
        stamped_ms = metadata_of(blob).deliver_at_time
    except MetadataError:
        return 0
    deliver_at_ms = topic.broker.clock.from_client_ms(stamped_ms) if stamped_ms > 0 else 0
    return deliver_at_ms if deliver_at_ms > now_ms else 0


def _is_too_long(topic: PersistentTopic, producer: Producer, sequence_id: int, delay_ms: int) -> bool:
    """Whether a message is delayed for longer than is allowed; its producer is told so."""
    limit_ms = topic.policies.delayed_delivery.max_ms
    if not 0 < limit_ms < delay_ms:
        return False
    error = NotAllowed(f"delay of {delay_ms} ms exceeds delayedDeliveryMaxDelayInMillis {limit_ms}")
    producer.peer.send_error(producer, sequence_id, error)
    return True
