"""`ClientTopics` on a broker, the real twin of `MemoryTopics`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Timer
from unittest.mock import patch

import httpx
import pytest

from magnetar.client import Client
from magnetar.client.errors import ConnectionLost, NotFound, NotSupported
from magnetar.client.message import MessageId
from magnetar.spark.clients import blocking_client
from magnetar.spark.source.offsets import whole_entry
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.topics import ClientTopics
from magnetar.testing import TestBroker, broker
from tests.spark.memory_topics import PUBLIC


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


def opened(**options: str) -> ClientTopics:
    client = SourceOptions.of(options | {"topic": "t"}).client
    return ClientTopics(blocking_client(client), first_give_up_s=0.3, give_up_s=5)


@pytest.fixture(params=["service", "admin", "both"])
def topics(request: pytest.FixtureRequest, running: TestBroker) -> Iterator[ClientTopics]:
    service, admin = {"service.url": running.service_url}, {"admin.url": running.http_url}
    options = {"service": service, "admin": admin, "both": service | admin}[request.param]
    with closing(opened(**options)) as topics:
        yield topics


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return PUBLIC + request.node.name.replace("[", "-").rstrip("]")


def publish(running: TestBroker, topic: str, count: int = 1, size: int = 10) -> list[MessageId]:
    with Client(running.service_url) as client, client.producer(topic, batching=False) as producer:
        return [producer.send(bytes(size)) for _ in range(count)]


def test_topics_and_partitions(topics: ClientTopics, running: TestBroker, topic: str) -> None:
    httpx.put(f"{running.http_url}/admin/v2/{topic.replace('://', '/')}/partitions", json=2).raise_for_status()
    publish(running, topic + "x")
    partitions = [f"{topic}-partition-{index}" for index in range(2)]

    assert topics.partitions(topic) == partitions
    assert topics.partitions(topic + "x") == [topic + "x"]
    assert {*partitions, topic + "x"} <= set(topics.listed("public/default"))
    with pytest.raises(NotFound):
        topics.partitions(topic + "y")
    assert topic + "y" not in topics.listed("public/default"), "asking creates nothing"


def test_an_older_broker_is_queried_for_all_topics(topics: ClientTopics, running: TestBroker, topic: str) -> None:
    httpx.put(f"{running.http_url}/admin/v2/{topic.replace('://', '/')}/partitions", json=11).raise_for_status()
    publish(running, topic + "x")

    with patch.object(Client, "get_partitions_for_topic", side_effect=NotSupported("it would be created")):
        assert topics.partitions(topic) == [f"{topic}-partition-{index}" for index in range(11)]
        assert topics.partitions(topic + "x") == [topic + "x"]
        with pytest.raises(NotFound, match=topic + "y"):
            topics.partitions(topic + "y")


def test_the_stored_range_of_a_topic(topics: ClientTopics, running: TestBroker, topic: str) -> None:
    ids = publish(running, topic, 30, size=1000)
    ledger_id = ids[0].ledger_id

    bounds = topics.bounds(topic)
    assert (bounds.before_first.position, bounds.last.position) == ((ledger_id, -1), ids[-1].position)
    assert topics.last(topic).position == ids[-1].position
    first = topics.first_after(topic, ids[3])
    assert first is not None
    assert first.position == ids[4].position
    assert topics.first_after(topic, ids[-1]) is None
    assert topics.position_at(topic, 0).position == (ledger_id, -1)
    sizes = topics.entry_sizes(topic, ids[3])
    assert len(sizes) == 16
    assert all(size.messages == 1 and 1000 < size.bytes < 1200 for size in sizes)
    assert topics.keeps_its_ledger(topic)
    assert topics.schema(topic) is None
    with pytest.raises(NotFound):
        topics.bounds(topic + "y")


def test_a_wait_ends_with_new_messages(topics: ClientTopics, running: TestBroker, topic: str) -> None:
    one, other = whole_entry(publish(running, topic)[0]), whole_entry(publish(running, topic + "2")[0])
    after = {topic: one, topic + "2": other}

    assert topics.wait(after, 0.05) == []
    timer = Timer(0.1, publish, (running, topic + "2"))
    timer.start()
    assert topics.wait(after, 30) == [topic + "2"]
    timer.join()
    assert topics.wait(after, 30) == [topic + "2"], "existing messages are reported at once"
    topics.forget(topic)
    assert topics.wait({topic: one}, 0.05) == []
    assert topics.wait({}, 0.01) == []


def test_an_unreachable_broker_is_reported_after_a_while() -> None:
    with (
        closing(opened(**{"service.url": "pulsar://127.0.0.1:1"})) as topics,
        pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"),
    ):
        topics.partitions(PUBLIC + "t")
