"""Proof that the simulation can fail: for each bug planted into the broker, some seed finds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.record import SubscriptionRecord
from magnetar.broker.commit import Commits, Group
from magnetar.broker.subscription import dead_letter, entry_state
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.dead_letter import DeadLetterMove
from magnetar.broker.subscription.deliveries import Deliveries
from magnetar.broker.subscription.dispatch import StickyKey
from magnetar.broker.subscription.entry_state import EntryState
from magnetar.broker.subscription.places import Places
from magnetar.broker.subscription.redelivery import Redelivery
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.subscription.suspects import Suspects
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.broker.topic.delayed import DelayedIndex
from magnetar.broker.topic.log import Log
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.session.session import Session

from .commit_steps import CommitSteps
from .failure import BrokenPromise
from .world import World

SEEDS = 400


def completes_before_sync(patch: pytest.MonkeyPatch) -> None:
    def sync(steps: CommitSteps) -> str:
        steps._is_synced = True
        return "no sync"

    patch.setattr(CommitSteps, "_sync", sync)


def shows_entries_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    append = Log.append

    def append_and_show(log: Log, *args: Any, **options: Any) -> None:
        append(log, *args, **options)
        log.confirmed = log.last

    patch.setattr(Log, "append", append_and_show)


def replies_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "send_when_durable", Session.send)


def forgets_to_store_acks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cursor, "_position_changed", lambda cursor, entry: None)


def forgets_to_store_the_mark_delete_position(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cursor, "_touch", lambda cursor: None)


def acknowledges_one_too_many(patch: pytest.MonkeyPatch) -> None:
    ack_up_to = Cursor.ack_up_to
    patch.setattr(Cursor, "ack_up_to", lambda cursor, entry: ack_up_to(cursor, entry + 1))


def counts_on_disconnect(patch: pytest.MonkeyPatch) -> None:
    remove_consumer = Subscription.remove_consumer

    def remove_and_count(subscription: Subscription, consumer: Consumer, **options: Any) -> None:
        for entry_id in consumer.pending:
            subscription.cursor.count_redelivery(entry_id)
        remove_consumer(subscription, consumer, **options)

    patch.setattr(Subscription, "remove_consumer", remove_and_count)


def loses_entries_without_a_receiver(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deliveries, "put_back", lambda deliveries, entries: None)


def forgets_sequences(patch: pytest.MonkeyPatch) -> None:
    def record(deduplication: Deduplication, name: str, sequence_id: int, batch: object, now_ms: int, _: int) -> None:
        deduplication._sequences[name], deduplication._used_ms[name] = sequence_id, now_ms

    patch.setattr(Deduplication, "record", record)


def never_sees_duplicates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deduplication, "last_sequence", lambda *args: -1)


def never_wakes_delayed_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscription, "wake", lambda subscription, entry_id: None)


def delivers_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelayedIndex, "holds", lambda index, deliver_at_ms, entry_id: False)


def ignores_the_owner_of_a_key(patch: pytest.MonkeyPatch) -> None:
    def receiver(dispatcher: StickyKey, key_hash: int) -> Consumer | None:
        owner = dispatcher._owners.owner(key_hash) if dispatcher._owners is not None else None
        if owner is None or not owner.can_receive or dispatcher._deliveries.is_blocked:
            return None
        return owner

    patch.setattr(StickyKey, "_receiver", receiver)


def ignores_permits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deliveries, "_room_of", lambda deliveries, consumer, limit: 1000)


def ignores_a_full_transport(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consumer, "can_receive", property(lambda consumer: consumer.permits > 0 and not consumer.is_blocked))


def trims_unacknowledged_entries(patch: pytest.MonkeyPatch) -> None:
    def trim(topic: PersistentTopic, now_ms: int) -> bool:
        keep_from = min(topic.log.first + 1, topic.log.confirmed + 1)
        topic.log.trim(topic.broker.commits.open().batch, keep_from)
        return True

    patch.setattr(PersistentTopic, "trim", trim)


def stores_a_later_state_with_an_earlier_group(patch: pytest.MonkeyPatch) -> None:
    """Stores each cursor when its group is written instead of when it is closed."""

    def close(commits: Commits, group: Any) -> None:
        commits._closed.append(group)

    patch.setattr(Commits, "_close", close)


def writes_a_dead_letter_in_a_separate_group(patch: pytest.MonkeyPatch) -> None:
    append_moved = PersistentTopic.append_moved

    def append_later(topic: PersistentTopic, group: Group, blobs: Sequence[bytes]) -> None:
        commits = topic.broker.commits
        commits._close(group)
        commits._open = None
        commits.batch()
        append_moved(topic, commits.open(), blobs)

    patch.setattr(PersistentTopic, "append_moved", append_later)


def writes_a_dead_letter_before_the_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """The dead letter is in the open group, the acknowledgement in the next one."""
    take_out = Places.take_out

    def take_out_later(places: Places, entry_id: int, left_open: int) -> None:
        commits = places.cursor._commits
        assert commits is not None
        commits.after(lambda: take_out(places, entry_id, left_open))

    patch.setattr(Places, "take_out", take_out_later)


def acknowledges_without_a_dead_letter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PersistentTopic, "append_moved", lambda topic, group, blobs: None)


def writes_a_dead_letter_twice(patch: pytest.MonkeyPatch) -> None:
    append_moved = PersistentTopic.append_moved
    twice = lambda topic, group, blobs: append_moved(topic, group, [*blobs, *blobs])  # noqa: E731
    patch.setattr(PersistentTopic, "append_moved", twice)


def loses_counts_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    encode = entry_state.encode
    without = lambda found: encode(msgspec.structs.replace(found, count=0, index_counts={}))  # noqa: E731
    patch.setattr(entry_state, "encode", without)


def dead_letters_the_neighbours_in_a_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dead_letter, "_exhausted", lambda is_open, state, limit: dead_letter._indexes(is_open))


def dead_letters_one_failure_too_early(patch: pytest.MonkeyPatch) -> None:
    def is_exhausted(state: EntryState, policy: DeadLetterPolicy) -> bool:
        return state.highest_count >= policy.max_redeliver_count

    patch.setattr(DeadLetterMove, "is_exhausted", staticmethod(is_exhausted))
    patch.setattr(dead_letter, "_exhausted", lambda is_open, state, limit: dead_letter._indexes(is_open))


def ignores_the_back_off_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Skips the due time of entries that are read; entries backing off in memory still wait."""
    patch.setattr(Redelivery, "_wait_ms", lambda redelivery, entry_id: 0)


