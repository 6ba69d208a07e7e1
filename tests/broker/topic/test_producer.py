"""Producers that wait for exclusive access: in order, within a limit, and gone when they leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.bounds import PRODUCERS_WAITING
from magnetar.broker.topic.producer import AccessMode, Producer, Producers
from magnetar.errors import MagnetarError, ProducerBusy, ServiceNotReady
from tests.broker.world import Client


def waiting(number: int, ready: list[int] | None = None) -> Producer:
    on_ready: Callable[[], None] = (lambda: ready.append(number)) if ready is not None else (lambda: None)
    mode = AccessMode.WaitForExclusive
    return Producer(Client(), number, f"p{number}", access_mode=mode, on_ready=on_ready)


def producers_of(name: str, claim: Callable[[Producer], None] = lambda producer: None) -> Producers:
    def fault(error: Exception) -> None:
        raise error

    return Producers(name, claim, fault)


def test_bound_producers_waiting() -> None:
    producers = producers_of("t")
    for number in range(PRODUCERS_WAITING.limit + 1):  # one is active
        producers.add(waiting(number))
    with pytest.raises(ProducerBusy, match=f"has {PRODUCERS_WAITING.limit} producers that wait"):
        producers.add(waiting(-1))
    assert len(producers.waiting) == PRODUCERS_WAITING.limit


def test_they_get_their_turn_in_order() -> None:
    ready: list[int] = []
    producers = producers_of("t")
    queue = [waiting(number, ready) for number in range(5)]
    for producer in queue:
        producers.add(producer)
    producers.remove(queue[2])
    for producer in queue:
        producers.remove(producer)
    assert ready == [1, 3, 4]


def test_fault_exclusive_access_that_cannot_be_given_is_answered_and_the_next_one_gets_it() -> None:
    ready: list[int] = []
    failed: list[MagnetarError] = []
    faults: list[Exception] = []

    def claim(producer: Producer) -> None:
        if producer.producer_id == 1:
            raise ValueError("planted")

    producers = Producers("t", claim, faults.append)
    queue = [waiting(number, ready) for number in range(3)]
    queue[1].on_failed = failed.append
    for producer in queue:
        producers.add(producer)
    producers.remove(queue[0])
    assert [str(fault) for fault in faults] == ["planted"]
    assert [type(error) for error in failed] == [ServiceNotReady]
    assert ready == [2]
    assert list(producers.by_name) == ["p2"]
