"""Held entries behave as a dictionary in order of the ids, and cost bytes where a dictionary costs a hundred."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.held_entries import HeldEntries
from magnetar.broker.subscription.consumer import SubscriptionType
from tests.broker.world import World

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 65, 5000]), st.sampled_from([1, 1, 7, 300])), max_size=8),
        ),
        st.tuples(st.just("fill"), st.integers(1, 5000)),
        st.tuples(st.just("pop"), st.integers(0, 30)),
        st.tuples(st.just("lower"), st.integers(0, 30)),
        st.tuples(st.just("up to"), st.integers(0, 30)),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(steps)
def test_as_a_dictionary(steps: list[tuple[str, object]]) -> None:
    held, model, last = HeldEntries(), dict[int, int](), 0
    for step, value in steps:
        if step in ("add", "fill"):
            new: list[tuple[int, int]] = []
            for gap, messages in value if isinstance(value, list) else [(1, 1)] * int(str(value)):
                last += gap
                new.append((last, messages))
            if new:
                held.extend([one[0] for one in new], [one[1] for one in new])
            model.update(new)
        elif step == "clear":
            held.clear()
            model.clear()
        else:
            entry_id = list(model)[int(str(value)) % len(model)] if model else 3
            if step == "pop":
                assert held.pop(entry_id, -1) == model.pop(entry_id, -1)
            elif step == "up to":
                passed = [one for one in model if one <= entry_id]
                assert held.pop_up_to(entry_id) == sum([model.pop(one) for one in passed])
            elif model.get(entry_id, 0) > 1:
                held.lower(entry_id, 1)
                model[entry_id] = 1
        assert held == model and len(held) == len(model) and list(held) == list(model)
        for entry_id in (0, last, last + 1, *list(model)[:3]):
            assert (entry_id in held) == (entry_id in model)


def test_fault_consumer_never_acks_and_costs_little_memory() -> None:
    """A hundred thousand entries that are never acknowledged took ten megabytes."""
    world = World(managedLedgerCacheSizeMB=0)
    consumer = world.consumer(type=SubscriptionType.Exclusive, permits=0)
    for _ in range(100):
        world.publish(1000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    world.subscription().flow(consumer, 100_000)
    while len(consumer.pending) < 100_000:
        world.broker.pump()
        world.client.delivered.clear()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1 << 20
    world.subscription().ack_cumulative(99_998)
    assert consumer.unacked == 1 and list(consumer.pending) == [99_999]
