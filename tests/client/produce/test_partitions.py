"""PM3: `get_partitions_for_topic`, blocking and asyncio, over both transports, against new and old brokers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count

import httpx
import pytest

from magnetar.client import AsyncClient, Client
from magnetar.client.errors import (
    ConnectionLost,
    InvalidName,
    NotAllowed,
    NotFound,
    NotSupported,
    ProtocolBroken,
    ServerFailure,
    ServiceNotReady,
    Timeout,
)
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from tests.client.fake_broker import Command, FakeBroker, fake_broker, metadata_failure, metadata_response

_names = count()
HTTP = httpx.Client(verify=False)  # shared: creating one takes longer than a test

AUTO_CREATION: dict[str, dict[str, object]] = {
    "off": {"allowAutoTopicCreation": False},
    "plain": {"allowAutoTopicCreationType": "non-partitioned"},
    "partitioned": {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2},
}


@pytest.fixture(scope="module", params=AUTO_CREATION)
def policy(request: pytest.FixtureRequest) -> Iterator[tuple[str, TestBroker]]:
    with broker(**AUTO_CREATION[request.param]) as running:
        yield request.param, running


def ask(url: str, shell: str, topic: str, create: bool | None) -> list[str]:
    """The tested call in its four forms; `create` None omits the flag."""
    flag = {} if create is None else {"create_if_auto_creation_enabled": create}
    if shell == "blocking":
        with Client(url, operation_timeout_s=5) as client:
            return client.get_partitions_for_topic(topic, **flag)

    async def call() -> list[str]:
        async with AsyncClient(url, operation_timeout_s=5) as client:
            return await client.get_partitions_for_topic(topic, **flag)

    return asyncio.run(call())


def exists(running: TestBroker, domain: str, name: str) -> bool:
    """Queried over the other interface, without creating the topic."""
    path = f"{running.http_url}/admin/v2/{domain}/public/default/{name}/partitions"
    return HTTP.get(path, params={"checkAllowAutoCreation": "false"}).status_code == 200


@pytest.mark.parametrize("shell", ["blocking", "asyncio"])
@pytest.mark.parametrize("transport", ["pulsar", "http"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("create", [True, False, None])
class TestTheTable:
    """The six cases of the proposal; the flag defaults to true."""

    def test_pm3_a_topic_without_partitions(
        self, policy: tuple[str, TestBroker], shell: str, transport: str, domain: str, create: bool | None
    ) -> None:
        _, running = policy
        name = f"plain-{next(_names)}"
        HTTP.put(f"{running.http_url}/admin/v2/{domain}/public/default/{name}").raise_for_status()
        full = f"{domain}://public/default/{name}"
        assert ask(url_of(running, transport), shell, full, create) == [full]

    def test_pm3_a_partitioned_topic(
        self, policy: tuple[str, TestBroker], shell: str, transport: str, domain: str, create: bool | None
    ) -> None:
        _, running = policy
        name = f"parts-{next(_names)}"
        path = f"{running.http_url}/admin/v2/{domain}/public/default/{name}/partitions"
        HTTP.put(path, json=3).raise_for_status()
        full = f"{domain}://public/default/{name}"
        assert ask(url_of(running, transport), shell, full, create) == [f"{full}-partition-{n}" for n in range(3)]

    def test_pm3_a_missing_topic(
        self, policy: tuple[str, TestBroker], shell: str, transport: str, domain: str, create: bool | None
    ) -> None:
        auto_creation, running = policy
        name = f"missing-{next(_names)}"
        full = f"{domain}://public/default/{name}"
        url = url_of(running, transport)
        if create is False or auto_creation == "off":
            with pytest.raises(NotFound, match=name) as raised:
                ask(url, shell, full, create)
            assert (raised.value.code, raised.value.status) == ((11, None) if transport == "pulsar" else (None, 404))
            assert not exists(running, domain, name)
        elif auto_creation == "plain":
            assert ask(url, shell, full, create) == [full]
        else:
            assert ask(url, shell, full, create) == [f"{full}-partition-0", f"{full}-partition-1"]
            assert exists(running, domain, name)


def url_of(running: TestBroker, transport: str) -> str:
    return running.service_url if transport == "pulsar" else running.http_url


@pytest.mark.parametrize("transport", ["pulsar", "http"])
def test_pm3_short_names_become_full_names(running: TestBroker, transport: str, topic: str) -> None:
    assert ask(url_of(running, transport), "blocking", topic, None) == [f"persistent://public/default/{topic}"]


@pytest.mark.parametrize("transport", ["pulsar", "http"])
@pytest.mark.parametrize("create", [True, False])
def test_pm3_a_missing_namespace_is_not_found(running: TestBroker, transport: str, create: bool) -> None:
    with pytest.raises(NotFound):
        ask(url_of(running, transport), "blocking", "public/no-such/t", create)


@pytest.mark.parametrize("transport", ["pulsar", "http"])
@pytest.mark.parametrize("topic", ["bad//name", "", "a/b", "x://public/default/t", "public/default/" + "x" * 2000])
def test_pm3_an_invalid_name_is_rejected_before_a_request(running: TestBroker, transport: str, topic: str) -> None:
    with pytest.raises(InvalidName):
        ask(url_of(running, transport), "blocking", topic, None)


@pytest.mark.parametrize("transport", ["pulsar", "http"])
def test_pm3_names_that_need_quoting(running: TestBroker, transport: str) -> None:
    name = f"a b%2Fc?ü{next(_names)}"
    full = f"persistent://public/default/{name}"
    assert ask(url_of(running, transport), "blocking", name, True) == [full]


class TestOlderBroker:
    """A broker that does not announce supports_get_partitioned_metadata_without_auto_creation."""

    @pytest.mark.parametrize("shell", ["blocking", "asyncio"])
    def test_pm3_without_creation_is_unsupported_and_nothing_is_sent(self, shell: str) -> None:
        with fake_broker(flag=False) as old:
            with pytest.raises(NotSupported, match=r"Fake 1.*without creating it.*without_auto_creation"):
                ask(old.url, shell, "t", False)
            assert old.types() == ["CONNECT"]

    @pytest.mark.parametrize("shell", ["blocking", "asyncio"])
    @pytest.mark.parametrize("create", [True, None])
    def test_pm3_with_creation_it_works_as_before(self, shell: str, create: bool | None) -> None:
        def two(broker: FakeBroker, command: Command) -> Command | None:
            return metadata_response(command, 2) if command.type == Command.PARTITIONED_METADATA else None

        with fake_broker(two, flag=False) as old:
            full = "persistent://public/default/t"
            assert ask(old.url, shell, "t", create) == [f"{full}-partition-0", f"{full}-partition-1"]

    def test_pm3_over_http_an_old_broker_looks_like_a_topic_without_partitions(self) -> None:
        """The proposal requires NotSupported over the binary protocol only."""
        with fake_http(200, b'{"partitions":0}') as url:
            assert ask(url, "blocking", "t", False) == ["persistent://public/default/t"]


@pytest.mark.parametrize("create", [True, False])
def test_pm3_the_flag_is_field_6(create: bool) -> None:
    with fake_broker() as fake:
        ask(fake.url, "blocking", "t", create)
        assert fake.received[-1].partitionMetadata.HasField("metadata_auto_creation_enabled")
        assert fake.received[-1].partitionMetadata.metadata_auto_creation_enabled is create


@pytest.mark.parametrize(
    ("code", "error"),
    [(pb.TopicNotFound, NotFound), (pb.NotAllowedError, NotAllowed), (pb.MetadataError, ServerFailure)],
)
def test_pm3_other_errors_keep_code_and_text(code: pb.ServerError.ValueType, error: type[Exception]) -> None:
    def refuse(broker: FakeBroker, command: Command) -> Command | None:
        is_question = command.type == Command.PARTITIONED_METADATA
        return metadata_failure(command, code, "because of the moon") if is_question else None

    with fake_broker(refuse) as fake, pytest.raises(error, match="because of the moon") as raised:
        ask(fake.url, "blocking", "t", True)
    assert raised.value.code == code  # type: ignore[attr-defined]


def test_an_error_without_a_text_shows_the_name_of_its_code() -> None:
    """Like TopicNotFound of Apache Pulsar."""

    def refuse(broker: FakeBroker, command: Command) -> Command | None:
        return metadata_failure(command, pb.TopicNotFound) if command.type == Command.PARTITIONED_METADATA else None

    with fake_broker(refuse) as fake, pytest.raises(NotFound, match="default/t: TopicNotFound"):
        ask(fake.url, "blocking", "t", True)


def test_a_broker_that_is_not_ready_is_retried() -> None:
    asked = count()

    def later(broker: FakeBroker, command: Command) -> Command | None:
        if command.type == Command.PARTITIONED_METADATA and next(asked) < 2:
            return metadata_failure(command, pb.ServiceNotReady, "starting")
        return None

    with fake_broker(later) as fake:
        assert ask(fake.url, "blocking", "t", True) == ["persistent://public/default/t"]
        assert fake.types().count("PARTITIONED_METADATA") == 3


def test_a_broker_that_never_becomes_ready_is_an_error_in_time() -> None:
    def never(broker: FakeBroker, command: Command) -> Command | None:
        is_question = command.type == Command.PARTITIONED_METADATA
        return metadata_failure(command, pb.ServiceNotReady, "starting") if is_question else None

    with (
        fake_broker(never) as fake,
        Client(fake.url, operation_timeout_s=0.5) as client,
        pytest.raises(ServiceNotReady, match="starting"),
    ):
        client.get_partitions_for_topic("t")


def test_silence_after_an_error_reports_that_error() -> None:
    asked = count()

    def silent(broker: FakeBroker, command: Command) -> Command | bytes | None:
        if command.type != Command.PARTITIONED_METADATA:
            return None
        return metadata_failure(command, pb.ServiceNotReady, "starting") if next(asked) == 0 else b""

    with (
        fake_broker(silent) as fake,
        Client(fake.url, operation_timeout_s=0.5) as client,
        pytest.raises(ServiceNotReady, match="starting"),
    ):
        client.get_partitions_for_topic("t")


def test_a_silent_broker_is_a_timeout_that_names_the_request() -> None:
    def silent(broker: FakeBroker, command: Command) -> bytes | None:
        return b"" if command.type == Command.PARTITIONED_METADATA else None

    with (
        fake_broker(silent) as fake,
        Client(fake.url, operation_timeout_s=0.2) as client,
        pytest.raises(Timeout, match=r"partitions of persistent://public/default/t .*longer than 0\.2 s"),
    ):
        client.get_partitions_for_topic("t")


def test_a_silent_server_is_a_timeout_that_names_it() -> None:
    with (
        fake_broker(greeting=b"") as fake,
        Client(fake.url, connect_timeout_s=0.2) as client,
        pytest.raises(Timeout, match=f"connecting to {fake.address}"),
    ):
        client.get_partitions_for_topic("t")


@pytest.mark.parametrize("transport", ["pulsar", "http"])
def test_a_port_where_nothing_listens(transport: str) -> None:
    with fake_broker() as fake:
        address = fake.address
    with (
        Client(f"{transport}://{address}") as client,
        pytest.raises(ConnectionLost, match=f"connect to (http://)?{address}"),
    ):
        client.get_partitions_for_topic("t")


def test_another_protocol_on_the_port(running: TestBroker) -> None:
    wrong = running.http_url.replace("http://", "pulsar://")
    with Client(wrong, operation_timeout_s=5) as client, pytest.raises(ProtocolBroken, match="this is an HTTP port"):
        client.get_partitions_for_topic("t")


def test_http_on_the_binary_port(running: TestBroker) -> None:
    wrong = running.service_url.replace("pulsar://", "http://")
    with Client(wrong, operation_timeout_s=5) as client, pytest.raises(ConnectionLost, match=r"partitions of .*/t at"):
        client.get_partitions_for_topic("t")


@contextlib.contextmanager
def fake_http(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "error", "text"),
    [
        (200, b"<html>", ServerFailure, "does not have the form of the REST API"),
        (200, b'{"partitions":"many"}', ServerFailure, "does not have the form of the REST API"),
        (200, b'{"partitions":-1}', ServerFailure, "the broker reports -1 partitions"),
        (404, b'{"reason":"Topic not found"}', NotFound, "default/t: Topic not found"),
        (404, b"not json", NotFound, "not json"),
        (412, b'{"reason":"no"}', NotAllowed, "no"),
        (500, b"", ServerFailure, "Internal Server Error"),
        (501, b'{"reason":"cannot"}', NotSupported, "cannot"),
    ],
)
def test_http_responses(status: int, body: bytes, error: type[Exception], text: str) -> None:
    with fake_http(status, body) as url, pytest.raises(error, match=text):
        ask(url, "blocking", "t", True)
