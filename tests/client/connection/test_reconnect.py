"""Lost connections and restarting brokers: nothing sent is lost, nothing is read twice or skipped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from magnetar.client import EARLIEST, LATEST, Client, MessageId
from magnetar.client.errors import ConnectionLost, NotFound, ProtocolBroken, Timeout
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from tests.client.fake_broker import Command, FakeBroker, fake_broker, metadata_response
from tests.compat.stage import PATIENCE_MS, numbered
from tests.crash.killable import KillableBroker

PATIENCE_S = PATIENCE_MS / 1000


def drop_connections(running: TestBroker) -> None:
    """Closes every connection, like a network failure."""

    def drop() -> None:
        for connection in list(running.server.connections):
            connection._transport.abort()  # type: ignore[union-attr]

    running.run(drop)


def read(client: Client, topic: str, count: int, start: MessageId = EARLIEST) -> list[bytes]:
    with client.reader(topic, start) as reader:
        return [reader.read(PATIENCE_S).value for _ in range(count)]


def test_a_reader_continues_after_the_last_received_message(running: TestBroker, client: Client, topic: str) -> None:
    with client.producer(topic, batch_messages_max=3) as producer, client.reader(topic) as reader:
        got: list[bytes] = []
        for round_number in range(5):
            for payload in numbered(10, f"r{round_number}-"):
                producer.send_async(payload)
            producer.flush()
            got += [reader.read(PATIENCE_S).value for _ in range(7)]
            drop_connections(running)
        got += [reader.read(PATIENCE_S).value for _ in range(15)]
        assert got == [payload for number in range(5) for payload in numbered(10, f"r{number}-")]
        with pytest.raises(Timeout):
            reader.read(0.1)


def test_latest_keeps_its_position_before_the_first_message(running: TestBroker, client: Client, topic: str) -> None:
    """Messages published while a reader is disconnected are not skipped."""
    with client.producer(topic) as producer:
        producer.send(b"old")
        with client.reader(topic, LATEST) as reader:
            drop_connections(running)
            producer.send(b"new")
            assert reader.read(PATIENCE_S).value == b"new"


def test_pending_messages_are_resent_in_order(running: TestBroker, client: Client, topic: str) -> None:
    with client.producer(topic, name="me", batch_messages_max=5, pending_max=10_000) as producer:
        futures = []
        for index, payload in enumerate(numbered(2000)):
            futures.append(producer.send_async(payload))
            if index % 400 == 200:
                drop_connections(running)
        producer.flush()
        assert all(future.result() for future in futures)
    values = []
    with client.reader(topic, EARLIEST) as reader:
        while reader.has_next():
            values.append(reader.read(PATIENCE_S).value)
    # Without deduplication a message whose receipt was lost is stored again; none is missing or reordered.
    assert list(dict.fromkeys(values)) == numbered(2000)


def test_with_deduplication_every_message_is_stored_once(topic: str) -> None:
    with broker(brokerDeduplicationEnabled=True) as running, Client(running.service_url) as client:
        with client.producer(topic, name="me", batch_messages_max=5, pending_max=10_000) as producer:
            for index, payload in enumerate(numbered(2000)):
                producer.send_async(payload)
                if index % 400 == 200:
                    drop_connections(running)
        assert read(client, topic, 2000) == numbered(2000)
        with client.reader(topic, LATEST) as reader:
            assert not reader.has_next()


def test_a_request_waits_for_the_connection(running: TestBroker, client: Client, topic: str) -> None:
    with client.producer(topic) as producer, client.reader(topic, EARLIEST) as reader:
        producer.send(b"x")
        reader.read(PATIENCE_S)
        drop_connections(running)
        assert not reader.has_next()


@contextlib.contextmanager
def killable(data: Path) -> Iterator[KillableBroker]:
    running = KillableBroker(data)
    running.start()
    try:
        yield running
    finally:
        running.kill()


def test_a_killed_and_restarted_broker(tmp_path: Path, topic: str) -> None:
    with killable(tmp_path) as server, Client(server.service_url) as client:
        reader = client.reader(topic, EARLIEST, create_topic=True)
        producer = client.producer(topic, name="me")
        for payload in numbered(20, "a"):
            producer.send_async(payload)
        producer.flush()
        assert [reader.read(PATIENCE_S).value for _ in range(15)] == numbered(20, "a")[:15]
        server.kill()
        futures = [producer.send_async(payload) for payload in numbered(20, "b")]
        time.sleep(0.3)  # the client keeps retrying meanwhile
        assert not any(future.done() for future in futures)
        server.start()
        ids = [future.result(PATIENCE_S) for future in futures]
        assert ids == sorted(ids)
        rest = [reader.read(PATIENCE_S).value for _ in range(25)]
        assert rest == [*numbered(20, "a")[15:], *numbered(20, "b")]
        assert client.get_partitions_for_topic(topic, False) == [f"persistent://public/default/{topic}"]


def test_it_gives_up_in_time_and_names_the_address(tmp_path: Path, topic: str) -> None:
    with killable(tmp_path) as server, Client(server.service_url, reconnect_timeout_s=0.5) as client:
        reader = client.reader(topic, EARLIEST, create_topic=True)
        producer = client.producer(topic)
        producer.send(b"x")
        assert reader.read(PATIENCE_S).value == b"x"
        server.kill()
        address = server.service_url.removeprefix("pulsar://")
        with pytest.raises(ConnectionLost, match=rf"the producer of .* given up after 0\.5 s .*connect to {address}"):
            producer.send(b"y")
        with pytest.raises(
            ConnectionLost, match=rf"reading .*{topic} was given up after 0\.5 s .*connect to {address}"
        ):
            reader.read(PATIENCE_S)
        with pytest.raises(ConnectionLost):
            reader.has_next()


def test_a_topic_deleted_meanwhile_ends_the_reader(running: TestBroker, client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(b"x")
    with client.reader(topic, EARLIEST) as reader:
        reader.read(PATIENCE_S)
        url = f"{running.http_url}/admin/v2/persistent/public/default/{topic}?force=true"
        httpx.delete(url).raise_for_status()
        with pytest.raises(NotFound):
            reader.read(PATIENCE_S)


def test_the_broker_may_close_only_a_producer() -> None:
    """Apache Pulsar does so when it moves a topic: the connection stays, the producer is reopened."""

    def close_once(broker: FakeBroker, command: Command) -> bytes | None:
        if command.type == Command.SEND and broker.types().count("SEND") == 1:
            close = pb.CommandCloseProducer(producer_id=command.send.producer_id, request_id=0)
            return encode_frame(Command(type=Command.CLOSE_PRODUCER, close_producer=close))
        return None

    with fake_broker(close_once) as fake, Client(fake.url) as client:
        assert client.producer("t").send(b"x") == MessageId(1, 0)
        assert fake.types() == [
            *("CONNECT", "PARTITIONED_METADATA", "LOOKUP", "PRODUCER", "SEND"),
            *("LOOKUP", "PRODUCER", "SEND"),
        ]
        first, second = (command.producer for command in fake.received if command.type == Command.PRODUCER)
        assert (first.epoch, second.epoch) == (0, 1)
        assert (first.producer_name, second.producer_name) == ("", "fake")
        assert not second.user_provided_producer_name


def test_a_transient_send_error_is_retried() -> None:
    def fail_once(broker: FakeBroker, command: Command) -> Command | None:
        if command.type == Command.SEND and broker.types().count("SEND") == 1:
            refusal = pb.CommandSendError(
                producer_id=command.send.producer_id, sequence_id=0, error=pb.PersistenceError, message="disk"
            )
            return Command(type=Command.SEND_ERROR, send_error=refusal)
        return None

    with fake_broker(fail_once) as fake, Client(fake.url) as client:
        assert client.producer("t").send(b"x") == MessageId(1, 0)
        assert fake.types()[-4:] == ["CLOSE_PRODUCER", "LOOKUP", "PRODUCER", "SEND"]


def test_lost_receipts_are_detected() -> None:
    """The receipt of the second message precedes that of the first: the producer is reopened."""

    def skip(broker: FakeBroker, command: Command) -> bytes | None:
        is_first = command.type == Command.SEND and broker.types().count("SEND") == 1
        return b"" if is_first else None

    with fake_broker(skip) as fake, Client(fake.url) as client:
        producer = client.producer("t", batching=False)
        futures = [producer.send_async(b"x") for _ in range(2)]
        assert [future.result(PATIENCE_S).entry_id for future in futures] == [1, 2]
        assert [command.send.sequence_id for command in fake.received if command.type == Command.SEND] == [0, 1, 0, 1]


def test_a_broken_frame_closes_the_connection_with_a_reason() -> None:
    def rubbish(broker: FakeBroker, command: Command) -> bytes | None:
        return b"\xff" * 100 if command.type == Command.PARTITIONED_METADATA else None

    with (
        fake_broker(rubbish) as fake,
        Client(fake.url) as client,
        pytest.raises(ProtocolBroken, match=rf"the connection to {fake.address} was closed: .*frame of 4294967295"),
    ):
        client.get_partitions_for_topic("t")


def test_a_request_is_retried_after_a_lost_connection() -> None:
    def hang_up_once(broker: FakeBroker, command: Command) -> Command | bytes | None:
        if command.type == Command.PARTITIONED_METADATA:
            if broker.types().count("PARTITIONED_METADATA") == 1:
                broker.drop()
                return b""
            return metadata_response(command, 0)
        return None

    with fake_broker(hang_up_once) as fake, Client(fake.url) as client:
        assert client.get_partitions_for_topic("t") == ["persistent://public/default/t"]
        assert fake.types().count("PARTITIONED_METADATA") == 2


def test_a_broker_that_always_disconnects_is_an_error_in_time() -> None:
    def hang_up(broker: FakeBroker, command: Command) -> bytes | None:
        if command.type == Command.PARTITIONED_METADATA:
            broker.drop()
            return b""
        return None

    with (
        fake_broker(hang_up) as fake,
        Client(fake.url, operation_timeout_s=0.5) as client,
        pytest.raises(ConnectionLost, match=f"the connection to {fake.address} was closed"),
    ):
        client.get_partitions_for_topic("t")


def test_a_silent_broker_is_disconnected() -> None:
    def mute(broker: FakeBroker, command: Command) -> bytes | None:
        return b"" if command.type in (Command.PING, Command.SEND) else None

    with fake_broker(mute) as fake, Client(fake.url, keepalive_s=0.1) as client:
        future = client.producer("t", send_timeout_s=5).send_async(b"x")
        deadline = time.monotonic() + PATIENCE_S
        while fake.types().count("PRODUCER") < 2:
            assert time.monotonic() < deadline, fake.types()
            time.sleep(0.01)
        assert "PING" in fake.types()
        assert not future.done()
        fake._answer = lambda broker, command: None
        future.result(PATIENCE_S)


def test_closing_while_reconnecting(tmp_path: Path, topic: str) -> None:
    before = set(threading.enumerate())
    with killable(tmp_path) as server:
        client = Client(server.service_url)
        reader = client.reader(topic, EARLIEST, create_topic=True)
        server.kill()
        with pytest.raises(Timeout):
            reader.read(0.2)
        client.close()
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name == "magnetar-client"]
