"""The retry ladder: delays, properties, and where it ends."""

from __future__ import annotations

import json

from magnetar.deadletter.properties import Reason
from magnetar.pipelines.processing.call.outcome import Failure, crash, failure_of, unreadable
from magnetar.pipelines.processing.plan import plan
from magnetar.pipelines.processing.worker.ladder import RetryLadder

ORDERS = "persistent://public/default/orders"
PLAN = plan("orders", "billing", retry=["10s", "1m"], no_retry=[KeyError], dead_letter_topics={KeyError: "keys"})
NOW_MS = 1_000_000


def failed(error: Exception) -> Failure:
    try:
        raise error
    except Exception as caught:
        return failure_of(caught)


def test_sp2_a_message_climbs_the_ladder_and_ends_as_a_dead_letter() -> None:
    failure = failed(ValueError("amount 12"))
    first = RetryLadder(PLAN, is_retry=False).next(failure, {"mine": "x"}, "3:4:-1:2", NOW_MS)
    assert (first.topic, first.deliver_at_ms) == (f"{ORDERS}-billing-RETRY", NOW_MS + 10_000)
    assert first.properties["RECONSUMETIMES"] == "1"
    assert first.properties["DELAY_TIME"] == "10000"
    assert first.properties["REAL_TOPIC"] == ORDERS
    assert first.properties["REAL_SUBSCRIPTION"] == "billing"
    assert first.properties["ORIGIN_MESSAGE_ID"] == "3:4:-1:2"
    assert first.properties["mine"] == "x"

    again = RetryLadder(PLAN, is_retry=True)
    second = again.next(failure, first.properties, "9:9:-1", NOW_MS + 20_000)
    assert second.deliver_at_ms == NOW_MS + 80_000
    assert second.properties["RECONSUMETIMES"] == "2"
    assert second.properties["ORIGIN_MESSAGE_ID"] == "3:4:-1:2"

    last = again.next(failure, second.properties, "9:10:-1", NOW_MS + 90_000)
    assert (last.topic, last.deliver_at_ms) == (f"{ORDERS}-billing-DLQ", None)
    assert last.properties["DEATH_REASON"] == Reason.ProcessingFailed
    assert last.properties["DEATH_EXCEPTION"] == "ValueError"
    assert last.properties["DEATH_ERROR"] == "amount 12"
    assert last.properties["DEATH_STACK_TRACE"].startswith("Traceback")
    assert len(last.properties["DEATH_FINGERPRINT"]) == 12
    history = json.loads(last.properties["DEATH_HISTORY"])
    assert [(each["count"], each["first"], each["last"]) for each in history] == [
        (1, NOW_MS, NOW_MS),
        (2, NOW_MS, NOW_MS + 20_000),
        (3, NOW_MS, NOW_MS + 90_000),
    ]


def test_sp2_the_same_cause_has_the_same_fingerprint() -> None:
    one, other = failed(ValueError("amount 12")), failed(ValueError("amount 13"))
    assert one.raised is not None and other.raised is not None
    assert one.raised.fingerprint == other.raised.fingerprint
    different = failed(TypeError("amount 12")).raised
    assert different is not None and different.fingerprint != one.raised.fingerprint


def test_sp2_what_cannot_be_retried_dies_at_once() -> None:
    ladder = RetryLadder(PLAN, is_retry=False)
    assert ladder.next(failed(KeyError("a")), {}, "1:1:-1", NOW_MS).topic == "persistent://public/default/keys"
    for failure in (unreadable("no JSON"), crash("3 workers died", is_final=True)):
        found = ladder.next(failure, {}, "1:1:-1", NOW_MS)
        assert (found.topic, found.deliver_at_ms) == (f"{ORDERS}-billing-DLQ", None)
    assert ladder.next(crash("exited"), {}, "1:1:-1", NOW_MS).deliver_at_ms == NOW_MS + 10_000


def test_sp2_a_redriven_message_begins_the_ladder_again() -> None:
    """It has the properties of its earlier life, and a new position."""
    before = {"RECONSUMETIMES": "2", "DELAY_TIME": "5", "ORIGIN_MESSAGE_ID": "1:1:-1", "REDRIVE_GENERATION": "1"}
    found = RetryLadder(PLAN, is_retry=False).next(failed(ValueError("x")), before, "8:8:-1", NOW_MS)
    assert found.deliver_at_ms == NOW_MS + 10_000
    assert found.properties["RECONSUMETIMES"] == "1"
    assert found.properties["ORIGIN_MESSAGE_ID"] == "8:8:-1"
    assert found.properties["REDRIVE_GENERATION"] == "1"


def test_sp2_wrong_counts_of_a_retry_topic_count_as_none() -> None:
    found = RetryLadder(PLAN, is_retry=True).next(failed(ValueError("x")), {"RECONSUMETIMES": "many"}, "8:8:-1", NOW_MS)
    assert found.properties["RECONSUMETIMES"] == "1"
    assert found.properties["ORIGIN_MESSAGE_ID"] == "8:8:-1"
