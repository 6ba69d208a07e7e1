"""Source options: parsed values, and errors that name the option and the allowed values."""

from __future__ import annotations

import pickle

import pytest

from magnetar.client.message import EARLIEST
from magnetar.names import TopicName
from magnetar.spark.client_options import CLIENT_OPTIONS, SECURITY_OPTIONS
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import Use
from magnetar.spark.source.offsets import Instant
from magnetar.spark.source.options import SOURCE_OPTIONS, SourceOptions

URL = {"service.url": "pulsar://broker:6650"}
TOPIC = URL | {"topic": "orders"}


def refusal(options: dict[str, str], use: Use = Use.READ) -> str:
    with pytest.raises(InvalidOption) as raised:
        SourceOptions.of(options, use)
    return str(raised.value)


def test_a_topic_and_an_address_are_enough() -> None:
    options = SourceOptions.of(TOPIC)

    assert options.client.url == "pulsar://broker:6650"
    assert options.topics.names == ("persistent://public/default/orders",)
    assert options.starting is None
    assert options.fail_on_data_loss
    assert not options.include_entries
    assert (options.decode, options.on_unreadable) == ("auto", "fail")


def test_times_have_separate_options_too() -> None:
    options = SourceOptions.of(TOPIC | {"startingTime": "1700000000000", "endingTime": '{"orders": 1700000000001}'})

    assert options.starting is not None and options.ending is not None
    assert options.starting.of(options.topics.names[0]) == Instant(1_700_000_000_000)
    assert options.ending.of(options.topics.names[0]) == Instant(1_700_000_000_001)
    assert "option startingTime is 'yesterday'" in refusal(TOPIC | {"startingTime": "yesterday"})
    both = TOPIC | {"startingTime": "1", "startingOffsets": "earliest"}
    assert "option startingOffsets cannot be combined with startingTime" in refusal(both)


def test_option_names_are_case_insensitive() -> None:
    options = SourceOptions.of({"SERVICE.URL": "pulsar://b:1", "TOPIC": "t", "failondataloss": "FALSE"})

    assert not options.fail_on_data_loss


def test_every_option_of_a_stream_is_parsed() -> None:
    options = SourceOptions.of(
        TOPIC
        | {
            "admin.url": "http://broker:8080",
            "startingOffsets": "earliest",
            "predefinedSubscription": "copy",
            "maxEntriesPerTrigger": "100",
            "maxMessagesPerTrigger": "5000",
            "maxBytesPerTrigger": "1000000",
            "minPartitions": "8",
            "failOnDataLoss": "false",
            "columns": "value, __key",
            "onUnreadable": "row",
            "decode": "raw",
            "pollTimeoutMs": "500",
            "pulsar.client.authPluginClassName": "token",
            "pulsar.client.authParams": "token:secret",
            "pulsar.client.tlsAllowInsecureConnection": "true",
            "pulsar.client.operationTimeoutMs": "1500",
            "pulsar.client.connectionTimeoutMs": "250",
        },
        Use.STREAM,
    )

    assert options.starting is not None
    assert options.starting.everywhere == EARLIEST
    assert (options.subscription, options.entries_max, options.bytes_max) == ("copy", 100, 1_000_000)
    assert (options.messages_max, options.tasks_min) == (5000, 8)
    assert (options.fail_on_data_loss, options.columns) == (False, ("value", "__key"))
    assert (options.on_unreadable, options.decode, options.poll_timeout_s) == ("row", "raw", 0.5)
    assert (options.client.operation_timeout_s, options.client.connect_timeout_s) == (1.5, 0.25)
    assert dict(options.client.security) == {
        "authPluginClassName": "token",
        "authParams": "token:secret",
        "tlsAllowInsecureConnection": "true",
    }


def test_a_batch_read_may_have_an_end() -> None:
    options = SourceOptions.of(TOPIC | {"endingOffsets": "1700000000000"}, Use.BATCH)

    assert options.ending is not None
    assert options.ending.everywhere == Instant(1_700_000_000_000)


def test_the_admin_address_is_enough() -> None:
    assert SourceOptions.of({"admin.url": "http://b:8080", "topic": "t"}).client.url == "http://b:8080"


def test_secrets_are_not_shown() -> None:
    options = SourceOptions.of(
        TOPIC | {"pulsar.client.authPluginClassName": "token", "pulsar.client.authParams": "xyz"}
    )

    assert "xyz" not in repr(options)


