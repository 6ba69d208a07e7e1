"""Finding topics by HTTP, for clients whose service address is `http://`; messages travel by the binary protocol all
the same.

The REST interface says by status what the binary protocol says by code. There is no feature flag in it: an Apache
Pulsar from before PIP-344 answers that a topic which does not exist has 0 partitions, and no client can tell.
"""

from __future__ import annotations

import ssl
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from magnetar.client.admin.schemas import Schema, SchemaAnswer, schema_of_rest, version_number
from magnetar.client.admin.topics import topic_path
from magnetar.client.connection.address import ServiceUrl
from magnetar.client.connection.lookup import REDIRECTS_MAX, Broker, chosen_url
from magnetar.client.errors import (
    ConnectionLost,
    InvalidArgument,
    NotAuthenticated,
    NotAuthorized,
    NotFound,
    NotSupported,
    ServerFailure,
    Timeout,
    of_status,
)
from magnetar.names import PARTITION_MAX, TopicName
from magnetar.security.credentials import Security
from magnetar.security.tls import context_of, explain, explain_loss
from magnetar.security.token import with_hint

_T = TypeVar("_T")

_DEDUPLICATION = "brokerDeduplicationEnabled"


class _Partitions(msgspec.Struct):
    partitions: int


class _Lookup(msgspec.Struct, rename="camel"):
    broker_url: str | None = None
    native_url: str | None = None
    broker_url_tls: str | None = None
    broker_url_ssl: str | None = None  # its older name


class _Reason(msgspec.Struct):
    reason: str


