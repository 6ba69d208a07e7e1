"""Watches: the stored range of a topic, and waiting for more without polling."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from magnetar.client import EARLIEST, LATEST, Client, MessageId
from magnetar.client.errors import Closed, ConnectionLost, InvalidArgument, NotFound
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from tests.client.connection.test_reconnect import drop_connections
from tests.client.consume.test_entry_reader import publish

PATIENCE_S = 20


@pytest.fixture
def commands(running: TestBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Records the commands of clients from now on."""
    from magnetar.client.connection.protocol import Protocol

    sent: list[str] = []
    send = Protocol.send

    def record(self: Protocol, command: pb.BaseCommand) -> None:
        sent.append(pb.BaseCommand.Type.Name(command.type))
        send(self, command)

    monkeypatch.setattr(Protocol, "send", record)
    yield sent


def soon(action: Any, *arguments: Any) -> None:
    threading.Timer(0.2, action, arguments).start()


def timed(action: Any, *arguments: Any) -> tuple[Any, float]:
    begun_s = time.perf_counter()
    return action(*arguments), time.perf_counter() - begun_s


class TestBounds:
    def test_of_an_empty_topic(self, client: Client, topic: str) -> None:
        client.producer(topic).close()
        bounds = client.tail(topic).bounds()
        assert bounds.is_empty
        assert (bounds.last.entry_id, bounds.before_first.entry_id) == (-1, -1)

    def test_with_the_batch_index_of_the_last_message(self, client: Client, topic: str) -> None:
        stored = publish(client, topic, 3)
        bounds = client.tail(topic).bounds()
        assert (bounds.before_first, bounds.last) == (MessageId(stored[0].ledger_id, -1), stored[2])
        stored = publish(client, topic, 2, batch=4)
        tail = client.tail(topic)
        assert tail.bounds().last == tail.last() == MessageId(stored[0].ledger_id, 4, -1, 3, 4)

    def test_of_a_partition(self, running: TestBroker, client: Client, topic: str) -> None:
        httpx.put(f"{running.http_url}/admin/v2/persistent/public/default/{topic}/partitions", json=2)
        tail = client.tail(f"{topic}-partition-1")  # unused so far
        assert tail.bounds().is_empty
        with client.producer(f"{topic}-partition-1") as producer:
            stored = producer.send(b"1")
        assert tail.bounds().last == stored
        assert stored.partition == 1

    def test_deleted_entries_are_before_the_first(self, running: TestBroker, client: Client, topic: str) -> None:
        stored = publish(client, topic, 5)
        tail = client.tail(topic)
        assert tail.bounds().before_first.entry_id == -1
        running.run(lambda: running.server.broker.topics[f"persistent://public/default/{topic}"].truncate())
        assert tail.bounds().is_empty
        [later] = publish(client, topic, 1)
        bounds = tail.bounds()
        assert stored[-1].position <= bounds.before_first.position < later.position
        assert bounds.last == later

    def test_a_missing_topic_is_not_created(self, client: Client, topic: str) -> None:
        for name in (topic, f"{topic}-partition-0"):
            with pytest.raises(NotFound, match=topic):
                client.tail(name)
        assert client.topics("public/default", f".*/{topic}") == []
        with pytest.raises(InvalidArgument, match="not persistent"):
            client.tail("non-persistent://public/default/t")


