"""Connections: their number, their first seconds, and what storage keeps whatever clients do."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from magnetar.admin.http.answer_headers import ANSWER_HEADERS
from magnetar.bounds import ACCEPTED_PER_TURN, DESCRIPTORS_KEPT, HANDSHAKE_WAIT, HTTP_BODY_WAIT, HTTP_HEAD_WAIT
from magnetar.server.admission.descriptors import Capacity, capacity, limit, raise_limit
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame

from .raw_client import Command, RawClient
from .test_unread import wait_for

TOPIC = "persistent://public/default/connections"


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    RawClient.close_all()


def _refusal(server: TestBroker, source: str = "127.0.0.1") -> str:
    """What a new client gets that has sent its CONNECT already."""
    client = RawClient(server, connect=False)
    client.close()
    client.socket = socket.create_connection(client_address(server), timeout=30, source_address=(source, 0))
    connect = pb.CommandConnect(client_version="t", protocol_version=21)
    client.send_command(Command(type=Command.CONNECT, connect=connect))
    error = client.receive()
    assert error.type == Command.ERROR, error
    assert error.error.error == pb.NotAllowedError
    assert client.is_closed()
    return error.error.message


def client_address(server: TestBroker) -> tuple[str, int]:
    host, port = server.service_url.removeprefix("pulsar://").rsplit(":", 1)
    return host, int(port)


def http_address(server: TestBroker) -> tuple[str, int]:
    host, port = server.http_url.removeprefix("http://").rsplit(":", 1)
    return host, int(port)


def test_bound_connections() -> None:
    with broker(brokerMaxConnections=3) as server:
        clients = [RawClient(server) for _ in range(3)]
        assert _refusal(server) == "Reached the maximum number of connections: 3"
        # Those that are connected go on, and who leaves makes room.
        clients[0].produce_to(TOPIC)
        clients[1].close()
        wait_for(lambda: server.run(lambda: len(server.server.connections)) == 2, "the connection ends")
        RawClient(server).produce_to(TOPIC)


def test_bound_connections_per_address() -> None:
    with broker(brokerMaxConnectionsPerIp=2) as server:
        clients = [RawClient(server) for _ in range(2)]
        message = _refusal(server)
        assert message == (
            "Reached the maximum number of connections on address 127.0.0.1: brokerMaxConnectionsPerIp is 2"
        )
        other = socket.create_connection(client_address(server), timeout=30, source_address=("127.0.0.2", 0))
        connect = pb.CommandConnect(client_version="t", protocol_version=21)
        other.sendall(encode_frame(Command(type=Command.CONNECT, connect=connect)))
        assert other.recv(1)  # from another address there is room
        other.close()
        clients[0].produce_to(TOPIC)


def test_bound_accepted_per_turn() -> None:
    """More connections at once than a turn takes: all are served."""
    with broker() as server:
        sockets = [
            socket.create_connection(client_address(server), timeout=60) for _ in range(2 * ACCEPTED_PER_TURN.limit)
        ]
        connect = pb.CommandConnect(client_version="t", protocol_version=21)
        frame = encode_frame(Command(type=Command.CONNECT, connect=connect))
        for one in sockets:
            one.sendall(frame)
        for one in sockets:
            assert one.recv(1)
            one.close()
        wait_for(lambda: not server.run(lambda: server.server.connections), "all connections end")


# -- descriptors


def test_bound_descriptors_kept() -> None:
    kept = DESCRIPTORS_KEPT.limit
    assert capacity(kept + 4000, 0, 2048) == Capacity(3000, 1000)
    assert capacity(kept + 100_000, 0, 2048) == Capacity(97_952, 2048)
    assert capacity(kept + 100_000, 500, 0) == Capacity(500, 25_000)
    assert capacity(64, 0, 2048) == Capacity(24, 8)  # too few for anything: it still serves somebody


def test_the_limit_is_raised_as_far_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    raise_limit()
    assert asked == [(4096, 4096)]
    assert limit() == 1024


def test_a_limit_that_cannot_be_raised_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()


def test_fault_sockets_take_all_descriptors(tmp_path: Path) -> None:
    """Idle connections took all descriptors, RocksDB could not open its next file, and the broker ended."""
    descriptors = 900

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, "-m", "magnetar", "standalone", "--port", "0", "--http-port", "0"]
    command += ["--data", str(tmp_path / "data"), "--set", "pipelinesEnabled=false"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=bounded)
    sockets: list[socket.socket] = []
    try:
        assert process.stdout is not None
        ready = next(line for line in process.stdout if line.startswith("ready "))
        urls = [url.partition("://")[2].rsplit(":", 1) for url in ready.split()[1:]]
        (host, port), (_, http_port) = urls
        publisher = socket.create_connection((host, int(port)), timeout=60)
        sockets.append(publisher)
        for number in range(1200):
            sockets.append(socket.create_connection((host, int(port if number % 2 else http_port)), timeout=60))
        frames = [
            Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21)),
            Command(type=Command.PRODUCER, producer=pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1)),
        ]
        publisher.sendall(b"".join(map(encode_frame, frames)))
        received = b""
        while pb.BaseCommand(type=Command.PRODUCER_SUCCESS).SerializePartialToString() not in received:
            data = publisher.recv(65536)
            assert data, "the broker ended"
            received += data
        assert process.poll() is None
        used = len(os.listdir(f"/proc/{process.pid}/fd")) if os.path.isdir("/proc") else 0
        assert used <= descriptors - 512
    finally:
        for one in sockets:
            one.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        if process.stdout is not None:
            process.stdout.close()


# -- the first seconds


def test_bound_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes do not extend it."""
    assert HANDSHAKE_WAIT.limit == 10
    monkeypatch.setattr("magnetar.server.tcp._HANDSHAKE_S", 0.3)
    with broker() as server:
        silent, dripping, connected = (
            RawClient(server, connect=False),
            RawClient(server, connect=False),
            RawClient(server),
        )
        stop = threading.Event()

        def drip() -> None:
            try:
                while not stop.wait(0.05):
                    dripping.socket.send(b"\x00")
            except OSError:
                pass

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            for client in (silent, dripping):
                client.socket.settimeout(60)
                error = client.receive()
                assert error.error.message == "the handshake is not complete within 0.3 s"
            assert silent.is_closed()
        finally:
            stop.set()
            thread.join()
        time.sleep(0.3)
        connected.produce_to(TOPIC)  # has no deadline any more


