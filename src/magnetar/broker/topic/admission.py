"""Admission of published entries: drops duplicates, rejects delays above the limit.

Owns the decision and the reply for each entry. The highest known ids of producers are in `deduplication` and
`replicated`; the topic gives entries their place in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.peer import Receipt
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.replicated import (
    MARKER_STORED,
    Original,
    PulsarReplicatedEntries,
    SourcePosition,
    original_of,
)
from magnetar.broker.topic.run import NewEntry
from magnetar.errors import MetadataInvalid, NotAllowed
from magnetar.replication.model import SOURCE_POSITION
from magnetar.storage.api import Batch
from magnetar.wire.metadata import MetadataError, claims_origin, metadata_of

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.topic import Publish

Record = Callable[[Batch, int, int], None]
"""Notes the highest id of a producer with a batch, at a time, for so many producers. Called once the entries are
in that batch: noted without them, they would be duplicates when they are sent again."""

Delayed = tuple[int, int]
"""A deliver-at time, and the entry."""

Admitted = tuple[list[NewEntry], list[Receipt], list[Delayed], Sequence[Record]]
"""New entries, the receipts of stored and dropped ones, in order, those that are delayed, and what has to be noted."""

_Decided = tuple[list[NewEntry], list[Receipt], Sequence[Record]]


FORGED = NotAllowed(
    "replicated_from and marker_type of a message are for replicators, which need the right to replicate"
)


def is_guarded(topic: PersistentTopic, producer: Producer) -> bool:
    """Whether the producer must not say that a message comes from another cluster: a copy acknowledges its original
    there, so a client that made one up would lose messages."""
    return topic.broker.authorization.is_enabled and not producer.is_replicator


def admit(topic: PersistentTopic, producer: Producer, publishes: Sequence[Publish], now_ms: int) -> Admitted:
    """Decides, and changes nothing."""
    first = topic.log.last + 1
    is_plain = topic.deduplication is None and producer.replicated is None
    if is_plain and is_guarded(topic, producer):
        is_plain = True not in [claims_origin(publish[3]) for publish in publishes]
    if is_plain and True not in [publish[4] for publish in publishes]:
        plain = [(publish[2], 0, publish[3]) for publish in publishes]
        return plain, [(publish[0], publish[1], entry_id) for entry_id, publish in enumerate(publishes, first)], [], ()
    new, receipts, records = _decide(topic, producer, publishes, now_ms)
    return new, receipts, delayed_among(new, first), records


def delayed_among(new: Sequence[NewEntry], first: int) -> list[Delayed]:
    """Those of new entries, the first of which gets this id."""
    return [(entry[1], entry_id) for entry_id, entry in enumerate(new, first) if entry[1]]


def _decide(topic: PersistentTopic, producer: Producer, publishes: Sequence[Publish], now_ms: int) -> _Decided:
    if isinstance(producer.replicated, PulsarReplicatedEntries):
        return _admit_foreign(topic, producer, producer.replicated, publishes, now_ms)
    deduplication, next_id = producer.replicated or topic.deduplication, topic.log.last + 1
    last_sequence = -1 if deduplication is None else deduplication.last_sequence(producer.name)
    new: list[NewEntry] = []
    receipts: list[Receipt] = []
    is_recorded, is_copy = False, producer.replicated is not None
    guarded = is_guarded(topic, producer)
    for sequence_id, highest_id, messages, blob, may_be_delayed, is_chunk in publishes:
        if is_copy and producer.refused is not None:
            # Only the last position is remembered, so nothing may be stored after a gap.
            producer.peer.send_error(producer, sequence_id, producer.refused)
            continue
        if guarded and claims_origin(blob):
            producer.peer.send_error(producer, sequence_id, FORGED)
            continue
        if deduplication is not None and sequence_id <= last_sequence:
            receipts.append((sequence_id, highest_id, -1))
            continue
        deliver_at_ms = deliver_at_ms_of(topic, blob, now_ms) if may_be_delayed else 0
        if deliver_at_ms and _is_too_long(topic, producer, sequence_id, deliver_at_ms - now_ms):
            continue
        if deduplication is not None and deduplication.is_whole(blob, is_chunk):
            last_sequence = max(sequence_id, highest_id)
            is_recorded = True
        receipts.append((sequence_id, highest_id, next_id + len(new)))
        new.append((messages, deliver_at_ms, blob))
    if deduplication is None or not is_recorded:
        return new, receipts, ()
    return new, receipts, [partial(deduplication.record, producer.name, last_sequence)]


class _BySequence(NamedTuple):
    """An entry under the original producer's sequence id, for topics with deduplication."""

    memory: Deduplication | None
    name: str
    first: int
    last: int
    receipt: tuple[int, int]


