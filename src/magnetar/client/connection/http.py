"""HTTP requests to the REST API of a cluster, blocking (`HttpTransport`) and for asyncio (`AsyncHttpTransport`).

The only place that knows the HTTP library. Owns TLS, tokens, redirects, time limits, the choice among several
addresses, and the `ClientError` of a request that got no response. A response is returned whatever its status:
`check_status` raises the error of one. Knows no path of the API.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import httpx

from magnetar.client.connection import http_redirect
from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    InvalidArgument,
    NotSupported,
    ServerFailure,
    Timeout,
    Unreachable,
    of_status,
)
from magnetar.security.credentials import Security
from magnetar.security.tls import CERTIFICATE_HINT, context_of, explain, explain_loss
from magnetar.security.token import with_hint

JSON = "application/json"
REASON_LENGTH_MAX = 2000
_REDIRECTS_MAX = 20
_ASKED = "magnetar.asked"


class _Endpoint:
    """The shared part of both transports: everything but waiting."""

    def __init__(
        self,
        urls: Sequence[str],
        security: Security | None,
        timeout_s: float,
        connect_timeout_s: float | None,
        *,
        uses_proxy: bool,
    ) -> None:
        self.context: ssl.SSLContext | bool = False
        self._urls = urls
        self._scheme = urls[0].partition("://")[0]
        self._origins = frozenset(_origin(httpx.URL(url)) for url in urls)
        self._security = security or Security()
        self._timeout_s = timeout_s
        self._connect_timeout_s = timeout_s if connect_timeout_s is None else connect_timeout_s
        self._uses_proxy = uses_proxy
        self._preferred = 0
        if self._is_tls:
            self.context = context_of(self._security, for_http=True)

    @property
    def _is_tls(self) -> bool:
        return self._scheme == "https"

    def takes_time(self, request: httpx.Request) -> bool:
        """Whether `prepare` may wait for another service: not for an event loop."""
        return self._security.takes_time or not self._is_known(request)

    def _is_known(self, request: httpx.Request) -> bool:
        return _origin(request.url) in self._origins

    def client_options(self) -> dict[str, Any]:
        return {
            "timeout": httpx.Timeout(self._timeout_s, connect=self._connect_timeout_s),
            "follow_redirects": True,  # a cluster redirects a request about a topic to the broker that owns it
            "max_redirects": _REDIRECTS_MAX,
            "trust_env": self._uses_proxy,
            "verify": self.context,
        }

    def read_certificates(self) -> bool:
        """Whether a file was replaced since the last request: `context` is new then, and so has to be the client."""
        if not self._is_tls:
            return False
        try:
            context = context_of(self._security, for_http=True)
        except InvalidArgument as error:  # it was valid when the transport was created
            raise self._not_sent(error) from error
        is_new = context is not self.context
        self.context = context
        return is_new

    def prepare(self, request: httpx.Request) -> None:
        """Called for each request, redirected ones included: a redirect sends a token neither unencrypted nor to a host
        and port that was not given, and no request there but the one that was asked for. A cluster of several brokers
        is given with all of them."""
        asked = request.extensions.setdefault(_ASKED, request.url)  # a redirected request has those of the first
        if request.url.scheme != self._scheme:
            raise NotSupported(
                f"{self._urls[0]} redirects to {_shown_origin(request.url)}: both have to be encrypted, or neither"
            )
        is_known = self._is_known(request)
        if not is_known:
            request.headers.pop("Authorization", None)
        try:
            authorization = self._security.authorization()
        except InvalidArgument as error:  # it was valid when the transport was created
            raise self._not_sent(error) from error
        if not is_known:
            reason = ": credentials are not sent there" if authorization else self._why_not(asked, request.url)
            if reason:
                raise NotSupported(
                    f"{self._urls[0]} redirects to {_shown_origin(request.url)}, which is not an address that was"
                    f" given{reason}"
                )
        if authorization is not None:
            request.headers["Authorization"] = authorization

    def _why_not(self, asked: httpx.URL, target: httpx.URL) -> str:
        reason = http_redirect.why_not(str(asked), str(target))
        return f", {reason}" if reason else ""

    def _not_sent(self, error: InvalidArgument) -> ConnectionLost:
        return ConnectionLost(f"cannot send a request to {self._urls[0]}: {error.text}")

    def candidates(self) -> Iterator[str]:
        """The addresses, beginning with the one that was tried last."""
        first = self._preferred
        for offset in range(len(self._urls)):
            self._preferred = (first + offset) % len(self._urls)
            yield self._urls[self._preferred]

    def unreachable(self, url: str, error: httpx.ConnectError) -> str:
        return f"cannot connect to {url}: {explain(error) if self._is_tls else error}"

    def failure(self, url: str, error: httpx.HTTPError, what: str) -> ClientError:
        if isinstance(error, httpx.ConnectTimeout):
            return Timeout(f"{what}: connecting to {url} took longer than {self._connect_timeout_s:g} s")
        if isinstance(error, httpx.TimeoutException):
            return Timeout(f"{what} at {url} took longer than {self._timeout_s:g} s")
        if isinstance(error, httpx.TooManyRedirects):
            return ServerFailure(f"{what} at {url} was redirected more than {_REDIRECTS_MAX} times")
        reason = explain_loss(error)
        if isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
            reason += self._closed_hint(reason)
        return ConnectionLost(f"{what} at {url}: {reason}")

    def _closed_hint(self, reason: str) -> str:
        """With TLS 1.3, a missing certificate is noticed after the handshake; not every broker sends the reason."""
        if not self._is_tls:
            return "; it may be the binary port, or a port for TLS: then write https://"
        if CERTIFICATE_HINT in reason:
            return ""
        return "; it may be the binary port for TLS" + (
            "" if self._security.certificate_file else f", or {CERTIFICATE_HINT}"
        )


class HttpTransport:
    """`urls` are addresses of one cluster, each of the form `http://host:port` or `https://host:port`.

    Raises `InvalidArgument` when certificates or token cannot be read.
    """

    def __init__(
        self,
        urls: Sequence[str],
        security: Security | None,
        timeout_s: float,
        *,
        connect_timeout_s: float | None = None,
        uses_proxy: bool = False,
    ) -> None:
        self._endpoint = _Endpoint(urls, security, timeout_s, connect_timeout_s, uses_proxy=uses_proxy)
        self._client = self._new_client()
        self._outdated: httpx.Client | None = None

    def _new_client(self) -> httpx.Client:
        return httpx.Client(**self._endpoint.client_options(), event_hooks={"request": [self._endpoint.prepare]})

    def _refresh(self) -> None:
        """A request that another thread is waiting for ends on the client it began with."""
        if self._endpoint.read_certificates():
            if self._outdated is not None:
                self._outdated.close()
            self._outdated, self._client = self._client, self._new_client()

    def request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> httpx.Response:
        """`what` names the request in errors. None is no body; an empty one has a content type."""
        self._refresh()
        unreachable: list[str] = []
        last: httpx.ConnectError | None = None
        for url in self._endpoint.candidates():
            try:
                return self._client.request(
                    method, url + path, params=query, content=body, headers=_headers(body, content_type)
                )
            except httpx.ConnectError as error:
                unreachable.append(self._endpoint.unreachable(url, error))
                last = error
            except httpx.HTTPError as error:
                raise self._endpoint.failure(url, error, what) from error
        raise Unreachable("; ".join(unreachable)) from last

    def close(self) -> None:
        if self._outdated is not None:
            self._outdated.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class AsyncHttpTransport:
    """As `HttpTransport`, for asyncio."""

    def __init__(self, urls: Sequence[str], security: Security | None, timeout_s: float) -> None:
        self._endpoint = _Endpoint(urls, security, timeout_s, None, uses_proxy=False)
        self._client = self._new_client()
        self._outdated: httpx.AsyncClient | None = None

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._endpoint.client_options(), event_hooks={"request": [self._prepare]})

    async def _prepare(self, request: httpx.Request) -> None:
        if self._endpoint.takes_time(request):
            await asyncio.to_thread(self._endpoint.prepare, request)
        else:
            self._endpoint.prepare(request)

    async def _refresh(self) -> None:
        """A request that waits for its response ends on the client it began with."""
        if self._endpoint.read_certificates():
            outdated, self._outdated = self._outdated, self._client
            self._client = self._new_client()
            if outdated is not None:
                await outdated.aclose()

    async def request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> httpx.Response:
        """`what` names the request in errors. None is no body; an empty one has a content type."""
        await self._refresh()
        unreachable: list[str] = []
        last: httpx.ConnectError | None = None
        for url in self._endpoint.candidates():
            try:
                return await self._client.request(
                    method, url + path, params=query, content=body, headers=_headers(body, JSON)
                )
            except httpx.ConnectError as error:
                unreachable.append(self._endpoint.unreachable(url, error))
                last = error
            except httpx.HTTPError as error:
                raise self._endpoint.failure(url, error, what) from error
        raise Unreachable("; ".join(unreachable)) from last

    async def close(self) -> None:
        if self._outdated is not None:
            await self._outdated.aclose()
        await self._client.aclose()


_PORTS = {"http": 80, "https": 443}


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host.lower().rstrip("."), url.port or _PORTS.get(url.scheme)


def _shown_origin(url: httpx.URL) -> str:
    """Without path and user, which may contain secrets."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"


def _headers(body: bytes | None, content_type: str) -> dict[str, str]:
    """Apache Pulsar chooses the handler by the content type, even of an empty body."""
    return {} if body is None else {"Content-Type": content_type}


def check_status(response: httpx.Response, what: str) -> None:
    """Raises the `ClientError` for an error status."""
    if response.is_success:
        return
    text = f"{what}: {reason_of(response) or response.reason_phrase}"
    if response.status_code == httpx.codes.UNAUTHORIZED:
        text = with_hint(text, token_of(response))
    raise of_status(response.status_code, text)


def reason_of(response: httpx.Response) -> str:
    """The broker's reason for an error status, on one line; empty if there is none, or only an HTML page."""
    if "html" in response.headers.get("content-type", ""):
        return ""
    try:
        body = response.json()
    except ValueError:
        body = response.text
    reason = body.get("reason") if isinstance(body, dict) else body
    return " ".join(str(reason or "").split())[:REASON_LENGTH_MAX]


def token_of(response: httpx.Response) -> str:
    """The token that the request was sent with."""
    return str(response.request.headers.get("Authorization", "")).removeprefix("Bearer ")
