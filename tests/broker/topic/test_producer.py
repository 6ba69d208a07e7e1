"""Producers that wait for exclusive access: in order, within a limit, and gone when they leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.bounds import PRODUCERS_WAITING
from magnetar.broker.topic.producer import AccessMode, Producer, Producers
from magnetar.errors import ProducerBusy
from tests.broker.world import Client


def waiting(number: int, ready: list[int] | None = None) -> Producer:
    on_ready: Callable[[], None] = (lambda: ready.append(number)) if ready is not None else (lambda: None)
    mode = AccessMode.WaitForExclusive
    return Producer(Client(), number, f"p{number}", access_mode=mode, on_ready=on_ready)


def test_bound_producers_waiting() -> None:
    producers = Producers("t", lambda producer: None)
    for number in range(PRODUCERS_WAITING.limit + 1):  # one is active
        producers.add(waiting(number))
    with pytest.raises(ProducerBusy, match=f"has {PRODUCERS_WAITING.limit} producers that wait"):
        producers.add(waiting(-1))
    assert len(producers.waiting) == PRODUCERS_WAITING.limit


def test_they_get_their_turn_in_order() -> None:
    ready: list[int] = []
    producers = Producers("t", lambda producer: None)
    queue = [waiting(number, ready) for number in range(5)]
    for producer in queue:
        producers.add(producer)
    producers.remove(queue[2])
    for producer in queue:
        producers.remove(producer)
    assert ready == [1, 3, 4]
