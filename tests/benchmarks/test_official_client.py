"""The loads with the official Python client, Spark's baseline, on a broker of ours."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

import official_client
import pulsar  # type: ignore[import-untyped]
import pytest
from official_client import LoadFailed, main, payloads, table_of, time_arrivals

from magnetar.spark.codec.columns import METADATA, RAW_VALUE
from magnetar.testing import TestBroker, broker

TOPIC = "persistent://public/default/measured"


@pytest.fixture
def running() -> Iterator[TestBroker]:
    with broker() as each:
        yield each


@pytest.fixture
def client(running: TestBroker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def outcome(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, float]:
    main([str(word) for word in words])
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


def test_it_has_the_columns_of_the_source() -> None:
    assert official_client.SCHEMA.names == [RAW_VALUE.name, *(column.name for column in METADATA)]


def test_a_table_holds_the_messages(client: pulsar.Client) -> None:
    consumer = client.subscribe(TOPIC, "s")
    plain, batched = client.create_producer(TOPIC), client.create_producer(TOPIC, batching_enabled=True)
    plain.send(b"first", partition_key="k", event_timestamp=1_700_000_000_000, properties={"a": "1"})
    for value in (b"second", b"third"):
        batched.send_async(value, None)
    batched.flush()
    messages = [consumer.receive(10_000) for _ in range(3)]
    table = table_of(messages)
    first, _, third = table.to_pylist()
    assert (first["value"], first["__key"], first["__messageProperties"]) == (b"first", b"k", [("a", "1")])
    assert first["__eventTime"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert (third["value"], third["__key"], third["__eventTime"]) == (b"third", None, None)
    assert table["__batchIndex"].to_pylist() == [None, 0, 1]
    assert table["__topic"].to_pylist() == [TOPIC] * 3
    assert table["__messageId"].to_pylist() == [message.message_id().serialize() for message in messages]
    assert table["__redeliveryCount"].to_pylist() == [0] * 3 and table["__error"].null_count == 3


def test_a_backlog_is_published_and_read(running: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    url = running.service_url
    with_subscription = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with_subscription.subscribe(TOPIC, "keeps").close()
    with_subscription.close()
    published = outcome(capsys, "send-async", url, TOPIC, 2500, 100)
    assert published["messages"] == 2500 and published["seconds"] > 0
    read = outcome(capsys, "read", url, TOPIC, 2500)
    assert read["messages"] == 2500 and read["seconds"] > 0


def test_sending_one_by_one_ends_after_the_given_time(running: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys, "send", running.service_url, TOPIC, 20, 100, 60)["messages"] == 20
    assert outcome(capsys, "send", running.service_url, TOPIC, 20, 100, 0)["messages"] == 1


def test_every_arrival_is_timed(running: TestBroker, client: pulsar.Client) -> None:
    url = running.service_url
    times = time_arrivals(client, TOPIC, TOPIC, rate=1000, messages=30, target_url=url)["latencies_ms"]
    assert isinstance(times, list) and len(times) == 30 and all(0 < each < 10_000 for each in times)


def test_a_message_that_arrives_twice_is_a_failure(client: pulsar.Client) -> None:
    consumer, producer = client.subscribe(TOPIC, "s"), client.create_producer(TOPIC)
    arrivals = official_client._Arrivals(producer, consumer, 2)
    arrivals.publish(0)
    arrivals.publish(0)
    with pytest.raises(LoadFailed, match="message 0 arrived twice"):
        arrivals.receive(2)


def test_a_message_that_does_not_arrive_is_a_failure(client: pulsar.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_client, "_SILENCE_MAX_S", 0.1)
    arrivals = official_client._Arrivals(client.create_producer(TOPIC), client.subscribe(TOPIC, "s"), 2)
    with pytest.raises(LoadFailed, match="0 of 1 messages arrived"):
        arrivals.receive(1)
    silent = client.subscribe(TOPIC, "t", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10, -1, 50))
    with pytest.raises(LoadFailed, match="no message arrived"):
        next(official_client.tables(silent))


def test_payloads_are_incompressible() -> None:
    some = list(itertools.islice(payloads(1024), 300))
    assert {len(each) for each in some} == {1024}
    assert len(set(some)) == 256
    assert len(zlib.compress(b"".join(some[:30]))) > 30 * 1024 * 0.95
