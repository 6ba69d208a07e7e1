"""Waiting and handled dead letters, counted by the cursors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.topic import waiting
from tests.broker.dead_letters import DLQ
from tests.broker.world import World

SIZE = 12
ACKS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, SIZE - 1), st.booleans()), max_size=30)


@given(subscriptions=st.integers(0, 3), late=st.booleans(), acks=ACKS)
def test_counts_and_walks_agree_with_the_definition(subscriptions: int, late: bool, acks: list[tuple]) -> None:  # type: ignore[type-arg]
    world = World()
    world.publish(SIZE // 2, DLQ)
    names = [f"s{index}" for index in range(subscriptions)]
    for name in names:
        world.consumer(name, DLQ, earliest=not late)
    world.publish(SIZE - SIZE // 2, DLQ)
    for index, entry_id, is_cumulative in acks:
        if index < subscriptions:
            subscription = world.subscription(names[index], DLQ)
            subscription.advance(entry_id) if is_cumulative else subscription.ack(entry_id)
    world.settle()
    topic = world.topic(DLQ)
    cursors = [world.subscription(name, DLQ).cursor for name in names]
    first_read = (SIZE // 2 if late else 0) if cursors else SIZE
    expected = [
        entry for entry in range(SIZE) if entry < first_read or any(not cursor.is_acked(entry) for cursor in cursors)
    ]
    assert [entry for entry in range(SIZE) if waiting.is_waiting(topic, entry)] == expected
    assert (waiting.count(topic), waiting.handled(topic)) == (len(expected), SIZE - len(expected))
    walked, entry = [], waiting.next_waiting(topic, 0)
    while entry < SIZE:
        walked.append(entry)
        entry = waiting.next_waiting(topic, entry + 1)
    assert walked == expected


def test_a_message_of_a_batch_waits_alone() -> None:
    world = World()
    world.publish(1, DLQ, messages=3)
    world.consumer("s", DLQ)
    world.subscription("s", DLQ).ack(0, open_bits=0b101, batch_size=3)
    topic = world.topic(DLQ)
    assert [waiting.is_waiting(topic, 0, index) for index in range(3)] == [True, False, True]
    assert waiting.count(topic) == 1  # entries, as every backlog
