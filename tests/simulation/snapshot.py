"""The state of topics that must survive a crash, as comparable values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from magnetar.broker.broker import Broker
from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic

_NONE: dict[int, int] = {}


class Failed(NamedTuple):
    """State of an entry that failed or is a suspect. `indexes` counts single messages."""

    count: int = 0
    indexes: dict[int, int] = _NONE
    first_ms: int = 0
    last_ms: int = 0
    due_ms: int = 0
    suspicions: int = 0

    def count_of(self, index: int) -> int:
        return self.indexes.get(index, self.count)


class Rules(NamedTuple):
    """A subscription's handling of failed messages."""

    policy: DeadLetterPolicy | None
    source: str
    backoff_ms: tuple[int, ...]


class SubscriptionState(NamedTuple):
    """The state of a subscription."""

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
    subscriptions: dict[str, SubscriptionState]
    sequences: dict[str, int]


Snapshot = dict[str, TopicState]


def subscription_state_of(subscription: Subscription) -> SubscriptionState:
    cursor = subscription.cursor
    partial: dict[int, int] = {}
    failures: dict[int, Failed] = {}
    known = dict(cursor._states)
    for entry in (cursor._stored - cursor.acked).to_array():
        if entry not in known and (position := cursor.state_of(entry)) is not None:  # evicted from memory
            known[entry] = position
    for entry, position in known.items():
        if position.open_bytes:
            partial[entry] = int.from_bytes(position.open_bytes, "big")
        if position.last_ms or position.suspicions or position.due_ms:
            failures[entry] = Failed(
                position.count,
                position.index_counts,  # never mutated, only replaced
                position.first_ms,
                position.last_ms,
                position.due_ms,
                position.suspicions,
            )
    acked = frozenset(cursor.acked.to_array())
    return SubscriptionState(
        subscription.record.id, cursor.mark_delete, acked, partial, failures, rules_of(subscription)
    )


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
        {s.name: subscription_state_of(s) for s in topic.cursors if s.durable},
        dict(deduplication._sequences) if deduplication is not None else {},
    )


def snapshot_of(broker: Broker, base: Snapshot) -> Snapshot:
    """The state of every topic; topics that are not open have their state in `base`."""
    states: Snapshot = {}
    for full in broker.catalog.topics:
        topic = broker.topics.get(full)
        states[full] = state_of(topic) if isinstance(topic, PersistentTopic) else base[full]
    return states


class Boundary(NamedTuple):
    """The state on disk after a group. A group closed in the middle of a step lies between two states."""

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
    """Whether every part of `found` is as before, as after, or includes some acks of the step that closed the group."""
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
        _subscription_is_between(
            found.subscriptions.get(name), before.subscriptions.get(name), after.subscriptions.get(name)
        )
        for name in {**before.subscriptions, **after.subscriptions, **found.subscriptions}
    )


def _subscription_is_between(
    found: SubscriptionState | None, before: SubscriptionState | None, after: SubscriptionState | None
) -> bool:
    if found in (before, after):
        return True
    if found is None or before is None or after is None:
        return False
    last = max(found.mark, before.mark, after.mark)
    acked_before, acked, acked_after = (_acked(state, last) for state in (before, found, after))
    return acked_before <= acked <= acked_after


def _acked(state: SubscriptionState, last: int) -> set[int]:
    return {entry for entry in range(last + 1) if entry <= state.mark} | set(state.acked)
