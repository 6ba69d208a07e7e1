"""Topic lookup by HTTP, for clients whose service URL is `http://`. Messages travel by the binary protocol even then.

REST reports by status what the binary protocol reports by code. It has no feature flags: an Apache Pulsar from before
PIP-344 replies that a topic which does not exist has 0 partitions, and no client can tell the difference.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec

from magnetar.client.connection.address import ServiceUrl
from magnetar.client.connection.http import AsyncHttpTransport, check_status
from magnetar.client.connection.lookup import BrokerAddress, chosen_url
from magnetar.client.connection.rest_path import topic_path
from magnetar.client.errors import NotAuthenticated, NotAuthorized, NotFound, NotSupported, ServerFailure
from magnetar.client.schema import Schema, SchemaResponse, schema_of_rest, version_number
from magnetar.names import PARTITION_MAX, TopicName
from magnetar.security.credentials import Security

_T = TypeVar("_T")

_DEDUPLICATION = "brokerDeduplicationEnabled"


class _Partitions(msgspec.Struct):
    partitions: int


class _Lookup(msgspec.Struct, rename="camel"):
    broker_url: str | None = None
    native_url: str | None = None
    broker_url_tls: str | None = None
    broker_url_ssl: str | None = None  # its older name


class HttpLookup:
    """Asks the first address of the service that can be reached."""

    def __init__(self, service: ServiceUrl, timeout_s: float, security: Security) -> None:
        self._is_tls = service.is_tls
        urls = [f"{service.scheme}://{address}" for address in service.addresses]
        self._http = AsyncHttpTransport(urls, security, timeout_s)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        what = f"partitions of {topic.full}"
        body = await self._get(
            f"/admin/v2/{topic_path(topic)}/partitions", {"checkAllowAutoCreation": str(create).lower()}, what
        )
        partitions = _decode(body, _Partitions, what).partitions
        if not 0 <= partitions <= PARTITION_MAX:
            raise ServerFailure(f"{what}: the broker reports {partitions} partitions")
        return partitions

    async def broker(self, topic: TopicName) -> BrokerAddress:
        what = f"lookup of {topic.full}"
        found = _decode(await self._get(f"/lookup/v2/topic/{topic_path(topic)}", {}, what), _Lookup, what)
        plain = found.broker_url or found.native_url or ""
        encrypted = found.broker_url_tls or found.broker_url_ssl or ""
        return BrokerAddress(chosen_url(what, plain, encrypted, is_tls=self._is_tls))

    async def topics(self, namespace: str) -> list[str]:
        what = f"topics of {namespace}"
        path = f"/admin/v2/namespaces/{quote(namespace, safe='/')}/topics"
        try:
            body = await self._get(path, {"mode": "ALL"}, what)
        except NotFound:  # by the binary protocol a namespace that does not exist has no topics
            return []
        return _decode(body, list[str], what)

    async def schema(self, topic: TopicName, version: bytes | None) -> Schema | None:
        name = topic.base
        what = f"schema of {name.full}"
        path = "/".join(quote(part, safe="") for part in (name.tenant, name.namespace, name.local))
        number = "" if version is None else f"/{version_number(version)}"
        try:
            body = await self._get(f"/admin/v2/schemas/{path}/schema{number}", {}, what)
        except NotFound:
            return None
        return schema_of_rest(_decode(body, SchemaResponse, what), name.full.partition("://")[2])

    async def deduplicates(self, topic: TopicName) -> bool | None:
        """Asks the topic, its namespace and the broker in turn: the first that has a setting decides."""
        if not topic.is_persistent:
            return False
        name = topic.base
        namespace = quote(f"{name.tenant}/{name.namespace}", safe="/")
        for path in (
            f"/admin/v2/{topic_path(name)}/deduplicationEnabled",
            f"/admin/v2/namespaces/{namespace}/deduplication",
        ):
            decided = await self._flag(path, f"deduplication of {name.full}")
            if decided is not None:
                return decided
        what = "the broker's settings"
        try:
            body = await self._get("/admin/v2/brokers/configuration/runtime", {}, what)
        except (NotAuthorized, NotAuthenticated, NotFound, NotSupported):
            return None
        return {"true": True, "false": False}.get(_decode(body, dict[str, str], what).get(_DEDUPLICATION, ""))

    async def _flag(self, path: str, what: str) -> bool | None:
        """None if nothing is set there, or if the broker does not have the path."""
        try:
            body = await self._get(path, {}, what)
        except (NotAuthorized, NotAuthenticated, NotFound, NotSupported):
            return None
        return _decode(body, bool | None, what) if body else None  # type: ignore[arg-type]

    async def change(self, method: str, path: str, query: dict[str, str], body: object, what: str) -> None:
        content = b"" if body is None else msgspec.json.encode(body)
        await self._request(method, f"/admin/v2/{path}", query, what, content)

    async def show(self, path: str, kind: type[_T], what: str, *, body: object = None) -> _T:
        """A question that only REST answers, `path` below /admin/v2/; with a `body`, sent as JSON, it is a POST."""
        method, content = ("GET", None) if body is None else ("POST", msgspec.json.encode(body))
        return _decode(await self._request(method, f"/admin/v2/{path}", {}, what, content), kind, what)

    async def close(self) -> None:
        await self._http.close()

    async def _get(self, path: str, query: dict[str, str], what: str) -> bytes:
        return await self._request("GET", path, query, what)

    async def _request(
        self, method: str, path: str, query: dict[str, str], what: str, body: bytes | None = None
    ) -> bytes:
        response = await self._http.request(method, path, what, query=query, body=body)
        check_status(response, what)
        return response.content


def _decode(body: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ServerFailure(f"{what}: the response does not have the form of the REST API: {error}") from None
