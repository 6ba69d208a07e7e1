"""AC1 to AC6: which topics come to be by themselves, by every way in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.deadletter.topics import possible_primaries
from magnetar.names import TopicName

from .ways import BINARY_WAYS, NOT_ALLOWED, REST_WAYS, TOPIC_NOT_FOUND, WAYS, Answer, Ways

PARTITIONED = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2}
MAKES_THE_TOPIC = ("PRODUCER", "SUBSCRIBE", "PUT subscription")
PREFIX = "persistent://public/default"


def code(answer: Answer) -> int:
    assert isinstance(answer, tuple), f"not refused: {answer}"
    return answer[0]


def refused(answer: Answer, way: str) -> str:
    """The text of a refusal that has to be NotAllowedError, by REST 412."""
    assert code(answer) == (412 if way in REST_WAYS else NOT_ALLOWED)
    assert isinstance(answer, tuple)
    return answer[1]


# -- AC1


@pytest.mark.parametrize("way", WAYS)
def test_ac1_off_means_not_found_and_nothing_is_made(way: str) -> None:
    ways = Ways(allowAutoTopicCreation=False)
    assert code(ways.ask(way, "t")) == (404 if way in REST_WAYS else TOPIC_NOT_FOUND)
    assert ways.existing == ([], {})


@pytest.mark.parametrize("way", MAKES_THE_TOPIC)
def test_ac1_on_makes_a_plain_topic(way: str) -> None:
    ways = Ways()
    assert ways.ask(way, "t") == "ok"
    assert ways.existing == (["t"], {})


@pytest.mark.parametrize("way", ["PARTITIONED_METADATA", "GET partitions", "PUT subscription"])
def test_ac1_partitioned_makes_all_partitions(way: str) -> None:
    ways = Ways(**PARTITIONED)
    assert ways.ask(way, "t") in (2, "ok")
    assert ways.existing == (["t-partition-0", "t-partition-1"], {"t": 2})


@pytest.mark.parametrize("way", WAYS)
def test_ac1_the_namespace_overrides_the_broker(way: str) -> None:
    ways = Ways(allowAutoTopicCreation=False)
    path = "/admin/v2/namespaces/public/default/autoTopicCreation"
    ways.admin.done(
        "POST", path, json={"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    )
    if way in ("PRODUCER", "SUBSCRIBE"):
        refused(ways.ask(way, "t"), way)  # the topic is partitioned: clients ask for metadata first
    else:
        assert ways.ask(way, "t") in (3, "ok")
    assert ways.existing == ([f"t-partition-{index}" for index in range(3)], {"t": 3})
    ways.admin.done("DELETE", path)
    assert code(ways.ask(way, "u")) == (404 if way in REST_WAYS else TOPIC_NOT_FOUND)


def test_ac1_subscriptions_too() -> None:
    ways = Ways(allowAutoSubscriptionCreation=False)
    ways.create("t")
    assert code(ways.ask("SUBSCRIBE", "t")) == 12  # SubscriptionNotFound
    ways.admin.done(
        "POST",
        "/admin/v2/namespaces/public/default/autoSubscriptionCreation",
        json={"allowAutoSubscriptionCreation": True},
    )
    assert ways.ask("SUBSCRIBE", "t") == "ok"


# -- AC2


@pytest.mark.parametrize("suffix", ["-DLQ", "-RETRY"])
@pytest.mark.parametrize("way", WAYS)
def test_ac2_letters_are_plain_whatever_the_settings_say(way: str, suffix: str) -> None:
    ways = Ways(**PARTITIONED)
    assert ways.ask(way, f"orders-s{suffix}") in ("ok", 0)
    topics, partitioned = ways.existing
    assert partitioned == {}
    assert topics == ([f"orders-s{suffix}"] if way in MAKES_THE_TOPIC else [])


@pytest.mark.parametrize("name", ["orders-s-dlq", "DLQ", "orders-s-Retry", "orders-s-DLQ2", "RETRY"])
def test_ac2_other_names_are_not_letters(name: str) -> None:
    ways = Ways(**PARTITIONED)
    assert ways.ask("PARTITIONED_METADATA", name) == 2


def test_ac2_a_partitioned_one_of_an_administrator_is_used() -> None:
    ways = Ways()
    ways.create("orders-s-DLQ", 4)
    assert ways.ask("PARTITIONED_METADATA", "orders-s-DLQ") == 4
    assert ways.ask("GET partitions", "orders-s-DLQ") == 4
    assert ways.ask("PRODUCER", "orders-s-DLQ-partition-3") == "ok"
    refused(ways.ask("PRODUCER", "orders-s-DLQ"), "PRODUCER")


# -- AC3


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("way", ["PRODUCER", "SUBSCRIBE"])
def test_ac3_what_was_made_by_itself_says_so(way: str, domain: str) -> None:
    ways = Ways()
    ways.ask(way, f"{domain}://public/default/t")
    assert ways.properties(f"{domain}://public/default/t") == {"wasAutoCreated": "true"}
    ways.create(f"{domain}://public/default/made")
    assert ways.properties(f"{domain}://public/default/made") == {}


def test_ac3_survives_restarts() -> None:
    ways = Ways(**PARTITIONED)
    ways.ask("PARTITIONED_METADATA", "t")
    ways.ask("PRODUCER", "x-DLQ")
    ways.restart()
    for topic in ("t", "t-partition-1", "x-DLQ"):
        assert ways.properties(topic) == {"wasAutoCreated": "true"}


# -- AC4


SUFFIXES = ("-DLQ", "-RETRY")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("second", SUFFIXES)
@pytest.mark.parametrize("first", SUFFIXES)
def test_ac4_the_four_rules(first: str, second: str, way: str) -> None:
    ways = Ways()
    primary = f"orders-s{first}"
    assert ways.ask("PRODUCER", primary) == "ok"
    wanted = f"{primary}-s{second}"
    text = refused(ways.ask(way, wanted), way)
    assert wanted in text and primary in text and "auto-created" in text
    assert ways.existing == ([primary], {})


@pytest.mark.parametrize("way", WAYS)
def test_ac4_holds_after_a_restart(way: str) -> None:
    ways = Ways()
    ways.ask("PRODUCER", "orders-s-DLQ")
    ways.restart()
    refused(ways.ask(way, "orders-s-DLQ-s-DLQ"), way)


@pytest.mark.parametrize("way", [*BINARY_WAYS, "GET partitions"])  # no stored subscriptions there
def test_ac4_holds_for_non_persistent_topics(way: str) -> None:
    ways = Ways()
    ways.ask("PRODUCER", "non-persistent://public/default/orders-s-DLQ")
    refused(ways.ask(way, "non-persistent://public/default/orders-s-DLQ-s-RETRY"), way)


@pytest.mark.parametrize("way", WAYS)
def test_ac4_a_primary_made_by_an_administrator_may_have_them(way: str) -> None:
    ways = Ways()
    ways.create("orders-s-DLQ")
    assert ways.ask(way, "orders-s-DLQ-s-RETRY") in ("ok", 0)


@pytest.mark.parametrize("way", WAYS)
def test_ac4_a_partitioned_primary_made_by_an_administrator_may_have_them(way: str) -> None:
    ways = Ways()
    ways.create("orders-s-DLQ", 2)
    assert ways.ask(way, "orders-s-DLQ-partition-1-s-RETRY") in ("ok", 0)
    assert ways.ask(way, "orders-s-DLQ-s-RETRY") in ("ok", 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("primary", ["orders", "orders-partition-1"])
def test_ac4_an_auto_created_partitioned_topic_has_its_letters(primary: str, way: str) -> None:
    ways = Ways(**PARTITIONED)
    assert ways.ask("PARTITIONED_METADATA", "orders") == 2
    assert ways.ask(way, f"{primary}-s-DLQ") in ("ok", 0)


def test_ac4_partitions_of_an_auto_created_letter_topic_have_none() -> None:
    """Such a topic is the damage of older brokers: nothing makes one any more, but data may hold one."""
    ways = Ways()
    catalog = ways.admin.broker.catalog
    catalog.create_partitioned(TopicName.parse("orders-s-DLQ"), 2, {"wasAutoCreated": "true"})
    ways.admin.commit()
    for way in WAYS:
        refused(ways.ask(way, "orders-s-DLQ-partition-0-s-DLQ"), way)
        refused(ways.ask(way, "orders-s-DLQ-s-DLQ"), way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("subscription", ["a-b", "a-DLQ", "DLQ", "RETRY-b", "a-DLQ-RETRY-b", "-", "--DLQ-"])
def test_ac4_subscriptions_may_have_dashes_and_the_words(subscription: str, way: str) -> None:
    ways = Ways()
    ways.create("orders")
    letter = f"orders-{subscription}-DLQ"
    assert ways.ask(way, letter) in ("ok", 0)  # the primary is orders
    if way in MAKES_THE_TOPIC:
        assert ways.properties(letter) == {"wasAutoCreated": "true"}
        text = refused(ways.ask(way, f"{letter}-{subscription}-RETRY"), way)
        assert letter in text


def test_ac4_a_name_without_a_subscription_has_no_primary() -> None:
    ways = Ways()
    ways.ask("PRODUCER", "orders-s-DLQ")
    assert ways.ask("PRODUCER", "orders-s-DLQ-DLQ") == "ok"  # no subscription between: nobody's letters


def test_ac4_a_topic_that_exists_is_used() -> None:
    ways = Ways()
    ways.ask("PRODUCER", "orders-s-DLQ")
    ways.create("orders-s-DLQ-s-DLQ")
    for way in WAYS:
        assert ways.ask(way, "orders-s-DLQ-s-DLQ", subscription=way) in ("ok", 0)


@given(
    topic=st.text("ab-", min_size=1, max_size=8),
    subscription=st.text("ab-DLQRETY", min_size=1, max_size=12),
    suffix=st.sampled_from(SUFFIXES),
)
def test_ac4_the_primary_is_among_the_possible_ones(topic: str, subscription: str, suffix: str) -> None:
    name = TopicName.parse(f"{topic}-{subscription}{suffix}")
    primaries = list(possible_primaries(name))
    assert f"{PREFIX}/{topic}" in primaries
    assert all(name.full.startswith(f"{primary}-") and name.full.endswith(suffix) for primary in primaries)


# -- AC6


@pytest.mark.parametrize("way", BINARY_WAYS)
def test_ac6_a_partition_comes_to_be_with_auto_creation_off(way: str) -> None:
    ways = Ways(allowAutoTopicCreation=False)
    ways.create("t", 2)
    ways.admin.done("DELETE", "/admin/v2/persistent/public/default/t-partition-1")
    assert ways.ask(way, "t-partition-1") in ("ok", 0)
    if way != "PARTITIONED_METADATA":
        assert ways.existing == (["t-partition-0", "t-partition-1"], {"t": 2})


@pytest.mark.parametrize("way", ["PRODUCER", "SUBSCRIBE"])
def test_ac6_a_partition_of_nothing_is_refused(way: str) -> None:
    ways = Ways()
    assert "t" in refused(ways.ask(way, "t-partition-0"), way)
    ways.create("t", 2)
    assert code(ways.ask(way, "t-partition-2")) == TOPIC_NOT_FOUND
    assert ways.existing == (["t-partition-0", "t-partition-1"], {"t": 2})


@pytest.mark.parametrize("way", ["PRODUCER", "SUBSCRIBE"])
def test_ac6_a_partitioned_topic_itself_is_refused(way: str) -> None:
    ways = Ways()
    ways.create("t", 2)
    assert "partitioned" in refused(ways.ask(way, "t"), way)


def test_ac6_by_rest() -> None:
    ways = Ways()
    path = "/admin/v2/persistent/public/default"
    assert "there isn't a partitioned topic t" in ways.admin.reason(412, "PUT", f"{path}/t-partition-0")
    ways.create("t", 2)
    assert ways.admin.reason(409, "PUT", f"{path}/t") == "This topic already exists"
    assert ways.existing == (["t-partition-0", "t-partition-1"], {"t": 2})
