"""Requests to the admin REST API, asynchronous: one `AdminApi` for each session, with the session's own token.

Owns paths, limits of concurrent requests, and errors as one sentence. The HTTP library, TLS and redirects are the
client's. Knows no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from magnetar.client.connection.http import AsyncHttpTransport, reason_of
from magnetar.client.errors import ClientError
from magnetar.console.options import ANSWER_SIZE_MAX, ANSWER_TIMEOUT_S, REQUESTS_MAX, REQUESTS_OF_A_SESSION_MAX
from magnetar.console.rest.errors import BrokerError, BrokerUnreachable, LoginRefused, RequestRefused, RightRefused
from magnetar.security.credentials import Security

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Query = Mapping[str, object]

_REASON_MAX = 500


class BrokerAccess:
    """The broker that a console serves: its address, the certificates that it trusts, and the limit of all sessions."""

    def __init__(self, url: str, security: Security | None) -> None:
        self.url = url
        self._security = security or Security()
        self.limit = asyncio.Semaphore(REQUESTS_MAX)

    def api(self, token: str | None = None) -> AdminApi:
        """Requests with a token, or without a login. Raises `InvalidArgument` for text that is no token."""
        return AdminApi(self, msgspec.structs.replace(self._security, token=token))


class AdminApi:
    """Path segments are given unencoded."""

    def __init__(self, broker: BrokerAccess, security: Security) -> None:
        self._broker = broker
        self._http = AsyncHttpTransport([broker.url], security, ANSWER_TIMEOUT_S)
        self._limit = asyncio.Semaphore(REQUESTS_OF_A_SESSION_MAX)

    async def close(self) -> None:
        await self._http.close()

    async def get(self, type_: type[T], *segments: str, query: Query | None = None) -> T:
        response = await self.request("GET", segments, query=query)
        return decoded(response, type_)

    async def get_outside(self, type_: type[T], path: str) -> T:
        """A path that is not below `/admin/v2`."""
        return decoded(await self._send("GET", path), type_)

    async def put(self, type_: type[T], *segments: str, body: object) -> T:
        return decoded(await self.request("PUT", segments, body=body), type_)

    async def request(
        self, method: str, segments: tuple[str, ...], *, body: object = None, query: Query | None = None
    ) -> httpx.Response:
        content = None if method == "GET" else msgspec.json.encode(body)
        return await self._send(method, path_of("admin", "v2", *segments), query=query, body=content)

    async def _send(
        self, method: str, path: str, *, query: Query | None = None, body: bytes | None = None
    ) -> httpx.Response:
        parameters = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        limits: tuple[AbstractAsyncContextManager[None], ...] = (self._limit, self._broker.limit)
        async with limits[0], limits[1]:
            try:
                response = await self._http.request(method, path, f"{method} {path}", query=parameters, body=body)
            except ClientError as error:
                raise BrokerUnreachable(f"The broker at {self._broker.url} does not answer: {error}") from error
        if len(response.content) > ANSWER_SIZE_MAX:
            raise BrokerError(f"the answer has {len(response.content)} bytes, the limit is {ANSWER_SIZE_MAX}")
        if not response.is_success:
            raise _refused(response)
        return response


def _refused(response: httpx.Response) -> RequestRefused:
    reason = (reason_of(response) or response.reason_phrase or "error")[:_REASON_MAX]
    if response.status_code == 401:
        return LoginRefused(401, reason)
    return (RightRefused if response.status_code == 403 else RequestRefused)(response.status_code, reason)


def decoded(response: httpx.Response, type_: type[T]) -> T:
    """Raises `BrokerError` for an answer of another form."""
    try:
        return msgspec.json.decode(response.content, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokerError(f"{response.request.url.path} answered in a form that is not understood: {error}") from error


def path_of(*segments: str) -> str:
    # HTTP clients resolve "." and ".."; percent-encoded they are kept.
    return "".join(f"/{one.replace('.', '%2E') if one in ('.', '..') else quote(one, safe='')}" for one in segments)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