class TestWaiting:
    def test_existing_messages_are_reported_at_once(self, client: Client, topic: str) -> None:
        stored = publish(client, topic, 3)
        tail = client.tail(topic)
        assert tail.wait(EARLIEST, 0.01)
        assert tail.wait(stored[1], 0.01)
        assert not tail.wait(stored[2], 0.01)
        assert not tail.wait(MessageId(stored[2].ledger_id, 99), 0.01)

    def test_it_returns_as_soon_as_a_message_is_stored(self, client: Client, topic: str) -> None:
        with client.producer(topic) as producer:
            after = EARLIEST
            tail = client.tail(topic)
            for _ in range(3):
                soon(producer.send, b"1")
                found, seconds = timed(tail.wait, after, PATIENCE_S)
                assert found
                assert 0.1 < seconds < 5
                after = tail.last()

    def test_the_rest_of_a_batch_is_reported(self, client: Client, topic: str) -> None:
        [last] = publish(client, topic, 1, batch=3)
        position = last.position
        assert client.tail(topic).wait(MessageId(*position, -1, 1, 3), 0.01)
        assert not client.tail(topic).wait(MessageId(*position, -1, 2, 3), 0.01)
        assert not client.tail(topic).wait(MessageId(*position), 0.01)
        tail = client.tail(topic)
        assert not tail.wait(last, 0.01)
        assert tail.wait(MessageId(*position, -1, 0, 3), 0.01)

    def test_any_position_finds_everything(self, client: Client, topic: str) -> None:
        stored = publish(client, topic, 10)
        tail = client.tail(topic)
        for index in (5, 9, 0, 9, 8, 9):
            assert tail.wait(stored[index], 0.02) == (index < 9)
        with client.producer(topic) as producer:
            soon(producer.send, b"1")
            assert tail.wait(stored[9], PATIENCE_S)
            assert tail.wait(stored[9], PATIENCE_S)

    def test_with_few_messages_nothing_is_reopened(self, client: Client, topic: str, commands: list[str]) -> None:
        with client.producer(topic) as producer:
            tail = client.tail(topic)
            after = producer.send(b"0")
            assert not tail.wait(after, 0.01)
            commands.clear()
            for _ in range(5):
                after = producer.send(b"1")
                assert tail.wait(MessageId(after.ledger_id, after.entry_id - 1), PATIENCE_S)
                assert not tail.wait(after, 0.01)
            assert commands == ["FLOW"] * 5

    def test_batches_do_not_exhaust_the_permits(self, client: Client, topic: str) -> None:
        client.producer(topic).close()
        tail = client.tail(topic)
        after = EARLIEST
        for _ in range(3):
            assert not tail.wait(after, 0.01)
            [after] = publish(client, topic, 1, batch=10)
            assert tail.wait(MessageId(after.ledger_id, after.entry_id - 1), PATIENCE_S)

    def test_deleted_messages_are_not_reported(self, running: TestBroker, client: Client, topic: str) -> None:
        publish(client, topic, 3)
        tail = client.tail(topic)
        assert tail.wait(EARLIEST, 0.1)
        running.run(lambda: running.server.broker.topics[f"persistent://public/default/{topic}"].truncate())
        assert tail.bounds().is_empty
        assert not tail.wait(EARLIEST, 0.05)
        soon(publish, client, topic, 1)
        assert tail.wait(EARLIEST, PATIENCE_S)

    def test_latest_is_no_position(self, client: Client, topic: str) -> None:
        publish(client, topic, 1)
        with pytest.raises(InvalidArgument, match="LATEST"):
            client.tail(topic).wait(LATEST, 0.01)


class TestSeveral:
    def test_topics_with_new_messages_are_reported(self, client: Client, topic: str) -> None:
        names = [f"{topic}-{number}" for number in range(5)]
        stored = {name: publish(client, name, 1)[0] for name in names}
        tails = [client.tail(name) for name in names]
        watched = [(tail, stored[name]) for tail, name in zip(tails, names, strict=True)]
        assert client.wait_any(watched, 0.02) == []
        soon(publish, client, names[3], 1)
        assert client.wait_any(watched, PATIENCE_S) == [tails[3]]
        assert client.wait_any([(tail, EARLIEST) for tail in tails], 0) == tails

    def test_an_empty_watch_reports_nothing(self, client: Client) -> None:
        assert client.wait_any([], 0.01) == []

    def test_many_idle_topics_report_nothing(self, client: Client, topic: str, commands: list[str]) -> None:
        names = [f"{topic}-{number}" for number in range(200)]
        producers = [client.producer(name) for name in names]
        watched = [(client.tail(name), EARLIEST) for name in names]
        assert client.wait_any(watched, 0.5) == []
        commands.clear()
        for _ in range(5):
            assert client.wait_any(watched, 0.02) == []
        assert commands == []
        soon(producers[77].send, b"1")
        assert [tail.topic for tail in client.wait_any(watched, PATIENCE_S)] == [watched[77][0].topic]