# -- HTTP


def _status_and_reason(client: socket.socket) -> tuple[int, str]:
    data = b""
    while piece := client.recv(65536):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    assert all(f"{name.lower()}: {value}\r\n".encode() in head + b"\r\n" for name, value in ANSWER_HEADERS.items())
    assert f"content-length: {len(body)}\r\n".encode() in head + b"\r\n"
    return int(head.split()[1]), json.loads(body)["reason"]


@pytest.mark.parametrize("sent", [b"", b"GET /admin/v2/cl", b"GET / HTTP/1.1\r\nhost: localhost\r\n"])
def test_bound_http_head(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HTTP_HEAD_WAIT.limit == 10
    monkeypatch.setattr("magnetar.server.admission.http._HEAD_S", 0.3)
    with broker() as server:
        client = socket.create_connection(http_address(server), timeout=60)
        client.sendall(sent)
        assert _status_and_reason(client) == (408, "the head of the request did not arrive within 0.3 s")
        client.close()


def test_bound_http_head_of_a_later_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.server.admission.http._HEAD_S", 0.3)
    with broker() as server:
        client = socket.create_connection(http_address(server), timeout=60)
        client.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /admin")
        assert _status_and_reason(client) == (408, "the head of the request did not arrive within 0.3 s")
        client.close()


def test_bound_http_body(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HTTP_BODY_WAIT.limit == 30
    monkeypatch.setattr("magnetar.server.admission.http._BODY_S", 0.3)
    with broker() as server:
        client = socket.create_connection(http_address(server), timeout=60)
        client.sendall(
            b"PUT /admin/v2/tenants/t HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        assert _status_and_reason(client) == (408, "the body of the request did not arrive within 0.3 s")
        client.close()


def test_a_request_that_waits_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long poll lasts longer than any of the deadlines."""
    for name in ("_HEAD_S", "_BODY_S"):
        monkeypatch.setattr(f"magnetar.server.admission.http.{name}", 0.2)
    with broker() as server:
        client = HTTPConnection(*http_address(server), timeout=60)
        path = "/admin/v2/replication/declaration"
        client.request("GET", path)
        version = json.loads(client.getresponse().read())["version"]
        client.request("GET", f"{path}?after={version}&timeoutMs=1500")
        reply = client.getresponse()
        assert reply.status == 200
        assert json.loads(reply.read())["version"] == version
        client.close()


def test_bound_http_connections() -> None:
    with broker(maxHttpServerConnections=2) as server:
        taken = [socket.create_connection(http_address(server), timeout=60) for _ in range(2)]
        for one in taken:
            one.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
        refused = socket.create_connection(http_address(server), timeout=60)
        assert _status_and_reason(refused) == (503, "Reached the maximum number of HTTP connections: 2")
        for one in (*taken, refused):
            one.close()


def test_bound_http_requests() -> None:
    with broker(maxConcurrentHttpRequests=1) as server:
        waiting = socket.create_connection(http_address(server), timeout=60)
        waiting.sendall(
            b"PUT /admin/v2/tenants/t HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )

        def is_refused() -> bool:
            other = socket.create_connection(http_address(server), timeout=60)
            other.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            data = b""
            while piece := other.recv(65536):
                data += piece
            other.close()
            assert data.startswith((b"HTTP/1.1 503", b"HTTP/1.1 200"))
            assert all(f"{name.lower()}: {value}\r\n".encode() in data for name, value in ANSWER_HEADERS.items())
            return b"1 requests are running, maxConcurrentHttpRequests is 1" in data

        wait_for(is_refused, "a second request is refused")
        waiting.close()
        wait_for(lambda: not is_refused(), "the next request is served")
