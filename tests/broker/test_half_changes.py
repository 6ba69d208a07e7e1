"""Unexpected errors between two changes: what a subscription has read is delivered, and what was sent is stored."""

from __future__ import annotations

import pytest

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.broker.subscription.deliveries import Deliveries
from magnetar.broker.topic.log import Log
from magnetar.broker.topic.persistent import PersistentTopic
from tests.broker.test_isolation import world_with_faults


def raise_once(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    original = getattr(owner, name)
    is_raised = False

    def raising(*args: object, **options: object) -> object:
        nonlocal is_raised
        if not is_raised:
            is_raised = True
            raise RuntimeError("a bug")
        return original(*args, **options)

    patch.setattr(owner, name, raising)


@pytest.mark.parametrize("kind", SubscriptionType)
def test_fault_planted_exception_in_dispatch_leaves_no_entry_in_no_place(
    kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that were read and not handed out would wait until the last consumer has gone."""
    world, host = world_with_faults()
    world.consumer(type=kind)
    raise_once(monkeypatch, Deliveries, "_room_of")
    world.publish(3)
    assert [fault[0] for fault in host.faults] == ["dispatch"]
    assert world.client.closed == ["c"], "it comes back"
    assert world.subscription().backlog == 3
    world.consumer(type=kind)
    assert sorted(set(world.client.take())) == [0, 1, 2]


def test_an_error_that_changed_nothing_closes_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    world, host = world_with_faults()
    world.consumer()
    raise_once(monkeypatch, Log, "read")
    world.publish()
    assert [fault[0] for fault in host.faults] == ["dispatch"]
    assert world.client.closed == []
    world.publish()
    assert world.client.take() == [0, 1]


def test_fault_planted_exception_in_a_publish_is_no_duplicate_when_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sequence id is noted with the message, never before it: a receipt for a lost message would follow."""
    world, _ = world_with_faults(brokerDeduplicationEnabled=True)
    producer = world.producer()
    raise_once(monkeypatch, Log, "append")
    with pytest.raises(RuntimeError):
        world.publish(producer=producer)
    world.settle()
    world.publish(producer=producer)
    assert [receipt[2] for receipt in world.client.receipted] == [0]
    assert world.topic().log.confirmed == 0
    again = world.restart(brokerDeduplicationEnabled=True)
    assert again.topic().last_sequence_id("p") == 0
    assert again.topic().log.confirmed == 0


def test_fault_planted_exception_in_a_dead_letter_move_keeps_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = world_with_faults()
    consumer = world.consumer()
    world.subscription().set_dead_letter_policy(DeadLetterPolicy(0), "test")
    world.publish()
    raise_once(monkeypatch, PersistentTopic, "append_moved")
    with pytest.raises(RuntimeError):
        world.subscription().redeliver(consumer, [0], None, {})
    world.settle()
    assert world.subscription().backlog == 1, "not acknowledged without its letter"
    world.subscription().disconnect_consumers()
    consumer = world.consumer()
    world.subscription().redeliver(consumer, [0], None, {})
    world.settle()
    assert world.subscription().backlog == 0
    assert world.topic("t-s-DLQ").log.confirmed == 0


def test_an_entry_id_is_used_only_with_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = world_with_faults()
    world.consumer()
    raise_once(monkeypatch, Log, "_key")
    with pytest.raises(RuntimeError):
        world.publish()
    world.settle()
    world.publish()
    assert world.client.take() == [0]
