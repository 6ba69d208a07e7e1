"""Counting, creating and growing topics of another cluster, for geo-replication."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import urlsplit

import pytest

from magnetar.client import AsyncClient, Client
from magnetar.client.errors import (
    Conflict,
    InvalidArgument,
    InvalidName,
    NamespaceNotFound,
    NotAllowed,
    NotFound,
    NotSupported,
)
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from tests.client.fake_broker import Command, FakeBroker, fake_broker, metadata_failure

_names = count()


@pytest.fixture(params=["pulsar and REST", "REST"])
def remote(running: TestBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    url, admin = (running.service_url, running.http_url) if "pulsar" in request.param else (running.http_url, None)
    with Client(url, admin_url=admin, operation_timeout_s=10) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/remote {next(_names)}"


@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_gr2_a_topic_is_created_with_the_requested_partitions(remote: Client, topic: str, partitions: int) -> None:
    assert remote.partition_count(topic) is None
    assert remote.partition_count(topic) is None, "asking creates nothing, though the broker allows auto-creation"
    remote.create_topic(topic, partitions)
    assert remote.partition_count(topic) == partitions


@pytest.mark.parametrize("there", [0, 2])
@pytest.mark.parametrize("wanted", [0, 2, 3])
def test_gr4_an_existing_topic_is_a_conflict_and_unchanged(remote: Client, topic: str, there: int, wanted: int) -> None:
    remote.create_topic(topic, there)
    with pytest.raises(Conflict, match=r"creating persistent://public/default/remote .*already exists") as raised:
        remote.create_topic(topic, wanted)
    assert raised.value.status == 409
    assert remote.partition_count(topic) == there


def test_gr2_partitions_are_added(remote: Client, topic: str) -> None:
    remote.create_topic(topic, 3)
    remote.grow_topic(topic, 5)
    remote.grow_topic(topic, 5)
    assert remote.partition_count(topic) == 5
    with pytest.raises(NotAllowed, match=r"growing .* to 4 partitions.*less than the current partitions 5"):
        remote.grow_topic(topic, 4)
    assert remote.partition_count(topic) == 5


def test_partitions_are_added_to_existing_partitioned_topics_only(remote: Client, topic: str) -> None:
    with pytest.raises(Conflict, match="is not the partitioned topic"):
        remote.grow_topic(topic, 2)
    remote.create_topic(topic)
    with pytest.raises(Conflict, match="is not the partitioned topic"):
        remote.grow_topic(topic, 2)
    assert remote.partition_count(topic) == 0


@pytest.mark.parametrize("missing", ["public/no-such", "no-such/at-all"])
@pytest.mark.parametrize("partitions", [0, 2])
def test_a_missing_namespace_is_not_a_missing_topic(remote: Client, missing: str, partitions: int) -> None:
    with pytest.raises(NamespaceNotFound, match=f"namespace {missing} does not exist"):
        remote.partition_count(f"{missing}/t")
    with pytest.raises(NamespaceNotFound, match=f"namespace {missing} does not exist"):
        remote.create_topic(f"{missing}/t", partitions)


@pytest.mark.parametrize("name", ["namespace", "tenant not found", "Namespace not found"])
def test_a_topic_name_may_look_like_a_missing_namespace(remote: Client, name: str) -> None:
    assert remote.partition_count(f"{name} {next(_names)}") is None


def test_invalid_arguments_are_rejected_before_a_request(remote: Client) -> None:
    for partitions in (-1, True, 1.5, 1 << 31):
        with pytest.raises(InvalidArgument, match=r"partitions .* is not a number between 0 and 2147483647"):
            remote.create_topic("t", partitions)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="partitions 0 is not a number between 1"):
        remote.grow_topic("t", 0)
    with pytest.raises(InvalidArgument, match="is a partition: create persistent://public/default/t"):
        remote.create_topic("t-partition-0", 0)
    with pytest.raises(InvalidName):
        remote.partition_count("bad//name")


def test_without_rest_nothing_can_be_created(client: Client, topic: str) -> None:
    assert client.partition_count(topic) is None
    for change in (client.create_topic, client.grow_topic):
        with pytest.raises(
            NotSupported, match=r"ing persistent://public/default/remote .*give the client an admin_url"
        ):
            change(topic, 2)


def test_the_same_with_asyncio(running: TestBroker, topic: str) -> None:
    async def make() -> list[int | None]:
        async with AsyncClient(running.service_url, admin_url=running.http_url) as client:
            counts = [await client.partition_count(topic)]
            await client.create_topic(topic, 1)
            counts.append(await client.partition_count(topic))
            await client.grow_topic(topic, 2)
            return [*counts, await client.partition_count(topic)]

    assert asyncio.run(make()) == [None, 1, 2]


def test_an_old_broker_is_queried_over_rest(running: TestBroker, topic: str) -> None:
    """It would create the topic on a query over the binary protocol."""
    with fake_broker(flag=False) as old, Client(old.url, admin_url=running.http_url) as client:
        assert client.partition_count(topic) is None
        client.create_topic(topic, 2)
        assert client.partition_count(topic) == 2
        assert old.types() == ["CONNECT"]
    with fake_broker(flag=False) as old, Client(old.url) as client, pytest.raises(NotSupported):
        client.partition_count(topic)


class TestApachePulsar:
    """Differences from our broker; the responses are those of 4.2.4."""

    @pytest.mark.parametrize(("text", "is_namespace"), [("", False), ("Namespace not found", True)])
    def test_a_missing_topic_has_no_text_on_the_wire(self, text: str, is_namespace: bool) -> None:
        def refuse(broker: FakeBroker, command: Command) -> Command | None:
            is_question = command.type == Command.PARTITIONED_METADATA
            return metadata_failure(command, pb.TopicNotFound, text) if is_question else None

        with fake_broker(refuse) as fake, Client(fake.url) as client:
            if is_namespace:
                with pytest.raises(NamespaceNotFound, match="namespace public/default does not exist"):
                    client.partition_count("t")
            else:
                assert client.partition_count("t") is None

    @pytest.mark.parametrize("namespace", ["default", "no-such"])
    def test_an_error_without_text_is_explained_over_rest(self, running: TestBroker, namespace: str) -> None:
        def refuse(broker: FakeBroker, command: Command) -> Command | None:
            is_question = command.type == Command.PARTITIONED_METADATA
            return metadata_failure(command, pb.TopicNotFound) if is_question else None

        with fake_broker(refuse) as fake, Client(fake.url, admin_url=running.http_url) as client:
            if namespace == "default":
                assert client.partition_count(f"public/{namespace}/missing") is None
            else:
                with pytest.raises(NamespaceNotFound, match=f"namespace public/{namespace} does not exist"):
                    client.partition_count(f"public/{namespace}/missing")

    @pytest.mark.parametrize("there", [2, 3])
    def test_gr10_an_existing_topic_is_not_mistaken_for_a_new_one(self, there: int) -> None:
        """It returns 204 for a partitioned topic of any size with local-only creation."""
        answers = {"PUT": (204, b""), "GET": (200, b'{"partitions":%d}' % there)}
        with fake_rest(answers) as (url, received), Client(url) as client:
            if there == 2:
                client.create_topic("t", 2)
            else:
                with pytest.raises(Conflict, match="with 2 partitions: it already exists with 3 partitions"):
                    client.create_topic("t", 2)
        path = "/admin/v2/persistent/public/default/t/partitions?createLocalTopicOnly=true"
        assert received[0] == ("PUT", path, 2)

    def test_partitions_are_added_locally_only(self) -> None:
        with fake_rest({"POST": (204, b"")}) as (url, received), Client(url) as client:
            client.grow_topic("t", 7)
        assert received == [("POST", "/admin/v2/persistent/public/default/t/partitions?updateLocalTopicOnly=true", 7)]

    def test_another_404_is_not_the_namespace(self) -> None:
        with fake_rest({"PUT": (404, b'{"reason":"gone fishing"}')}) as (url, _), Client(url) as client:
            with pytest.raises(NotFound, match="gone fishing") as raised:
                client.create_topic("t")
            assert not isinstance(raised.value, NamespaceNotFound)


@contextlib.contextmanager
def fake_rest(
    answers: dict[str, tuple[int, bytes]],
) -> Iterator[tuple[str, list[tuple[str, str, object]]]]:
    """One response per method, and the received requests: method, path, body."""
    received: list[tuple[str, str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            assert self.command == "GET" or self.headers["Content-Type"] == "application/json"
            received.append((self.command, self.path, json.loads(body or b"null")))
            status, content = answers[self.command]
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert all(urlsplit(path).path.startswith("/admin/v2/") for _, path, _ in received)
