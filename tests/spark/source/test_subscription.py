"""`predefinedSubscription` on a broker: it follows the stream and never gets ahead of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from magnetar.client import Client
from magnetar.client.errors import ConsumerBusy
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.spark.source.offsets import Offsets
from magnetar.spark.source.subscription import StreamSubscription, SubscriptionCursor
from magnetar.testing import TestBroker, broker

T = "persistent://public/default/t"


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def client(running: TestBroker) -> Iterator[Client]:
    with Client(running.service_url, operation_timeout_s=2) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: Client) -> str:
    name = f"persistent://public/default/{request.node.name.partition('[')[0]}"
    with client.producer(name, batching=False) as producer:
        for _ in range(10):
            producer.send(b"x")
    return name


def cursors(client: Client, name: str = "follower", busy_s: float | None = None) -> StreamSubscription:
    def opened(topic: str, initial: MessageId) -> SubscriptionCursor:
        return client.cursor(topic, name, initial_position=initial, busy_s=busy_s)

    return StreamSubscription(opened)


def first(client: Client, topic: str) -> MessageId:
    return client.tail(topic).bounds().before_first


def at(client: Client, topic: str, entry_id: int, batch_index: int = -1) -> Offsets:
    return Offsets({topic: MessageId(first(client, topic).ledger_id, entry_id, -1, batch_index)})


def position(running: TestBroker, topic: str, name: str = "follower") -> int:
    """The next entry of the subscription, as a consumer finds it."""
    with Client(running.service_url) as other, other.consumer(topic, name) as consumer:
        return consumer.receive(timeout_s=5).id.entry_id


def test_a_new_subscription_starts_after_the_last_message(client: Client, topic: str) -> None:
    assert cursors(client).positions([topic])[topic].entry_id == 9


def test_an_existing_subscription_returns_its_position(client: Client, topic: str) -> None:
    with client.consumer(topic, "follower", initial_position=EARLIEST) as consumer:
        for _ in range(4):
            message = consumer.receive(timeout_s=5)
        consumer.acknowledge_cumulative(message)

    assert cursors(client).positions([topic])[topic].entry_id == 3


def test_only_processed_messages_are_acknowledged(running: TestBroker, client: Client, topic: str) -> None:
    subscription = cursors(client)

    subscription.acknowledge(at(client, topic, 4))
    client.close()

    assert position(running, topic) == 5


def test_a_new_subscription_at_a_start_position_keeps_later_messages(
    running: TestBroker, client: Client, topic: str
) -> None:
    cursors(client).acknowledge(at(client, topic, -1))
    client.close()

    assert position(running, topic) == 0


def test_a_partly_processed_entry_is_not_acknowledged(running: TestBroker, client: Client, topic: str) -> None:
    cursors(client).acknowledge(at(client, topic, 4, batch_index=1))
    client.close()

    assert position(running, topic) == 4


def test_it_never_moves_back(running: TestBroker, client: Client, topic: str) -> None:
    cursors(client).acknowledge(at(client, topic, 6))
    client.close()
    with Client(running.service_url) as again:
        subscription = cursors(again)
        subscription.acknowledge(at(again, topic, 2))
        subscription.acknowledge(at(again, topic, 1))

    assert position(running, topic) == 7


def test_a_lost_connection_is_reopened(running: TestBroker, client: Client, topic: str) -> None:
    subscription = cursors(client)
    subscription.acknowledge(at(client, topic, 1))
    later = at(client, topic, 2)
    running.run(lambda: [session.close() for session in list(running.server.connections)])

    subscription.acknowledge(later)
    client.close()

    assert position(running, topic) == 3


def test_a_deleted_topic_is_ignored(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    cursors(client).acknowledge(Offsets({T: MessageId(99, 3)}))

    assert f"{T} does not exist" in caplog.text


def test_a_second_consumer_of_the_name_is_an_error(running: TestBroker, client: Client, topic: str) -> None:
    cursors(client).positions([topic])

    with Client(running.service_url, operation_timeout_s=600) as other, pytest.raises(ConsumerBusy) as refused:
        cursors(other, busy_s=0.2).positions([topic])

    assert refused.value.text.startswith(f"subscription 'follower' of {topic} is in use: ")


def test_a_former_consumer_has_a_moment_to_leave(running: TestBroker, client: Client, topic: str) -> None:
    former = client.cursor(topic, "follower", initial_position=EARLIEST)
    former.position()
    leaving = threading.Timer(0.3, former.close)
    leaving.start()

    with Client(running.service_url, operation_timeout_s=600) as other:
        assert cursors(other, busy_s=120).positions([topic])[topic].entry_id == -1
    leaving.join()


def test_a_stream_that_lost_its_connection_waits_longer_than_a_new_one(
    running: TestBroker, client: Client, topic: str
) -> None:
    with Client(running.service_url, operation_timeout_s=120) as other:
        subscription = cursors(other, busy_s=0)
        subscription.acknowledge(at(other, topic, 1))
        later = at(other, topic, 2)
        squatter = _taken_over(running, client, topic)
        leaving = threading.Timer(0.5, squatter.close)
        leaving.start()

        subscription.acknowledge(later)
        leaving.join()

    assert position(running, topic) == 3


def _taken_over(running: TestBroker, client: Client, topic: str) -> SubscriptionCursor:
    """Cuts every connection; another client opens the subscription before its stream does."""
    running.run(lambda: [session.close() for session in list(running.server.connections)])
    squatter = client.cursor(topic, "follower")
    squatter.position()
    return squatter


class CountedCursor:
    def __init__(self) -> None:
        self.acknowledged: list[MessageId] = []

    def position(self) -> MessageId:
        return MessageId(1, -1)

    def acknowledge_up_to(self, position: MessageId) -> None:
        self.acknowledged.append(position)

    def close(self) -> None: ...


def test_a_position_is_not_acknowledged_twice() -> None:
    cursor = CountedCursor()
    opened: list[MessageId] = []
    subscription = StreamSubscription(lambda topic, initial: (opened.append(initial), cursor)[1])

    for entry_id in (-1, -1, 3, 3, 2, 5, 5):
        subscription.acknowledge(Offsets({T: MessageId(1, entry_id)}))

    assert [each.entry_id for each in cursor.acknowledged] == [3, 5]
    assert opened == [EARLIEST]
    assert LATEST not in opened


def test_a_ledger_is_acknowledged_when_the_next_one_starts() -> None:
    cursor = CountedCursor()
    subscription = StreamSubscription(lambda topic, initial: cursor)

    for position in ((1, -1), (1, 3), (2, -1), (2, -1), (1, 9), (2, 0)):
        subscription.acknowledge(Offsets({T: MessageId(*position)}))

    assert [each.position for each in cursor.acknowledged] == [(1, 3), (2, -1), (2, 0)]
