"""The guard of the HTTP port over real sockets: heads that no client library writes, and official clients by HTTP."""

from __future__ import annotations

import socket

import pulsar
import pytest

import magnetar.testing

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
GET = b"GET /admin/v2/tenants HTTP/1.1\r\n"


def status_of(port: int, head: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head + b"Connection: close\r\n\r\n")
        line = client.makefile("rb").readline()
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (GET + b"Host: localhost\r\n", 200),
        (GET, 400),
        (GET + b"Host: localhost\r\nHost: localhost\r\n", 400),
        (GET + b"Host: evil.example\r\n", 403),
        (b"GET /admin/v2/tenants HTTP/1.0\r\n", 200),  # a simple health check; browsers always send Host
        (b"GET /admin/v2/tenants HTTP/1.0\r\nHost: evil.example\r\n", 403),
        (b"GET /admin/v2/tenants HTTP/1.0\r\nOrigin: http://localhost\r\n", 403),
        (b"GET http://localhost/admin/v2/tenants HTTP/1.1\r\nHost: localhost\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n", 403),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n", 405),
        (GET + b"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: https://evil.example\r\n", 403),
        (GET + b"Host: localhost\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", 403),
        (
            b"PUT /admin/v2/persistent/public/default/t/partitions HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n",
            415,
        ),
    ],
)
def test_heads(head: bytes, status: int) -> None:
    with magnetar.testing.broker() as broker:
        assert status_of(broker.server.http_port, head) == status


def test_an_official_client_with_an_http_address_creates_a_partitioned_topic() -> None:
    settings = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2}
    with magnetar.testing.broker(**settings) as broker:
        client = pulsar.Client(broker.http_url, logger=QUIET)
        try:
            consumer = client.subscribe("t", "s")
            client.create_producer("t").send(b"x")
            assert consumer.receive(30_000).data() == b"x"
            assert len(client.get_topic_partitions("t")) == 2
        finally:
            client.close()
