"""The dead letter load on a broker of ours, and the checks of its results."""

from __future__ import annotations

import pytest
from dead_letters import DeadLettersFailed, Load, Outcome, by_broker, by_client, check_complete, check_exact
from table import compare

from magnetar.testing import broker


def test_every_message_becomes_one_dead_letter() -> None:
    with broker() as running:
        assert by_client(running.service_url, 50, clients=2) > 0
        assert by_broker(running.service_url, 50) > 0


def test_a_lost_message_is_a_failure() -> None:
    load = Load(10, 10, "client")
    check_complete(load, Outcome(1.0, 5.0, deliveries=31, dead_letters=11, distinct=10))
    with pytest.raises(DeadLettersFailed, match="9 of 10 messages"):
        check_complete(load, Outcome(1.0, 5.0, deliveries=30, dead_letters=10, distinct=9))


@pytest.mark.parametrize(("dead_letters", "deliveries"), [(11, 30), (10, 31)])
def test_an_extra_delivery_or_dead_letter_fails_the_row(dead_letters: int, deliveries: int) -> None:
    load = Load(10, 10, "broker")
    check_exact(load, Outcome(1.0, 5.0, deliveries=30, dead_letters=10, distinct=10))
    with pytest.raises(DeadLettersFailed, match="expected 10 after 30"):
        check_exact(load, Outcome(1.0, 5.0, deliveries, dead_letters, distinct=10))


def test_the_brokers_policy_is_compared_with_the_clients() -> None:
    apache = {"dead-letters": [5000.0], "dead-letters-of-one": [1500.0]}
    ours = {"dead-letters": [7000.0], "dead-letters-of-one": [2000.0], "dead-letters-by-broker": [7500.0]}
    many, one, by_broker = compare(apache, ours)
    assert (many.ratio, many.ok) == ("1.40", False)
    assert (one.ratio, one.ok) == ("1.33", None)
    assert (by_broker.apache, by_broker.ratio, by_broker.ok) == ("1,500 /s", "5.00", True)


def test_an_unmeasured_row_has_no_line() -> None:
    assert len(compare({"dead-letters": [1500.0]}, {"dead-letters": [2000.0]})) == 1


@pytest.mark.parametrize(("last", "ok"), [(204.0, True), (205.0, False)])
def test_memory_of_messages_awaiting_redelivery_must_not_grow(last: float, ok: bool) -> None:
    (line,) = compare({}, {"redelivery-memory 200000": [180.0], "redelivery-memory 1000000": [last]})
    assert line.metric == "memory with 200,000 / 1M messages awaiting redelivery" and line.ok is ok
