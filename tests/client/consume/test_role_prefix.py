"""Readers where a subscription has to begin with the role: with the role's prefix they may read."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from magnetar.client import EARLIEST, LATEST, AsyncClient, Client, Security
from magnetar.client.errors import ClientError
from magnetar.testing import TestBroker, broker

NAMESPACE = "public/default"
TOPIC = "read"


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    """`app` may consume in a namespace with `subscriptionAuthMode=Prefix`, where a topic has a message."""
    with broker(secure=True) as running:
        admin = Security(token=running.token("admin"), trust_certs_file=running.trust_certs_file)
        with Client(running.service_url, security=admin) as client, client.producer(TOPIC) as producer:
            producer.send(b"x")
        _post(running, "permissions/app", ["consume"])
        _post(running, "subscriptionAuthMode", "Prefix")
        yield running


def _post(running: TestBroker, path: str, body: object) -> None:
    with http(running) as rest:
        rest.post(f"/namespaces/{NAMESPACE}/{path}", json=body).raise_for_status()


def http(running: TestBroker) -> httpx.Client:
    headers = {"Authorization": f"Bearer {running.token('admin')}"}
    tls = ssl.create_default_context(cafile=running.trust_certs_file)
    return httpx.Client(base_url=f"{running.http_url}/admin/v2", headers=headers, verify=tls, trust_env=False)


async def _reader(client: AsyncClient) -> Any:
    async with await client.reader(TOPIC, EARLIEST) as reader:
        return (await reader.read(10)).value


async def _entries(client: AsyncClient) -> Any:
    async with await client.entries(TOPIC, EARLIEST, LATEST) as reader:
        return len(await reader.next())


async def _tail(client: AsyncClient) -> Any:
    async with await client.tail(TOPIC) as tail:
        return await tail.last()


async def _position(client: AsyncClient) -> Any:
    return await client.position_at(TOPIC, 1)


@pytest.mark.parametrize("read", [_reader, _entries, _tail, _position])
def test_every_subscription_of_a_reader_begins_with_the_role(
    running: TestBroker, read: Callable[[AsyncClient], Awaitable[Any]]
) -> None:
    security = Security(token=running.token("app"), trust_certs_file=running.trust_certs_file)

    async def attempt(prefix: str) -> Any:
        async with AsyncClient(running.service_url, security=security, subscription_role_prefix=prefix) as client:
            return await read(client)

    with pytest.raises(ClientError, match="the name of a subscription has to begin with the role"):
        asyncio.run(attempt(""))
    assert asyncio.run(attempt("app"))


def test_a_reader_that_waits_is_no_subscription_of_the_topic(running: TestBroker) -> None:
    security = Security(token=running.token("app"), trust_certs_file=running.trust_certs_file)
    with (
        Client(running.service_url, security=security, subscription_role_prefix="app") as client,
        client.tail(TOPIC),
        http(running) as rest,
    ):
        assert rest.get(f"/persistent/{NAMESPACE}/{TOPIC}/subscriptions").json() == []
