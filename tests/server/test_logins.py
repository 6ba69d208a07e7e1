"""Logins with passwords over real sockets: what they wait for, and what they do not. The test holds the threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from passlib.hash import apr_md5_crypt  # type: ignore[import-untyped]

import magnetar.testing
from magnetar.access.providers import basic
from magnetar.access.providers.htpasswd import is_password
from magnetar.access_bounds import PASSWORD_WAIT
from magnetar.broker.schema.examination import Examination
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb

from .raw_client import Command, RawClient
from .test_dear_schemas import LARGE

WAIT_S = 60
LIST = "/admin/v2/tenants"


class Held:
    """A function that waits for the test, and the order of its calls."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self.started, self.released = threading.Event(), threading.Event()
        self.calls: list[Any] = []

    def __call__(self, first: Any, *rest: Any) -> Any:
        self.calls.append(first)
        self.started.set()
        assert self.released.wait(WAIT_S)
        return self._original(first, *rest)


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Comparisons of passwords."""
    held = Held(is_password)
    monkeypatch.setattr(basic, "is_password", held)
    return held


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    RawClient.close_all()


@contextmanager
def secured(folder: Path) -> Iterator[TestBroker]:
    users = folder / "users"
    users.touch(0o600)
    users.write_text("".join(f"{user}:{apr_md5_crypt.hash('word')}\n" for user in ("ann", "bob", "eve")))
    settings = {"authenticationEnabled": True, "authenticationProviders": "basic", "basicAuthConf": str(users)}
    with magnetar.testing.broker(**settings) as broker:
        yield broker


def login(broker: TestBroker, shown: bytes, source: str = "127.0.0.1") -> RawClient:
    """A client that has sent its password."""
    client = RawClient(broker, connect=False, source=source)
    client.socket.settimeout(WAIT_S)
    connect = pb.CommandConnect(client_version="t", protocol_version=21, auth_method_name="basic", auth_data=shown)
    client.send_command(Command(type=Command.CONNECT, connect=connect))
    return client


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def examined(broker: TestBroker) -> int:
    """Connections that wait for the check of a password."""
    return broker.run(lambda: sum(one._session.examinations for one in broker.server.connections if one._session))


def test_a_slow_schema_holds_up_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = Held(Examination.find_or_check)
    monkeypatch.setattr(Examination, "find_or_check", lambda examination, strategy: schemas(examination, strategy))
    schema = pb.Schema(name="R", type=pb.Schema.Type.Avro, schema_data=LARGE)
    request = pb.CommandProducer(topic="t", producer_id=1, request_id=1, schema=schema)
    with secured(tmp_path) as broker:
        slow = login(broker, b"ann:word")
        assert slow.receive().type == Command.CONNECTED
        slow.send_command(Command(type=Command.PRODUCER, producer=request))
        assert schemas.started.wait(WAIT_S)
        try:
            assert login(broker, b"bob:word").receive().type == Command.CONNECTED
            assert httpx.get(broker.http_url + LIST, auth=("eve", "word"), timeout=WAIT_S).status_code == 200
        finally:
            schemas.released.set()
        assert slow.receive().type == Command.PRODUCER_SUCCESS


def test_guesses_of_some_addresses_hold_up_a_login_of_another_by_a_few(tmp_path: Path, passwords: Held) -> None:
    with secured(tmp_path) as broker:
        sources = [f"127.0.0.{number}" for number in range(2, 6)]
        for guess in range(15):
            for source in sources:
                login(broker, b"ann:guess%d of %s" % (guess, source.encode()), source)
        wait_until(lambda: examined(broker) == 60)
        right = login(broker, b"bob:word", "127.0.0.9")
        wait_until(lambda: examined(broker) == 61)
        passwords.released.set()
        assert right.receive().type == Command.CONNECTED
    assert passwords.calls.index(b"word") <= len(sources) + 1, "one of each, and the one that was in work"


def test_a_password_whose_connection_has_gone_is_not_compared(tmp_path: Path, passwords: Held) -> None:
    with secured(tmp_path) as broker:
        first = login(broker, b"ann:first")
        assert passwords.started.wait(WAIT_S)
        for guess in range(10):
            login(broker, b"ann:guess%d" % guess)
        wait_until(lambda: examined(broker) == 11)
        for client in RawClient.opened:
            if client is not first:
                client.close()
        wait_until(lambda: examined(broker) == 1)
        right = login(broker, b"ann:word")
        wait_until(lambda: examined(broker) == 2)
        passwords.released.set()
        assert right.receive().type == Command.CONNECTED
        assert first.receive().type == Command.ERROR
    assert passwords.calls == [b"first", b"word"]


def test_input_that_comes_while_a_password_is_checked_is_handled_after_it(tmp_path: Path, passwords: Held) -> None:
    with secured(tmp_path) as broker:
        client = login(broker, b"ann:word")
        assert passwords.started.wait(WAIT_S)
        wait_until(lambda: examined(broker) == 1)
        for _ in range(3):
            client.send_command(Command(type=Command.PING, ping=pb.CommandPing()))
        wait_until(lambda: broker.run(lambda: all(one.is_held for one in broker.server.connections)))
        passwords.released.set()
        assert [client.receive().type for _ in range(4)] == [Command.CONNECTED, *[Command.PONG] * 3]


def end_handshakes(broker: TestBroker) -> None:
    """As if their time were over."""
    for connection in list(broker.server.connections):
        connection._check_handshake()


def test_a_client_whose_password_waits_keeps_its_place(tmp_path: Path, passwords: Held) -> None:
    with secured(tmp_path) as broker:
        client, silent = login(broker, b"ann:word"), RawClient(broker, connect=False)
        wait_until(lambda: examined(broker) == 1 and len(broker.server.connections) == 2)
        broker.run(lambda: end_handshakes(broker))
        assert "the handshake is not complete" in silent.receive().error.message
        passwords.released.set()
        assert client.receive().type == Command.CONNECTED


def test_bound_password_wait_of_a_connection(tmp_path: Path, passwords: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.server.tcp.PASSWORD_WAIT", PASSWORD_WAIT._replace(limit=0))
    with secured(tmp_path) as broker:
        client = login(broker, b"ann:word")
        wait_until(lambda: examined(broker) == 1)
        broker.run(lambda: end_handshakes(broker))
        assert client.receive().error.message == "the password was not checked within 0 s, try again"
        passwords.released.set()
