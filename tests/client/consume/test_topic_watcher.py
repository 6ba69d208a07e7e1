"""A watcher of many topics: each is reported once, when something is stored, and so is an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import magnetar.testing
from magnetar.client import EARLIEST, Client, MessageId, TopicWatcher
from magnetar.client.errors import Closed, NotFound

WAIT_S = 10.0


@pytest.fixture
def broker() -> Iterator[magnetar.testing.TestBroker]:
    with magnetar.testing.broker() as running:
        yield running


@pytest.fixture
def client(broker: magnetar.testing.TestBroker) -> Iterator[Client]:
    with Client(broker.service_url) as made:
        yield made


def reported(watcher: TopicWatcher, count: int) -> set[str]:
    found: set[str] = set()
    while len(found) < count:
        answer = watcher.next(WAIT_S)
        assert answer, f"only {sorted(found)} within {WAIT_S:g} s"
        assert set(answer.values()) == {None}
        found.update(answer)
    return found


def test_a_topic_is_reported_once_and_then_from_its_new_position(client: Client) -> None:
    with client.producer("t") as producer, client.topic_watcher() as watcher:
        watcher.watch("t", EARLIEST)
        assert watcher.next(0.05) == {}
        first = producer.send(b"1")
        assert watcher.next(WAIT_S) == {"t": None}
        producer.send(b"2")
        assert watcher.next(0.05) == {}, "it is watched no more"
        watcher.watch("t", MessageId(first.ledger_id, first.entry_id))
        assert watcher.next(WAIT_S) == {"t": None}, "what is stored already is reported"
        last = producer.send(b"3")
        watcher.watch("t", MessageId(last.ledger_id, last.entry_id))
        assert watcher.next(0.05) == {}
        producer.send(b"4")
        assert watcher.next(WAIT_S) == {"t": None}


def test_only_topics_with_new_messages_are_reported(client: Client) -> None:
    topics = [f"t{number}" for number in range(100)]
    producers = {topic: client.producer(topic) for topic in topics}
    with client.topic_watcher() as watcher:
        for topic in topics:
            watcher.watch(topic, EARLIEST)
        for topic in topics[::10]:
            producers[topic].send(b"1")
        assert reported(watcher, 10) == set(topics[::10])
        assert watcher.next(0.05) == {}


def test_an_unwatched_topic_is_not_reported(client: Client) -> None:
    with client.producer("t") as producer, client.topic_watcher() as watcher:
        watcher.watch("t", EARLIEST)
        watcher.forget("t")
        producer.send(b"1")
        assert watcher.next(0.1) == {}


def test_a_deleted_topic_is_reported_with_its_error(broker: magnetar.testing.TestBroker, client: Client) -> None:
    import httpx

    with client.topic_watcher() as watcher:
        watcher.watch("absent", EARLIEST)
        (error,) = watcher.next(WAIT_S).values()
        assert isinstance(error, NotFound)

        with client.producer("t"):
            pass
        watcher.watch("t", EARLIEST)
        assert watcher.next(0.05) == {}
        path = f"{broker.http_url}/admin/v2/persistent/public/default/t?force=true"
        assert httpx.delete(path, trust_env=False).is_success
        (error,) = watcher.next(WAIT_S).values()
        assert isinstance(error, NotFound)


def test_closing_ends_the_wait(client: Client) -> None:
    watcher = client.topic_watcher()
    watcher.close()
    with pytest.raises(Closed):
        watcher.next(None)
