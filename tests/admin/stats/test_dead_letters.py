"""Dead letter topics of a namespace: waiting, handled, growth and age; the topics that a topic has; the metrics."""

from __future__ import annotations

import pytest

from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.stats import dead_letters
from magnetar.names import TopicName
from tests.admin.driver import Admin
from tests.admin.failed_messages import DLQ, FULL, NAMESPACE, PATH, kill, put, settle, topic_of

OVERVIEW = f"{NAMESPACE}/deadLetters"


def test_the_overview_counts_waiting_and_handled_letters(admin: Admin) -> None:
    assert admin.get(OVERVIEW) == {"topics": [], "next": None}
    kill(admin, b"a", b"b", b"c")
    admin.publish("other", b"live")
    (one,) = admin.get(OVERVIEW)["topics"]
    assert one == {
        "topic": f"{FULL}/t-s-DLQ",
        "originTopic": f"{FULL}/t",
        "originSubscription": "s",
        "waiting": 3,
        "handled": 0,
        "lastHour": 3,
        "oldest": "2023-11-14T22:13:20.000Z",
        "oldestAgeSeconds": 0,
    }
    admin.broker.clock.advance(hours=2)
    put(admin, b"d")
    admin.subscribe("t-s-DLQ", "inspection")
    topic_of(admin, "t-s-DLQ").subscriptions["inspection"].ack(1)
    settle(admin)
    (one,) = admin.get(OVERVIEW)["topics"]
    assert (one["waiting"], one["handled"], one["lastHour"], one["oldestAgeSeconds"]) == (3, 1, 1, 7200)
    for entry in (0, 2, 3):
        topic_of(admin, "t-s-DLQ").subscriptions["inspection"].ack(entry)
    (one,) = admin.get(OVERVIEW)["topics"]
    assert (one["waiting"], one["handled"], one["oldest"], one["oldestAgeSeconds"]) == (0, 4, None, None)


def test_messages_that_replication_parked_are_of_its_subscription(admin: Admin) -> None:
    admin.publish("t", b"live")
    put(admin, topic="t-west-REPL-DLQ")
    (one,) = admin.get(OVERVIEW)["topics"]
    assert (one["originTopic"], one["originSubscription"]) == (f"{FULL}/t", "pulsar.repl.west")


def test_partitions_are_counted_together_and_other_names_are_found(admin: Admin) -> None:
    admin.broker.catalog.create_partitioned(TopicName.parse("x-s-DLQ"), 3, {})
    for index in range(3):
        put(admin, topic=f"x-s-DLQ-partition-{index}")
    kill(admin, b"a")
    consumer = admin.subscribe("u", "s", permits=10)
    admin.publish("u", b"z")
    admin.done(
        "POST",
        f"{PATH}/u/subscription/s/deadLetterPolicy",
        json={"maxRedeliverCount": 1, "deadLetterTopic": "graveyard"},
    )
    settle(admin)
    for _ in range(2):
        consumer.subscription.redeliver(consumer, [0])  # type: ignore[union-attr]
        settle(admin)
    rows = {one["topic"].rpartition("/")[2]: one for one in admin.get(OVERVIEW)["topics"]}
    assert {name: one["waiting"] for name, one in rows.items()} == {"graveyard": 1, "t-s-DLQ": 1, "x-s-DLQ": 3}
    assert (rows["graveyard"]["originTopic"], rows["x-s-DLQ"]["originTopic"]) == ("", "")  # not in the name; no such x
    admin.done("DELETE", f"{PATH}/graveyard?force=true")
    assert len(admin.get(OVERVIEW)["topics"]) == 2


def test_pages_and_wrong_parameters(admin: Admin) -> None:
    for index in range(5):
        put(admin, topic=f"t-{index}-DLQ")
    found, after = [], ""
    while True:
        page = admin.get(f"{OVERVIEW}?limit=2&after={after}")
        found += [one["topic"] for one in page["topics"]]
        after = page["next"]
        if after is None:
            break
    assert found == [f"{FULL}/t-{index}-DLQ" for index in range(5)]
    assert "limit" in admin.reason(400, "GET", f"{OVERVIEW}?limit=0")
    admin.reason(404, "GET", "/admin/v2/namespaces/public/none/deadLetters")


