"""Bugs in topics and dispatchers found by the Go client's own suite."""

from __future__ import annotations

import pytest

from magnetar.errors import TopicTerminated
from tests.broker.world import Client, World


def test_single_messages_are_distributed_in_turns() -> None:
    world = World()
    first, second = Client(), Client()
    world.consumer(name="1", client=first)
    world.consumer(name="2", client=second)
    for _ in range(10):
        world.publish()
    assert len(first.take()) == 5
    assert len(second.take()) == 5


def test_a_terminated_topic_rejects_producers() -> None:
    world = World()
    world.publish()
    world.topic().terminate()
    world.settle()
    with pytest.raises(TopicTerminated):
        world.producer(name="late")