class _ByPosition(NamedTuple):
    """An entry under its position in the source, which its receipt carries too."""

    memory: PulsarReplicatedEntries
    name: str
    first: SourcePosition
    last: SourcePosition
    receipt: tuple[int, int]


def _admit_foreign(
    topic: PersistentTopic,
    producer: Producer,
    replicated: PulsarReplicatedEntries,
    publishes: Sequence[Publish],
    now_ms: int,
) -> _Decided:
    """Entries of a replicator of Apache Pulsar.

    Its markers are for brokers that keep Apache Pulsar's snapshots of subscriptions: they get a receipt and are not
    stored, so no consumer ever receives one.
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
        identity = None if original is None else _identity(topic, producer, replicated, original, publish)
        if identity is None:
            error = MetadataInvalid(
                f"replicated message with sequence id {sequence_id} has no position in property {SOURCE_POSITION}"
            )
            producer.peer.send_error(producer, sequence_id, error)
            continue
        if _is_duplicate(identity, recorded.get(identity.name)):
            receipts.append((*identity.receipt, -1))
            continue
        deliver_at_ms = deliver_at_ms_of(topic, blob, now_ms) if may_be_delayed else 0
        if deliver_at_ms and _is_too_long(topic, producer, sequence_id, deliver_at_ms - now_ms):
            continue
        if identity.memory is not None and identity.memory.is_whole(blob, is_chunk):
            recorded[identity.name] = identity
        receipts.append((*identity.receipt, topic.log.last + 1 + len(new)))
        new.append((messages, deliver_at_ms, blob))
    records: list[Record] = [
        partial(identity.memory.record, identity.name, identity.last)  # type: ignore[arg-type]
        for identity in recorded.values()
        if identity.memory is not None
    ]
    return new, receipts, records


def _is_duplicate(identity: _BySequence | _ByPosition, recorded: _BySequence | _ByPosition | None) -> bool:
    """`recorded` is the last one of the same name before it, of those that are not noted yet."""
    if identity.memory is None:
        return False
    if recorded is not None and identity.first <= recorded.last:  # type: ignore[operator]
        return True
    return identity.memory.is_duplicate(identity.name, identity.first)  # type: ignore[arg-type]


def _identity(
    topic: PersistentTopic,
    producer: Producer,
    replicated: PulsarReplicatedEntries,
    original: Original,
    publish: Publish,
) -> _BySequence | _ByPosition | None:
    if not producer.knows_positions:
        first, last = original.sequence_id, original.highest_id
        return _BySequence(topic.deduplication, original.producer_name, first, last, (publish[0], publish[1]))
    position = original.position
    return None if position is None else _ByPosition(replicated, producer.name, position, position, position)


def deliver_at_ms_of(topic: PersistentTopic, blob: bytes, now_ms: int) -> int:
    if not topic.policies.delayed_delivery.active:
        return 0
    try:
        stamped_ms = metadata_of(blob).deliver_at_time
    except MetadataError:
        return 0
    deliver_at_ms = topic.broker.clock.from_client_ms(stamped_ms) if stamped_ms > 0 else 0
    return deliver_at_ms if deliver_at_ms > now_ms else 0


def _is_too_long(topic: PersistentTopic, producer: Producer, sequence_id: int, delay_ms: int) -> bool:
    """Whether the delay exceeds the limit; if so, the producer gets an error."""
    refusal = delay_refusal(topic, delay_ms)
    if refusal is not None:
        producer.peer.send_error(producer, sequence_id, refusal)
    return refusal is not None


def delay_refusal(topic: PersistentTopic, delay_ms: int) -> NotAllowed | None:
    limit_ms = topic.policies.delayed_delivery.max_ms
    if not 0 < limit_ms < delay_ms:
        return None
    return NotAllowed(f"delay of {delay_ms} ms exceeds delayedDeliveryMaxDelayInMillis {limit_ms}")
