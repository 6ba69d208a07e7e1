"""Topics of a namespace, schemas of a topic, and positions of times: over the binary protocol and HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from magnetar.client import EARLIEST, Client, MessageId
from magnetar.client.errors import ConnectionLost, InvalidArgument, InvalidName, NotFound, ServerFailure
from magnetar.client.schema import Schema, chosen_topics
from magnetar.testing import TestBroker
from tests.client.consume.test_entry_reader import publish

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'


@pytest.fixture(params=["binary", "http", "admin"])
def asked(request: pytest.FixtureRequest, running: TestBroker) -> Iterator[Client]:
    """The same queries over all transports."""
    url = running.http_url if request.param == "http" else running.service_url
    with Client(url, admin_url=running.http_url if request.param == "admin" else None) as client:
        yield client


def upload(running: TestBroker, topic: str, type_: str, schema: str, **properties: str) -> int:
    answer = httpx.post(
        f"{running.http_url}/admin/v2/schemas/public/default/{topic}/schema",
        json={"type": type_, "schema": schema, "properties": properties},
    )
    answer.raise_for_status()
    number: int = answer.json()["version"]["version"]
    return number


class TestTopics:
    def test_all_topics_of_a_namespace_with_their_full_names(
        self, running: TestBroker, client: Client, asked: Client, topic: str
    ) -> None:
        httpx.put(f"{running.http_url}/admin/v2/persistent/public/default/{topic}-p/partitions", json=2)
        with client.producer(f"{topic}-p") as producer:
            producer.send(b"1")
        with client.producer(topic), client.producer(f"non-persistent://public/default/{topic}"):
            found = asked.topics("public/default", f"public/default/{topic}(-p)?")
            assert found == [
                f"non-persistent://public/default/{topic}",
                f"persistent://public/default/{topic}",
                f"persistent://public/default/{topic}-p-partition-0",
                f"persistent://public/default/{topic}-p-partition-1",
            ]
            assert set(found) <= set(asked.topics("public/default"))
            assert asked.topics("public/default", f"persistent://public/default/{topic}") == [found[1]]
            assert asked.topics("public/default", topic) == []  # the whole name

    def test_invalid_queries(self, asked: Client) -> None:
        with pytest.raises(InvalidName, match="not of the form tenant/namespace"):
            asked.topics("public")
        with pytest.raises(InvalidArgument, match="not a regular expression"):
            asked.topics("public/default", "(")

    def test_a_missing_namespace(self, asked: Client) -> None:
        assert asked.topics("public/absent") == []

    def test_internal_topics_are_left_out(self) -> None:
        names = [
            "persistent://a/b/__change_events",
            "persistent://a/b/__change_events-partition-0",
            "persistent://a/b/__transaction_buffer_snapshot",
            "persistent://a/b/t-sub__transaction_pending_ack",
            "persistent://a/b/t",
        ]
        assert chosen_topics(names, None) == ["persistent://a/b/t"]

    def test_an_invalid_name(self) -> None:
        with pytest.raises(ServerFailure, match="an illegal name"):
            chosen_topics(["persistent://a"], None)


class TestSchemas:
    def test_the_latest_and_each_version(self, running: TestBroker, asked: Client, topic: str) -> None:
        upload(running, topic, "AVRO", RECORD, owner="me")
        upload(running, topic, "AVRO", WIDER)
        first, second = (number.to_bytes(8) for number in (0, 1))
        newest = asked.schema(topic)
        assert newest is not None
        assert (newest.type, newest.data.decode(), newest.version) == ("AVRO", WIDER, second)
        old = asked.schema(topic, first)
        assert old is not None
        assert (old.data.decode(), old.version, old.properties["owner"]) == (RECORD, first, "me")
        assert asked.schema(topic, second) == newest
        assert asked.schema(f"{topic}-partition-3", second) == newest

    @pytest.mark.parametrize("type_", ["STRING", "BOOLEAN", "INT64", "LOCAL_DATE_TIME", "BYTES"])
    def test_primitive_schemas(self, running: TestBroker, asked: Client, topic: str, type_: str) -> None:
        upload(running, topic, type_, "")
        schema = asked.schema(topic)
        assert schema is not None
        assert schema.type == ("NONE" if type_ == "BYTES" else type_)
        assert schema.data == b""

    def test_key_and_value(self, running: TestBroker, client: Client, topic: str) -> None:
        types = {"key.schema.type": "STRING", "value.schema.type": "JSON"}
        upload(running, topic, "KEY_VALUE", f'{{"key":"","value":{RECORD}}}', **types)
        by_protocol = client.schema(topic)
        with Client(running.http_url) as by_http:
            assert by_http.schema(topic) == by_protocol
        assert isinstance(by_protocol, Schema)
        assert by_protocol.type == "KEY_VALUE"
        assert by_protocol.data == bytes(4) + len(RECORD).to_bytes(4) + RECORD.encode()

    def test_none_without_a_schema(self, running: TestBroker, client: Client, asked: Client, topic: str) -> None:
        assert asked.schema(topic) is None
        client.producer(topic).close()
        assert asked.schema(topic) is None
        upload(running, topic, "AVRO", RECORD)
        assert asked.schema(topic, (7).to_bytes(8)) is None
        with pytest.raises(InvalidArgument, match="instead of 8"):
            asked.schema(topic, b"\0")


class TestPositions:
    def test_the_position_before_the_first_message_of_a_time(self, client: Client, topic: str) -> None:
        times, stored = [], []
        with client.producer(topic) as producer:
            for _ in range(4):
                stored.append(producer.send(b"1"))
                with client.reader(topic, stored[-1], start_inclusive=True) as reader:
                    times.append(reader.read(10).publish_time_ms)
                time.sleep(0.005)
        before = MessageId(stored[0].ledger_id, -1)
        assert client.position_at(topic, 0) == before
        assert client.position_at(topic, times[0]) == before
        for index in (1, 2, 3):
            assert client.position_at(topic, times[index]) == stored[index - 1]
            assert client.position_at(topic, times[index] + 1) == stored[index]
        assert client.position_at(topic, times[3] + 10**6) == stored[3]

    @pytest.mark.parametrize("time_ms", [-1, 1 << 63, 1.5, True, "now"])
    def test_an_invalid_time(self, client: Client, time_ms: Any) -> None:
        with pytest.raises(InvalidArgument, match="time_ms"):
            client.position_at("t", time_ms)

    def test_nothing_is_left(self, running: TestBroker, client: Client, topic: str) -> None:
        publish(client, topic, 3)
        client.position_at(topic, 5)
        client.first_after(topic, EARLIEST)
        client.tail(topic).close()
        client.get_partitions_for_topic(topic)  # its response follows the earlier commands
        url = f"{running.http_url}/admin/v2/persistent/public/default/{topic}/subscriptions"
        assert httpx.get(url).json() == []

    def test_the_first_entry_after_a_position(self, client: Client, topic: str) -> None:
        stored = publish(client, topic, 3)
        ledger_id = stored[0].ledger_id
        assert client.first_after(topic, EARLIEST) == stored[0]
        assert client.first_after(topic, MessageId(ledger_id, -1)) == stored[0]
        assert client.first_after(topic, MessageId(ledger_id - 1, 5)) == stored[0]
        assert client.first_after(topic, stored[0]) == stored[1]
        assert client.first_after(topic, stored[2]) is None
        assert client.first_after(topic, MessageId(ledger_id, 99)) is None
        assert client.first_after(topic, MessageId(ledger_id + 1, 0)) is None

    def test_a_missing_topic(self, client: Client, topic: str) -> None:
        with pytest.raises(NotFound, match=topic):
            client.position_at(topic, 0)
        with pytest.raises(NotFound, match=topic):
            client.first_after(topic, EARLIEST)
        assert client.topics("public/default", f".*/{topic}") == []


class TestAdminUrl:
    def test_it_must_be_http(self, running: TestBroker) -> None:
        with pytest.raises(InvalidArgument, match="admin url"):
            Client(running.service_url, admin_url=running.service_url)

    def test_partitions_are_queried_there(self, running: TestBroker, client: Client, topic: str) -> None:
        publish(client, topic, 1)
        with Client(running.service_url, admin_url="http://127.0.0.1:1") as astray:
            for ask in (lambda: astray.get_partitions_for_topic(topic), lambda: astray.topics("public/default")):
                with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
                    ask()
            assert astray.tail(topic).last().entry_id == 0  # messages use the binary protocol