class TestErrors:
    def test_a_lost_connection_is_reopened(self, running: TestBroker, client: Client, topic: str) -> None:
        with client.producer(topic) as producer:
            after = producer.send(b"1")
            tail = client.tail(topic)
            soon(drop_connections, running)
            assert not tail.wait(after, 1)
            drop_connections(running)
            assert tail.last() == tail.bounds().last == after
            soon(producer.send, b"2")
            assert tail.wait(after, PATIENCE_S)

    def test_a_deleted_topic_is_an_error(self, running: TestBroker, client: Client, topic: str) -> None:
        [after] = publish(client, topic, 1)
        tail = client.tail(topic)
        url = f"{running.http_url}/admin/v2/persistent/public/default/{topic}?force=true"
        soon(httpx.delete, url)
        with pytest.raises(NotFound, match=topic):
            tail.wait(after, PATIENCE_S)
        with pytest.raises(NotFound, match=topic):
            tail.bounds()

    def test_a_recreated_topic_has_more(self, running: TestBroker, client: Client, topic: str) -> None:
        [after] = publish(client, topic, 1)
        tail = client.tail(topic)
        assert not tail.wait(after, 0.01)
        httpx.delete(f"{running.http_url}/admin/v2/persistent/public/default/{topic}?force=true").raise_for_status()
        [anew] = publish(client, topic, 1)
        assert anew.ledger_id > after.ledger_id
        assert tail.wait(after, PATIENCE_S)
        assert tail.bounds().last == anew

    def test_a_terminated_topic_reports_nothing(self, running: TestBroker, client: Client, topic: str) -> None:
        [after] = publish(client, topic, 1)
        httpx.post(f"{running.http_url}/admin/v2/persistent/public/default/{topic}/terminate")
        assert not client.tail(topic).wait(after, 0.1)

    def test_a_broker_unreachable_for_too_long_is_an_error(self) -> None:
        with broker() as running:
            client = Client(running.service_url, reconnect_timeout_s=1)
            [after] = publish(client, "t", 1)
            tail = client.tail("t")
        with contextlib.closing(client), pytest.raises(ConnectionLost, match=r"127\.0\.0\.1"):
            for _ in range(100):  # not the limit of a single call
                assert not tail.wait(after, 0.2)

    def test_closing_it_or_the_client_ends_the_wait(self, running: TestBroker, client: Client, topic: str) -> None:
        [after] = publish(client, topic, 1)
        tail = client.tail(topic)
        soon(tail.close)
        with pytest.raises(Closed):
            tail.wait(after, PATIENCE_S)
        with Client(running.service_url) as other:
            tail = other.tail(topic)
        with pytest.raises(Closed):
            tail.wait(after, 0.1)


def test_a_waiting_reader_has_no_backlog_that_alarms(running: TestBroker, client: Client, topic: str) -> None:
    stored = publish(client, topic, 5)
    with client.tail(topic) as tail, client.consumer(topic, "own"):
        assert tail.wait(MessageId(stored[0].ledger_id, -1), PATIENCE_S)
        base = f"{running.http_url}/admin/v2/persistent/public/default/{topic}"
        assert httpx.get(f"{base}/subscriptions").json() == ["own"]
        assert list(httpx.get(f"{base}/stats").json()["subscriptions"]) == ["own"]
        of_topic = [
            line for line in httpx.get(f"{running.http_url}/metrics/").text.splitlines() if f'/{topic}"' in line
        ]
        assert any(line.startswith("pulsar_subscription_back_log{") for line in of_topic)
        assert not [line for line in of_topic if "magnetar-" in line]
