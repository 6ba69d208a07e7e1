"""What a broker knows of its topics that has to survive a crash, as plain values that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from magnetar.broker.broker import Broker
from magnetar.broker.subscription.failure_policy import DeadLetterPolicy
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic

_NONE: dict[int, int] = {}


class Failed(NamedTuple):
    """What is known of a position that failed, or is suspected to kill consumers. `indexes` counts single messages."""

    count: int = 0
    indexes: dict[int, int] = _NONE
    first_ms: int = 0
    last_ms: int = 0
    due_ms: int = 0
    suspicions: int = 0

    def count_of(self, index: int) -> int:
        return self.indexes.get(index, self.count)


class Rules(NamedTuple):
    """What a subscription does with messages that fail."""

    policy: DeadLetterPolicy | None
    source: str
    backoff_ms: tuple[int, ...]


class Place(NamedTuple):
    """How far a subscription has come."""

    id: int
    mark: int
    acked: frozenset[int]
    partial: dict[int, int]
    failures: dict[int, Failed]
    rules: Rules


class TopicState(NamedTuple):
    ledger: int
    is_terminated: bool
    epoch: int
    first: int
    places: dict[str, Place]
    sequences: dict[str, int]


Snapshot = dict[str, TopicState]


def place_of(subscription: Subscription) -> Place:
    cursor = subscription.cursor
    partial: dict[int, int] = {}
    failures: dict[int, Failed] = {}
    known = dict(cursor._states)
    for entry in (cursor._stored - cursor.acked).to_array():
        if entry not in known and (position := cursor.state_of(entry)) is not None:  # memory has forgotten it
            known[entry] = position
    for entry, position in known.items():
        if position.open_bytes:
            partial[entry] = int.from_bytes(position.open_bytes, "big")
        if position.last_ms or position.suspicions or position.due_ms:
            failures[entry] = Failed(
                position.count,
                position.index_counts,  # never changed, only replaced
                position.first_ms,
                position.last_ms,
                position.due_ms,
                position.suspicions,
            )
    acked = frozenset(cursor.acked.to_array())
    return Place(subscription.record.id, cursor.mark_delete, acked, partial, failures, rules_of(subscription))


def rules_of(subscription: Subscription) -> Rules:
    record = subscription.record
    return Rules(record.dead_letters, record.dead_letters_from, tuple(record.backoff_ms))


def state_of(topic: PersistentTopic) -> TopicState:
    deduplication = topic.deduplication
    return TopicState(
        topic.ledger_id,
        topic.is_terminated,
        topic.epoch,
        topic.log.first,
        {s.name: place_of(s) for s in topic.cursors if s.durable},
        dict(deduplication._sequences) if deduplication is not None else {},
    )


def snapshot_of(broker: Broker, base: Snapshot) -> Snapshot:
    """The state of every topic; what is not open yet is as it was in `base`."""
    states: Snapshot = {}
    for full in broker.catalog.topics:
        topic = broker.topics.get(full)
        states[full] = state_of(topic) if isinstance(topic, PersistentTopic) else base[full]
    return states


class Boundary(NamedTuple):
    """What the disk holds after a group. A group that was cut in the middle of a step lies between two states."""

    before: Snapshot
    after: Snapshot

    def differences(self, found: Snapshot) -> Iterable[str]:
        for full in {**self.before, **self.after, **found}:
            options = (self.before.get(full), self.after.get(full))
            if found.get(full) not in options and not _is_between(found.get(full), *options):
                yield f"{full} is {found.get(full)}, expected {' or '.join(str(o) for o in dict_unique(options))}"


def dict_unique(options: Iterable[TopicState | None]) -> list[TopicState | None]:
    unique: list[TopicState | None] = []
    for option in options:
        if option not in unique:
            unique.append(option)
    return unique


def _is_between(found: TopicState | None, before: TopicState | None, after: TopicState | None) -> bool:
    """Whether every part of `found` is as before, as after, or a part of the acks of the step that cut the group."""
    if found is None or before is None or after is None or before is after:
        return False
    plain = all(
        getattr(found, part) in (getattr(before, part), getattr(after, part))
        for part in ("ledger", "is_terminated", "epoch", "first")
    ) and all(
        before.sequences.get(name, -1) <= sequence_id <= after.sequences.get(name, -1)
        for name, sequence_id in found.sequences.items()
    )
    return plain and all(
        _place_is_between(found.places.get(name), before.places.get(name), after.places.get(name))
        for name in {**before.places, **after.places, **found.places}
    )


def _place_is_between(found: Place | None, before: Place | None, after: Place | None) -> bool:
    if found in (before, after):
        return True
    if found is None or before is None or after is None:
        return False
    last = max(found.mark, before.mark, after.mark)
    acked_before, acked, acked_after = (_acked(place, last) for place in (before, found, after))
    return acked_before <= acked <= acked_after


def _acked(place: Place, last: int) -> set[int]:
    return {entry for entry in range(last + 1) if entry <= place.mark} | set(place.acked)
