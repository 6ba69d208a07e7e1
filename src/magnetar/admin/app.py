"""The web application: one request in, one handler of the route table, one answer out.

Owns reading requests, writing answers and turning errors into a status and a reason. What the paths mean is in the
route table and its handlers. They are synchronous, as the broker is; waiting for the disk happens here alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.admin.call import Call
from magnetar.admin.refusal import BadRequest, BodyTooLarge
from magnetar.admin.routes import ROUTES, Route
from magnetar.broker.broker import Broker
from magnetar.errors import MagnetarError
from magnetar.names import DOMAINS

log = logging.getLogger(__name__)

BODY_SIZE_MAX = 1 << 20
_JSON = "application/json"

ServiceUrl: TypeAlias = Callable[[str], str]
Committed: TypeAlias = Callable[[], Awaitable[None]]


class Refusal(msgspec.Struct):
    """The one shape of every error."""

    reason: str


def create_app(broker: Broker, *, service_url: ServiceUrl, committed: Committed) -> Starlette:
    """`service_url(host)` is the binary address for a client that reached `host`; `committed()` waits for the disk."""
    return Starlette(
        routes=[
            WebRoute(path, _endpoint(route, fixed, broker, service_url, committed), methods=[route.method])
            for route in ROUTES
            for path, fixed in _expand(route.path)
        ],
        middleware=[Middleware(EncodedPath)],
        exception_handlers={HTTPException: _on_no_route},
    )


class EncodedPath:
    """Routes by the path as it was sent: a %2F belongs to a name and must not split it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
            path = raw.partition(b"?")[0].decode("latin-1")
            if path.startswith("/admin/"):
                path = path.rstrip("/")
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


def _expand(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A path with {domain} stands for one path per kind of topic."""
    if "{domain}" not in path:
        yield path, {}
        return
    for domain in DOMAINS:
        yield path.replace("{domain}", domain), {"domain": domain}


def _endpoint(
    route: Route, fixed: dict[str, str], broker: Broker, service_url: ServiceUrl, committed: Committed
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await answer(request)
        except ClientDisconnect:
            return _refused(400, "the client went away before its request was complete")
        except Exception as error:
            log.exception("%s %s failed", request.method, request.url.path)
            return _refused(500, f"unexpected {type(error).__name__}: see the log of the broker")

    async def answer(request: Request) -> Response:
        try:
            outcome = route.handler(await _read(request, fixed, broker, service_url))
            if isinstance(outcome, Awaitable):
                outcome = await outcome
            response = _response(outcome)
        except MagnetarError as error:
            response = _refused(error.http_status, str(error))
        if route.changes:
            # Refusals wait too: "exists already" must stay true after a crash.
            await committed()
        return response

    return endpoint


async def _read(request: Request, fixed: dict[str, str], broker: Broker, service_url: ServiceUrl) -> Call:
    host, port = _host_of(request)
    return Call(
        broker=broker,
        path=fixed | {name: _decoded(part) for name, part in request.path_params.items()},
        query=request.query_params,
        body=await _body(request),
        host=host,
        http_port=port,
        service_url=service_url,
    )


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"path part {part[:100]!r} is not percent-encoded UTF-8") from error


def _host_of(request: Request) -> tuple[str, int]:
    """Host and port as the client wrote them; a header that cannot be read is as good as none."""
    server: tuple[str, int | None] = request.scope.get("server") or ("localhost", 80)
    try:
        return request.url.hostname or server[0], request.url.port or 80
    except ValueError:
        return server[0], server[1] or 80


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_SIZE_MAX:
            raise BodyTooLarge(f"request body exceeds the limit of {BODY_SIZE_MAX} bytes")
    return bytes(body)


def _response(outcome: object) -> Response:
    if outcome is None:
        return Response(status_code=204)
    if isinstance(outcome, Response):
        return outcome
    return Response(msgspec.json.encode(outcome), media_type=_JSON)


def _refused(status: int, reason: str) -> Response:
    return Response(msgspec.json.encode(Refusal(reason)), status_code=status, media_type=_JSON)


async def _on_no_route(request: Request, error: Exception) -> Response:
    """Under /admin everything belongs to Pulsar's API: what we do not have is a gap of ours, not a wrong address."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if f"{path}/".startswith("/admin/"):
        return _refused(501, f"{request.method} {path[:200]} is not supported yet")
    if error.status_code == 405:
        return _refused(405, f"{request.method} is not allowed on {path[:200]}")
    return _refused(404, f"path {path[:200]} not found")