def never_wakes_entries_that_back_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Redelivery, "wake", lambda redelivery: None)


def counts_suspicions_as_failures(patch: pytest.MonkeyPatch) -> None:
    def blame(subscription: Subscription, consumer: Consumer) -> list[int]:
        for entry_id in consumer.pending:
            subscription.redelivery.count(entry_id)
        return list(consumer.pending)

    patch.setattr(Subscription, "_blame", blame)


def never_blames_an_entry(patch: pytest.MonkeyPatch) -> None:
    def vanished(suspects: Suspects, consumer: Consumer) -> None:
        for entry_id in consumer.pending:
            suspects._cursor.change(entry_id, EntryState.suspect)

    patch.setattr(Suspects, "vanished", vanished)


def does_not_isolate_suspects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Suspects, "company_of", lambda suspects, entry_id: 0)


def forgets_a_policy_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def save(topic: PersistentTopic, subscription: Subscription, changed: SubscriptionRecord) -> None:
        subscription.record = changed

    patch.setattr(PersistentTopic, "save_subscription", save)


def forgets_entry_states_evicted_from_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cursor, "state_of", lambda cursor, entry: cursor._states.get(entry))


def starts_replication_after_the_topic_is_durable(patch: pytest.MonkeyPatch) -> None:
    begin = PersistentTopic.begin_replication

    def begin_later(topic: PersistentTopic, name: str, *, from_earliest: bool) -> None:
        topic.broker.commits.after(lambda: begin(topic, name, from_earliest=from_earliest))

    patch.setattr(PersistentTopic, "begin_replication", begin_later)


def trims_unreplicated_entries(patch: pytest.MonkeyPatch) -> None:
    trim = PersistentTopic.trim

    def trim_without(topic: PersistentTopic, now_ms: int) -> bool:
        kept = dict(topic._subscriptions)
        topic._subscriptions = {name: one for name, one in kept.items() if not one.is_internal}
        try:
            return trim(topic, now_ms)
        finally:
            topic._subscriptions = kept

    patch.setattr(PersistentTopic, "trim", trim_without)


BUGS: list[Callable[[pytest.MonkeyPatch], None]] = [
    completes_before_sync,
    shows_entries_before_they_are_durable,
    replies_at_once,
    forgets_to_store_acks,
    forgets_to_store_the_mark_delete_position,
    acknowledges_one_too_many,
    counts_on_disconnect,
    loses_entries_without_a_receiver,
    forgets_sequences,
    never_sees_duplicates,
    never_wakes_delayed_entries,
    delivers_early,
    ignores_the_owner_of_a_key,
    ignores_permits,
    ignores_a_full_transport,
    trims_unacknowledged_entries,
    stores_a_later_state_with_an_earlier_group,
    writes_a_dead_letter_in_a_separate_group,
    writes_a_dead_letter_before_the_acknowledgement,
    acknowledges_without_a_dead_letter,
    writes_a_dead_letter_twice,
    loses_counts_at_a_restart,
    dead_letters_the_neighbours_in_a_batch,
    dead_letters_one_failure_too_early,
    ignores_the_back_off_after_a_restart,
    never_wakes_entries_that_back_off,
    counts_suspicions_as_failures,
    never_blames_an_entry,
    does_not_isolate_suspects,
    forgets_a_policy_at_a_restart,
    forgets_entry_states_evicted_from_memory,
    starts_replication_after_the_topic_is_durable,
    trims_unreplicated_entries,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenPromise, match=r"replay: python -m tests\.simulation \d+"):
        for seed in range(SEEDS):
            World(seed).run()
