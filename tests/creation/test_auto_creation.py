"""AC1 to AC6: auto-creation of topics through every entry point."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.deadletter.topics import possible_primaries
from magnetar.names import TopicName

from .entry_points import (
    BINARY_ENTRY_POINTS,
    ENTRY_POINTS,
    NOT_ALLOWED,
    REST_ENTRY_POINTS,
    TOPIC_NOT_FOUND,
    Answer,
    EntryPoints,
)

PARTITIONED = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2}
MAKES_THE_TOPIC = ("PRODUCER", "SUBSCRIBE", "PUT subscription")
PREFIX = "persistent://public/default"


def code(answer: Answer) -> int:
    assert isinstance(answer, tuple), f"not rejected: {answer}"
    return answer[0]


def rejected(answer: Answer, entry_point: str) -> str:
    """The text of a rejection, which must be NotAllowedError, or 412 over REST."""
    assert code(answer) == (412 if entry_point in REST_ENTRY_POINTS else NOT_ALLOWED)
    assert isinstance(answer, tuple)
    return answer[1]


# -- AC1


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_ac1_when_off_nothing_is_created_and_the_topic_is_not_found(entry_point: str) -> None:
    entry_points = EntryPoints(allowAutoTopicCreation=False)
    assert code(entry_points.ask(entry_point, "t")) == (404 if entry_point in REST_ENTRY_POINTS else TOPIC_NOT_FOUND)
    assert entry_points.existing == ([], {})


@pytest.mark.parametrize("entry_point", MAKES_THE_TOPIC)
def test_ac1_when_on_a_plain_topic_is_created(entry_point: str) -> None:
    entry_points = EntryPoints()
    assert entry_points.ask(entry_point, "t") == "ok"
    assert entry_points.existing == (["t"], {})


@pytest.mark.parametrize("entry_point", ["PARTITIONED_METADATA", "GET partitions", "PUT subscription"])
def test_ac1_with_type_partitioned_all_partitions_are_created(entry_point: str) -> None:
    entry_points = EntryPoints(**PARTITIONED)
    assert entry_points.ask(entry_point, "t") in (2, "ok")
    assert entry_points.existing == (["t-partition-0", "t-partition-1"], {"t": 2})


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_ac1_the_namespace_overrides_the_broker(entry_point: str) -> None:
    entry_points = EntryPoints(allowAutoTopicCreation=False)
    path = "/admin/v2/namespaces/public/default/autoTopicCreation"
    entry_points.admin.done(
        "POST", path, json={"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    )
    if entry_point in ("PRODUCER", "SUBSCRIBE"):
        rejected(
            entry_points.ask(entry_point, "t"), entry_point
        )  # the topic is partitioned: clients query metadata first
    else:
        assert entry_points.ask(entry_point, "t") in (3, "ok")
    assert entry_points.existing == ([f"t-partition-{index}" for index in range(3)], {"t": 3})
    entry_points.admin.done("DELETE", path)
    assert code(entry_points.ask(entry_point, "u")) == (404 if entry_point in REST_ENTRY_POINTS else TOPIC_NOT_FOUND)


def test_ac1_applies_to_subscriptions_too() -> None:
    entry_points = EntryPoints(allowAutoSubscriptionCreation=False)
    entry_points.create("t")
    assert code(entry_points.ask("SUBSCRIBE", "t")) == 12  # SubscriptionNotFound
    entry_points.admin.done(
        "POST",
        "/admin/v2/namespaces/public/default/autoSubscriptionCreation",
        json={"allowAutoSubscriptionCreation": True},
    )
    assert entry_points.ask("SUBSCRIBE", "t") == "ok"


# -- AC2


@pytest.mark.parametrize("suffix", ["-DLQ", "-RETRY"])
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_ac2_dead_letter_topics_are_plain_whatever_the_settings(entry_point: str, suffix: str) -> None:
    entry_points = EntryPoints(**PARTITIONED)
    assert entry_points.ask(entry_point, f"orders-s{suffix}") in ("ok", 0)
    topics, partitioned = entry_points.existing
    assert partitioned == {}
    assert topics == ([f"orders-s{suffix}"] if entry_point in MAKES_THE_TOPIC else [])


@pytest.mark.parametrize("name", ["orders-s-dlq", "DLQ", "orders-s-Retry", "orders-s-DLQ2", "RETRY"])
def test_ac2_other_names_are_not_dead_letter_topics(name: str) -> None:
    entry_points = EntryPoints(**PARTITIONED)
    assert entry_points.ask("PARTITIONED_METADATA", name) == 2


def test_ac2_a_partitioned_one_created_by_an_administrator_is_used() -> None:
    entry_points = EntryPoints()
    entry_points.create("orders-s-DLQ", 4)
    assert entry_points.ask("PARTITIONED_METADATA", "orders-s-DLQ") == 4
    assert entry_points.ask("GET partitions", "orders-s-DLQ") == 4
    assert entry_points.ask("PRODUCER", "orders-s-DLQ-partition-3") == "ok"
    rejected(entry_points.ask("PRODUCER", "orders-s-DLQ"), "PRODUCER")


# -- AC3


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("entry_point", ["PRODUCER", "SUBSCRIBE"])
def test_ac3_auto_created_topics_are_marked(entry_point: str, domain: str) -> None:
    entry_points = EntryPoints()
    entry_points.ask(entry_point, f"{domain}://public/default/t")
    assert entry_points.properties(f"{domain}://public/default/t") == {"wasAutoCreated": "true"}
    entry_points.create(f"{domain}://public/default/made")
    assert entry_points.properties(f"{domain}://public/default/made") == {}


def test_ac3_survives_restarts() -> None:
    entry_points = EntryPoints(**PARTITIONED)
    entry_points.ask("PARTITIONED_METADATA", "t")
    entry_points.ask("PRODUCER", "x-DLQ")
    entry_points.restart()
    for topic in ("t", "t-partition-1", "x-DLQ"):
        assert entry_points.properties(topic) == {"wasAutoCreated": "true"}


# -- AC4


SUFFIXES = ("-DLQ", "-RETRY")


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("second", SUFFIXES)
@pytest.mark.parametrize("first", SUFFIXES)
def test_ac4_the_four_rules(first: str, second: str, entry_point: str) -> None:
    entry_points = EntryPoints()
    primary = f"orders-s{first}"
    assert entry_points.ask("PRODUCER", primary) == "ok"
    wanted = f"{primary}-s{second}"
    text = rejected(entry_points.ask(entry_point, wanted), entry_point)
    assert wanted in text and primary in text and "auto-created" in text
    assert entry_points.existing == ([primary], {})


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_ac4_holds_after_a_restart(entry_point: str) -> None:
    entry_points = EntryPoints()
    entry_points.ask("PRODUCER", "orders-s-DLQ")
    entry_points.restart()
    rejected(entry_points.ask(entry_point, "orders-s-DLQ-s-DLQ"), entry_point)


@pytest.mark.parametrize("entry_point", [*BINARY_ENTRY_POINTS, "GET partitions"])  # without stored subscriptions
def test_ac4_holds_for_non_persistent_topics(entry_point: str) -> None:
    entry_points = EntryPoints()
    entry_points.ask("PRODUCER", "non-persistent://public/default/orders-s-DLQ")
    rejected(entry_points.ask(entry_point, "non-persistent://public/default/orders-s-DLQ-s-RETRY"), entry_point)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_ac4_a_primary_created_by_an_administrator_may_have_them(entry_point: str) -> None:
    entry_points = EntryPoints()
    entry_points.create("orders-s-DLQ")
    assert entry_points.ask(entry_point, "orders-s-DLQ-s-RETRY") in ("ok", 0)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_ac4_a_partitioned_primary_created_by_an_administrator_may_have_them(entry_point: str) -> None:
    entry_points = EntryPoints()
    entry_points.create("orders-s-DLQ", 2)
    assert entry_points.ask(entry_point, "orders-s-DLQ-partition-1-s-RETRY") in ("ok", 0)
    assert entry_points.ask(entry_point, "orders-s-DLQ-s-RETRY") in ("ok", 0)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("primary", ["orders", "orders-partition-1"])
def test_ac4_an_auto_created_partitioned_topic_has_its_dead_letter_topic(primary: str, entry_point: str) -> None:
    entry_points = EntryPoints(**PARTITIONED)
    assert entry_points.ask("PARTITIONED_METADATA", "orders") == 2
    assert entry_points.ask(entry_point, f"{primary}-s-DLQ") in ("ok", 0)


def test_ac4_partitions_of_an_auto_created_dead_letter_topic_have_none() -> None:
    """Damage left by older brokers: no longer created, but data may contain it."""
    entry_points = EntryPoints()
    catalog = entry_points.admin.broker.catalog
    catalog.create_partitioned(TopicName.parse("orders-s-DLQ"), 2, {"wasAutoCreated": "true"})
    entry_points.admin.commit()
    for entry_point in ENTRY_POINTS:
        rejected(entry_points.ask(entry_point, "orders-s-DLQ-partition-0-s-DLQ"), entry_point)
        rejected(entry_points.ask(entry_point, "orders-s-DLQ-s-DLQ"), entry_point)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("subscription", ["a-b", "a-DLQ", "DLQ", "RETRY-b", "a-DLQ-RETRY-b", "-", "--DLQ-"])
def test_ac4_subscription_names_may_contain_dashes_and_the_suffixes(subscription: str, entry_point: str) -> None:
    entry_points = EntryPoints()
    entry_points.create("orders")
    letter = f"orders-{subscription}-DLQ"
    assert entry_points.ask(entry_point, letter) in ("ok", 0)  # the primary is orders
    if entry_point in MAKES_THE_TOPIC:
        assert entry_points.properties(letter) == {"wasAutoCreated": "true"}
        text = rejected(entry_points.ask(entry_point, f"{letter}-{subscription}-RETRY"), entry_point)
        assert letter in text


def test_ac4_a_name_without_a_subscription_has_no_primary() -> None:
    entry_points = EntryPoints()
    entry_points.ask("PRODUCER", "orders-s-DLQ")
    assert (
        entry_points.ask("PRODUCER", "orders-s-DLQ-DLQ") == "ok"
    )  # no subscription in between: not a dead letter topic


def test_ac4_an_existing_topic_is_used() -> None:
    entry_points = EntryPoints()
    entry_points.ask("PRODUCER", "orders-s-DLQ")
    entry_points.create("orders-s-DLQ-s-DLQ")
    for entry_point in ENTRY_POINTS:
        assert entry_points.ask(entry_point, "orders-s-DLQ-s-DLQ", subscription=entry_point) in ("ok", 0)


@given(
    topic=st.text("ab-", min_size=1, max_size=8),
    subscription=st.text("ab-DLQRETY", min_size=1, max_size=12),
    suffix=st.sampled_from(SUFFIXES),
)
def test_ac4_the_primary_is_among_the_candidates(topic: str, subscription: str, suffix: str) -> None:
    name = TopicName.parse(f"{topic}-{subscription}{suffix}")
    primaries = list(possible_primaries(name))
    assert f"{PREFIX}/{topic}" in primaries
    assert all(name.full.startswith(f"{primary}-") and name.full.endswith(suffix) for primary in primaries)


# -- AC6


@pytest.mark.parametrize("entry_point", BINARY_ENTRY_POINTS)
def test_ac6_a_partition_is_created_with_auto_creation_off(entry_point: str) -> None:
    entry_points = EntryPoints(allowAutoTopicCreation=False)
    entry_points.create("t", 2)
    entry_points.admin.done("DELETE", "/admin/v2/persistent/public/default/t-partition-1")
    assert entry_points.ask(entry_point, "t-partition-1") in ("ok", 0)
    if entry_point != "PARTITIONED_METADATA":
        assert entry_points.existing == (["t-partition-0", "t-partition-1"], {"t": 2})


@pytest.mark.parametrize("entry_point", ["PRODUCER", "SUBSCRIBE"])
def test_ac6_a_partition_without_a_partitioned_topic_is_rejected(entry_point: str) -> None:
    entry_points = EntryPoints()
    assert "t" in rejected(entry_points.ask(entry_point, "t-partition-0"), entry_point)
    entry_points.create("t", 2)
    assert code(entry_points.ask(entry_point, "t-partition-2")) == TOPIC_NOT_FOUND
    assert entry_points.existing == (["t-partition-0", "t-partition-1"], {"t": 2})


@pytest.mark.parametrize("entry_point", ["PRODUCER", "SUBSCRIBE"])
def test_ac6_a_partitioned_topic_itself_is_rejected(entry_point: str) -> None:
    entry_points = EntryPoints()
    entry_points.create("t", 2)
    assert "partitioned" in rejected(entry_points.ask(entry_point, "t"), entry_point)


def test_ac6_over_rest() -> None:
    entry_points = EntryPoints()
    path = "/admin/v2/persistent/public/default"
    assert "there isn't a partitioned topic t" in entry_points.admin.reason(412, "PUT", f"{path}/t-partition-0")
    entry_points.create("t", 2)
    assert entry_points.admin.reason(409, "PUT", f"{path}/t") == "This topic already exists"
    assert entry_points.existing == (["t-partition-0", "t-partition-1"], {"t": 2})
