"""Clients of other networks: lookups return an address that they can reach."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pulsar
import pytest

import magnetar.testing

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
ELSEWHERE = "127.0.0.2"  # another address of this machine: connections from it do not look local


class Mapping:
    """A mapped port, as of a container: connections to it are forwarded, and come from another address."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.target = 0
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                broker = socket.create_connection(("127.0.0.1", self.target), source_address=(ELSEWHERE, 0))
                threading.Thread(target=_forward, args=(client, broker), daemon=True).start()

    def close(self) -> None:
        self._listener.close()


def _forward(one: socket.socket, other: socket.socket) -> None:
    with one, other, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select():
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)


@pytest.fixture
def mapping() -> Iterator[Mapping]:
    mapping = Mapping()
    yield mapping
    mapping.close()


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def send(url: str, listener: str | None = None) -> None:
    client = pulsar.Client(url, logger=QUIET, listener_name=listener, operation_timeout_seconds=3)
    try:
        client.create_producer("t").send(b"x")
    finally:
        client.close()


def test_a_mapped_port_works_for_clients_that_name_no_listener(mapping: Mapping) -> None:
    listeners = f"outside:pulsar://localhost:{mapping.port},outside:http://localhost:7080"
    with magnetar.testing.broker(advertisedListeners=listeners) as b:
        mapping.target = b.server.port
        assert b.service_url == f"pulsar://localhost:{mapping.port}"
        send(f"pulsar://127.0.0.1:{mapping.port}")
        assert mapping.connections == 2, "the lookup and the producer"
        answer = httpx.get(f"http://127.0.0.1:{b.server.http_port}/lookup/v2/topic/persistent/public/default/t").json()
        assert (answer["brokerUrl"], answer["httpUrl"]) == (b.service_url, "http://localhost:7080")
        before = mapping.connections
        send(f"pulsar://127.0.0.1:{b.server.port}")
        assert mapping.connections == before, "a client on this machine needs no mapping"


def test_clients_of_two_networks_name_their_listener(mapping: Mapping) -> None:
    listeners = f"inside:pulsar://127.0.0.1:1,outside:pulsar://localhost:{mapping.port}"
    with magnetar.testing.broker(advertisedListeners=listeners, internalListenerName="ports") as b:
        mapping.target = b.server.port
        direct = f"pulsar://127.0.0.1:{b.server.port}"
        send(direct, "outside")
        assert mapping.connections == 1, "the lookup went the direct way, the producer followed its listener"
        with pytest.raises(pulsar.PulsarException):
            send(direct, "inside")  # nothing listens there
        with pytest.raises(pulsar.PulsarException):
            send(direct, "nowhere")
        path = f"{b.http_url}/lookup/v2/topic/persistent/public/default/t"
        named = httpx.get(path, headers={"X-Pulsar-ListenerName": "outside"}).json()
        assert named["brokerUrl"] == f"pulsar://localhost:{mapping.port}"
        assert named == httpx.get(path, params={"listenerName": "outside"}).json()
        assert port_of(httpx.get(path).json()["brokerUrl"]) == b.server.port
        refused = httpx.get(path, params={"listenerName": "nowhere"})
        assert refused.status_code == 412
        assert refused.json() == {
            "reason": "advertisedListeners has no listener 'nowhere', only inside, outside, ports"
        }