def test_options_can_be_pickled_and_hashed() -> None:
    options = SourceOptions.of(TOPIC | {"startingOffsets": '{"orders": "1:2:-1"}'})

    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.client) == hash(SourceOptions.of(TOPIC).client)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "t"}, ["service.url", "admin.url"]),
        (URL, ["topic, topics, topicsPattern", "got none"]),
        (TOPIC | {"topics": "a"}, ["topic, topics, topicsPattern", "got topic and topics"]),
        (TOPIC | {"startingOfsets": "earliest"}, ["startingOfsets", "did you mean startingOffsets?"]),
        (TOPIC | {"xyzzy": "1"}, ["xyzzy", "known options are", "failOnDataLoss"]),
        (URL | {"topic": " "}, ["topic is empty", "name of a topic"]),
        (URL | {"topics": "a,,b"}, ["option topics", "empty last part"]),
        (URL | {"topic": "a/b"}, ["option topic", "a/b"]),
        (URL | {"topic": "non-persistent://a/b/c"}, ["option topic", "not persistent"]),
        ({"service.url": "localhost:6650", "topic": "t"}, ["service.url", "localhost:6650", "pulsar://"]),
        ({"admin.url": "pulsar://b:1", "topic": "t"}, ["admin.url", "http://"]),
        (TOPIC | {"failOnDataLoss": "yes"}, ["failOnDataLoss", "'yes'", "true or false"]),
        (TOPIC | {"maxEntriesPerTrigger": "0"}, ["maxEntriesPerTrigger", "'0'", "from 1"]),
        (TOPIC | {"maxBytesPerTrigger": "10MB"}, ["maxBytesPerTrigger", "'10MB'", "whole number"]),
        (TOPIC | {"pollTimeoutMs": "0"}, ["pollTimeoutMs", "'0'", "from 100"]),
        (TOPIC | {"onUnreadable": "skip"}, ["onUnreadable", "'skip'", "fail, row"]),
        (TOPIC | {"decode": "json"}, ["decode", "auto, raw"]),
        (TOPIC | {"columns": "value,,x"}, ["columns", "empty name"]),
        (TOPIC | {"columns": "value,value"}, ["columns", "value twice"]),
        (TOPIC | {"columns": "value", "includeEntries": "true"}, ["columns", "includeEntries"]),
        (TOPIC | {"decode": "auto", "includeEntries": "true"}, ["decode", "includeEntries"]),
        (TOPIC | {"startingOffsets": "soon"}, ["startingOffsets", "'soon'", "earliest, latest"]),
        (URL | {"topicsPattern": "a/b"}, ["topicsPattern", "tenant/namespace/expression"]),
        (URL | {"topicsPattern": "a/b/(c"}, ["topicsPattern", "'(c'", "regular expression"]),
        (URL | {"topicsPattern": "a b/c/.*"}, ["topicsPattern", "tenant name"]),
        (URL | {"topicsPattern": "non-persistent://a/b/.*"}, ["topicsPattern", "persistent"]),
    ],
)
def test_invalid_options_are_rejected_by_name(options: dict[str, str], words: list[str]) -> None:
    text = refusal(options)

    for word in words:
        assert word in text


@pytest.mark.parametrize(
    "name", ["maxEntriesPerTrigger", "maxBytesPerTrigger", "predefinedSubscription", "pollTimeoutMs"]
)
def test_streaming_options_are_rejected_in_batch_reads(name: str) -> None:
    assert f"option {name} applies to streams only" in refusal(TOPIC | {name: "1"}, Use.BATCH)


def test_a_stream_has_no_end() -> None:
    assert "option endingOffsets applies to batch reads only" in refusal(
        TOPIC | {"endingOffsets": "latest"}, Use.STREAM
    )


@pytest.mark.parametrize(
    ("pattern", "namespace"),
    [
        ("orders-.*", "public/default"),
        ("shop/eu/orders-.*", "shop/eu"),
        ("persistent://shop/eu/orders-.*", "shop/eu"),
    ],
)
def test_a_pattern_has_a_namespace_and_matches_whole_names(pattern: str, namespace: str) -> None:
    selection = SourceOptions.of(URL | {"topicsPattern": pattern}).topics

    assert selection.namespace == namespace
    assert selection.matches(TopicName.parse(f"{namespace}/orders-1"))
    assert selection.matches(TopicName.parse(f"{namespace}/orders-1-partition-3"))
    assert not selection.matches(TopicName.parse(f"{namespace}/old-orders-1"))
    assert not selection.matches(TopicName.parse(f"non-persistent://{namespace}/orders-1"))


def test_duplicate_topics_are_read_once() -> None:
    assert len(SourceOptions.of(URL | {"topics": "a, b,a,persistent://public/default/b"}).topics.names) == 2


def test_every_option_is_listed_once_with_a_description() -> None:
    options = (*CLIENT_OPTIONS, *SOURCE_OPTIONS)
    for option in options:
        assert option.kind.meaning.endswith("."), option.name
        assert option.default is None or option.kind.permits(option.default), option.name
    assert len({option.name.lower() for option in options}) == len(options)
    assert {f"pulsar.client.{name}" for name in SECURITY_OPTIONS} <= {option.name for option in options}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("subscribe", "option subscribe is Kafka's: here, use topic, or topics for several"),
        ("KAFKA.bootstrap.servers", "here, use service.url"),
        ("maxOffsetsPerTrigger", "here, use maxMessagesPerTrigger"),
        ("kafka.security.protocol", "here, use pulsar.client."),
    ],
)
def test_options_of_kafka_get_a_hint(name: str, words: str) -> None:
    assert words in refusal(TOPIC | {name: "x"})