def test_the_overview_of_many_topics_is_bounded(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other topics are not looked at, and the call yields between two dead letter topics."""
    yielded: list[None] = []

    async def checkpoint(_: TimeSlice) -> None:
        yielded.append(None)

    for index in range(30):
        put(admin, topic=f"t-{index}-DLQ")
    for index in range(30):
        admin.publish(f"live{index}", b"x")
    looked_at: list[str] = []
    original = dead_letters._overview

    def overview(broker, names):  # type: ignore[no-untyped-def]
        looked_at.append("")
        return original(broker, names)

    monkeypatch.setattr(TimeSlice, "checkpoint", checkpoint)
    monkeypatch.setattr(dead_letters, "_overview", overview)
    assert len(admin.get(f"{OVERVIEW}?limit=10")["topics"]) == 10
    assert (len(looked_at), len(yielded)) == (10, 10)


@pytest.mark.parametrize("path", ["", "/stats", "/1:0:-1"])
def test_b8_other_topics_are_rejected_with_the_names_of_their_dead_letter_topics(admin: Admin, path: str) -> None:
    kill(admin, b"a")
    put(admin, topic="t-other-DLQ")
    reason = admin.reason(412, "GET", f"{PATH}/t/deadLetters{path}")
    assert "not a dead letter topic" in reason
    assert f"{FULL}/t-other-DLQ, {FULL}/t-s-DLQ" in reason
    admin.publish("empty", b"x")
    assert "it has none" in admin.reason(412, "GET", f"{PATH}/empty/deadLetters{path}")
    admin.reason(404, "GET", f"{PATH}/missing/deadLetters{path}")


def test_b8_a_topic_with_a_longer_name_has_its_own(admin: Admin) -> None:
    admin.subscribe("orders", "billing")
    admin.subscribe("orders-eu", "billing")
    put(admin, topic="orders-billing-DLQ")
    put(admin, topic="orders-eu-billing-DLQ")
    reason = admin.reason(412, "GET", f"{PATH}/orders/deadLetters")
    assert f"{FULL}/orders-billing-DLQ" in reason and "orders-eu" not in reason
    assert "orders-eu-billing-DLQ" in admin.reason(412, "GET", f"{PATH}/orders-eu/deadLetters")


def test_handled_letters_are_left_out_unless_wanted(admin: Admin) -> None:
    kill(admin, b"a", b"b", b"c")
    admin.subscribe("t-s-DLQ", "inspection")
    topic_of(admin, "t-s-DLQ").subscriptions["inspection"].ack(1)
    settle(admin)
    assert [one["id"].split(":")[1] for one in admin.get(DLQ)["deadLetters"]] == ["0", "2"]
    everything = admin.get(f"{DLQ}?handled=true")["deadLetters"]
    assert [one.get("handled", False) for one in everything] == [False, True, False]
    stats = admin.get(f"{DLQ}/stats")
    assert (stats["deadLetters"], stats["waiting"], stats["handled"]) == (2, 2, 1)
    stats = admin.get(f"{DLQ}/stats?handled=true")
    assert (stats["deadLetters"], stats["waiting"], stats["handled"]) == (3, 2, 1)
    assert admin.get(f"{DLQ}/{everything[1]['id']}")["handled"] is True


def test_the_gauges_have_the_origin_as_labels(admin: Admin) -> None:
    kill(admin, b"a", b"b")
    put(admin, topic="x-DLQ")
    admin.broker.clock.advance(minutes=1)
    text = admin("GET", "/metrics/").text
    start = f'cluster="standalone",namespace="public/default",topic="{FULL}'
    of_t = f'{start}/t-s-DLQ",origin_topic="{FULL}/t",origin_subscription="s"'
    assert f"magnetar_dead_letters_waiting{{{of_t}}} 2\n" in text
    assert f"magnetar_dead_letters_oldest_seconds{{{of_t}}} 60\n" in text
    assert f'magnetar_dead_letters_waiting{{{start}/x-DLQ",origin_topic="",origin_subscription=""}} 1\n' in text
    assert f'magnetar_dead_letters_waiting{{{start}/t"' not in text