class HttpLookup:
    """Asks the first of the service's addresses that can be reached."""

    def __init__(self, service: ServiceUrl, timeout_s: float, security: Security) -> None:
        self._service = service
        self._security = security
        self._timeout_s = timeout_s
        self._preferred = 0
        self._context = self._new_context()
        self._http = self._new_http()
        self._http_before: httpx.AsyncClient | None = None

    def _new_context(self) -> ssl.SSLContext | bool:
        """Reading certificates takes longer than most requests; without them nothing is sent by HTTPS, see below."""
        return context_of(self._security, for_http=True) if self._service.is_tls else False

    def _new_http(self) -> httpx.AsyncClient:
        """The environment's proxies are not asked: brokers are mostly on the same network."""
        return httpx.AsyncClient(
            timeout=self._timeout_s,
            follow_redirects=True,
            max_redirects=REDIRECTS_MAX,
            trust_env=False,
            verify=self._context,
            event_hooks={"request": [self._authorize]},
        )

    async def _refresh(self) -> None:
        """Certificates may have been replaced. Who waits for an answer gets it, from the client there was before."""
        try:
            context = self._new_context()
        except InvalidArgument as error:  # it was fine when the client was made
            raise ConnectionLost(f"cannot ask {self._service}: {error.text}") from error
        if context is not self._context:
            outdated, self._http_before = self._http_before, self._http
            self._context = context
            self._http = self._new_http()
            if outdated is not None:
                await outdated.aclose()

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        what = f"partitions of {topic.full}"
        body = await self._get(
            f"/admin/v2/{topic_path(topic)}/partitions", {"checkAllowAutoCreation": str(create).lower()}, what
        )
        partitions = _decode(body, _Partitions, what).partitions
        if not 0 <= partitions <= PARTITION_MAX:
            raise ServerFailure(f"{what}: the broker's answer {partitions} is not a number of partitions")
        return partitions

    async def broker(self, topic: TopicName) -> Broker:
        what = f"lookup of {topic.full}"
        found = _decode(await self._get(f"/lookup/v2/topic/{topic_path(topic)}", {}, what), _Lookup, what)
        plain = found.broker_url or found.native_url or ""
        encrypted = found.broker_url_tls or found.broker_url_ssl or ""
        return Broker(chosen_url(what, plain, encrypted, is_tls=self._service.is_tls))

    async def topics(self, namespace: str) -> list[str]:
        what = f"topics of {namespace}"
        path = f"/admin/v2/namespaces/{quote(namespace, safe='/')}/topics"
        try:
            body = await self._get(path, {"mode": "ALL"}, what)
        except NotFound:  # there are none in a namespace that does not exist, says the binary protocol
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
        return schema_of_rest(_decode(body, SchemaAnswer, what), name.full.partition("://")[2])

    async def deduplicates(self, topic: TopicName) -> bool | None:
        """Asks the topic, its namespace and the broker in turn: the first that says something decides."""
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
        """None if nothing is set there, or if there is no such thing."""
        try:
            body = await self._get(path, {}, what)
        except (NotAuthorized, NotAuthenticated, NotFound, NotSupported):
            return None
        return _decode(body, bool | None, what) if body else None  # type: ignore[arg-type]

    async def change(self, method: str, path: str, query: dict[str, str], body: object, what: str) -> None:
        content = b"" if body is None else msgspec.json.encode(body)
        await self._ask(method, f"/admin/v2/{path}", query, what, content)

    async def show(self, path: str, kind: type[_T], what: str, *, body: object = None) -> _T:
        """What only REST tells, `path` below /admin/v2/; with a `body`, which becomes JSON, it is asked by POST."""
        method, content = ("GET", None) if body is None else ("POST", msgspec.json.encode(body))
        return _decode(await self._ask(method, f"/admin/v2/{path}", {}, what, content), kind, what)

    async def close(self) -> None:
        if self._http_before is not None:
            await self._http_before.aclose()
        await self._http.aclose()

    async def _authorize(self, request: httpx.Request) -> None:
        """Of each request, those to where a broker redirects included: the token goes nowhere in plain text by that."""
        if request.url.scheme != self._service.scheme:
            raise NotSupported(
                f"{self._service} redirects to {request.url.scheme}://{request.url.netloc.decode()}: either both are"
                " encrypted, or none"
            )
        try:
            token = self._security.read_token()
        except InvalidArgument as error:  # it was fine when the client was made
            raise ConnectionLost(f"cannot ask {self._service}: {error.text}") from error
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"

    async def _get(self, path: str, query: dict[str, str], what: str) -> bytes:
        return await self._ask("GET", path, query, what)

    async def _ask(
        self, method: str, path: str, query: dict[str, str], what: str, content: bytes | None = None
    ) -> bytes:
        # Apache Pulsar picks the handler by the content type, also where there is no content.
        headers = {} if content is None else {"Content-Type": "application/json"}
        addresses = self._service.addresses
        failures: list[str] = []
        await self._refresh()
        for offset in range(len(addresses)):
            index = (self._preferred + offset) % len(addresses)
            try:
                url = f"{self._service.scheme}://{addresses[index]}{path}"
                response = await self._http.request(method, url, params=query, content=content, headers=headers)
            except httpx.TimeoutException:
                raise Timeout(f"{what} at {addresses[index]} took longer than {self._timeout_s:g} s") from None
            except httpx.ConnectError as error:
                reason = explain(error) if self._service.is_tls else error
                failures.append(f"cannot connect to {addresses[index]}: {reason}")
                continue
            except httpx.HTTPError as error:
                reason = explain_loss(error)
                if not self._service.is_tls and isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
                    reason += "; if it is a port for TLS, write https://"
                raise ConnectionLost(f"{what} at {addresses[index]}: {reason}") from error
            self._preferred = index
            try:
                return _body(response, what)
            except NotAuthenticated as error:
                sent = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
                raise NotAuthenticated(with_hint(error.text, sent), status=error.status) from None
        raise ConnectionLost("; ".join(failures))


def _body(response: httpx.Response, what: str) -> bytes:
    if response.status_code in (httpx.codes.OK, httpx.codes.NO_CONTENT):
        return response.content
    try:
        reason = msgspec.json.decode(response.content, type=_Reason).reason
    except msgspec.DecodeError:
        is_page = "html" in response.headers.get("content-type", "")
        reason = ("" if is_page else response.text[:200].strip()) or response.reason_phrase
    raise of_status(response.status_code, f"{what}: {reason}")


def _decode(body: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ServerFailure(f"{what}: the answer is not what the REST interface promises: {error}") from None
