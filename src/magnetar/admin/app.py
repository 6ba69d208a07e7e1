"""The web application: reads a request, calls its handler from the route table, and writes the response.

Owns the mapping of errors to a status and a reason. It does not know what a path means. Handlers are synchronous, as
the broker is; only the application waits for the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from magnetar.access.principal import INTERNAL_ROLE, NO_ONE_ASKED, Principal
from magnetar.access.proxy import on_behalf
from magnetar.access_bounds import PASSWORD_WAIT
from magnetar.admin.http.answer_headers import ANSWER_HEADERS
from magnetar.admin.http.errors import BadRequest, BodyTooLarge
from magnetar.admin.http.guard import Guard, check_body, may_be_browser
from magnetar.admin.http.query import header_of, login_header_of, query_of
from magnetar.admin.http.request import Alarm, BackupSource, Call
from magnetar.admin.http.router import Leaf, Tree, tree_of
from magnetar.admin.http.shown import shown_path, shown_query
from magnetar.admin.http.unsupported import PATH_SHOWN_MAX, why_not
from magnetar.admin.routes import ROUTES, Route
from magnetar.broker.broker import Broker
from magnetar.errors import AuthenticationFailed, MagnetarError, RightMissing
from magnetar.health import Vitals
from magnetar.log.events import ADMIN_CHANGE, AUTHENTICATION_FAILED, WEB_REQUEST_REFUSED
from magnetar.settings.listeners import Listener

log = logging.getLogger(__name__)

_JSON = "application/json"
TLS_EXTENSION = "magnetar.tls"
"""The key of a request's scope extensions under which the server tells the `common_name` of a client's certificate."""

Addresses: TypeAlias = Callable[[str, str], Listener]
Committed: TypeAlias = Callable[[], Awaitable[None]]
NewAlarm: TypeAlias = Callable[[Receive | None], Alarm]


class ErrorBody(msgspec.Struct):
    """The body of every error."""

    reason: str


class AdminApp:
    """An ASGI application. `addresses(host, listener)` are ours for a client that connected to `host`."""

    def __init__(
        self,
        broker: Broker,
        addresses: Addresses,
        committed: Committed,
        alarm: NewAlarm,
        vitals: Vitals,
        backups: BackupSource,
        guard: Guard,
    ) -> None:
        self._broker = broker
        self._guard = guard
        self._addresses = addresses
        self._committed = committed
        self._alarm = alarm
        self._vitals = vitals
        self._backups = backups
        self._shared: dict[type, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            response = _refused(400, "the client disconnected before its request was complete")
        except Exception as error:
            log.exception("%s %s failed", request.method, shown_path(request.url.path))
            response = _refused(500, f"unexpected {type(error).__name__}: see the broker's log")
        self._vitals.responded(response.status_code)
        for name, value in ANSWER_HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = _path_of(request)
        try:
            self._guard.check(request.method, path, request.headers, is_tls=request.scope["scheme"] == "https")
        except MagnetarError as error:
            self._log_refusal(request, path, str(error))
            return _refused(error.http_status, str(error))
        segments = path.split("/")
        found = _find(request.method, segments)
        if found is None:
            return _on_no_route(request.method, shown_path(path), _allowed(segments))
        leaf, values = found
        try:
            path_values = leaf.fixed | {
                name: _decoded(name, value) for name, value in zip(leaf.names, values, strict=True)
            }
            check_body(request.method, request.headers)
            principal = await self._principal_of(request, leaf.route)
            call = await self._allowed_call(request, leaf.route, path_values, principal)
            outcome = leaf.route.handler(call)
            if isinstance(outcome, Awaitable):
                outcome = await outcome
            response, reason = _response(outcome), ""
        except MagnetarError as error:
            response, reason = _refused(error.http_status, str(error)), str(error)
            if isinstance(error, AuthenticationFailed):
                response.headers["WWW-Authenticate"] = self._broker.authentication.challenge
        if leaf.route.changes:
            self._log_change(request, path, response.status_code, reason)
            # Errors wait too: "already exists" must stay true after a crash.
            await self._committed()
        return response

    def _log_change(self, request: Request, path: str, status: int, reason: str) -> None:
        """Without the body, which may have credentials. A GET that changes something does so as a side effect."""
        if request.method in ("GET", "HEAD"):
            return
        self._broker.event(
            ADMIN_CHANGE,
            method=request.method,
            path=shown_path(path) + shown_query(request.url.query),
            client=_client_of(request),
            status=status,
            reason=reason,
        )

    def _log_refusal(self, request: Request, path: str, reason: str) -> None:
        self._broker.event(
            WEB_REQUEST_REFUSED, method=request.method, path=shown_path(path), client=_client_of(request), reason=reason
        )

    async def _principal_of(self, request: Request, route: Route) -> Principal:
        """Before the body is read; raises AuthenticationFailed or RightMissing. Passwords are checked in a thread."""
        broker, authentication = self._broker, self._broker.authentication
        if not authentication.is_enabled or route.needs.is_open(broker.settings):
            return NO_ONE_ASKED
        shown = login_header_of(request, "Authorization")
        method = login_header_of(request, "X-Pulsar-Auth-Method-Name")
        original = login_header_of(request, "X-Original-Principal")
        tls = request.scope.get("extensions", {}).get(TLS_EXTENSION, {})
        client = request.client.host if request.client else "?"
        try:
            await self._check_password(shown, client)
            principal = authentication.request(shown, tls.get("common_name", ""), broker.now_ms(), method=method)
        except AuthenticationFailed as error:
            broker.event(AUTHENTICATION_FAILED, client=client, version="HTTP", reason=str(error))
            raise
        return on_behalf(principal, original, broker.settings, by_http=True)

    async def _check_password(self, authorization: str, client: str) -> None:
        """If there is one that is not known yet. The thread drops it when the request does not wait any more."""
        broker, alarm, is_waiting = self._broker, self._alarm(None), True
        work = broker.authentication.ahead_of_request(
            authorization, client, broker.now_ms(), is_wanted=lambda: is_waiting
        )
        if work is None:
            return
        try:
            broker.check_login(work, alarm.ring, client)
            await alarm.wait(PASSWORD_WAIT.limit)
        finally:
            is_waiting = False

    async def _allowed_call(self, request: Request, route: Route, path: dict[str, str], principal: Principal) -> Call:
        """Raises RightMissing. Asked before the body is read, and before anything is said about what exists."""
        if principal.role == INTERNAL_ROLE and not route.for_pipelines:
            raise RightMissing(f"role {INTERNAL_ROLE!r} may not do this: no pipeline needs it")
        call, authorization = self._call(request, path, principal), self._broker.authorization
        is_asked = authorization.is_enabled and not route.needs.is_open(self._broker.settings)
        if is_asked:
            authorization.require(principal, route.needs.rights(call))
        call = replace(call, body=await _body(request, route.body_size_max))
        if is_asked:  # the rights again: a body may take long, and they may be taken away meanwhile
            authorization.require(principal, chain(route.needs.rights(call), route.needs.targets(call)))
        return call

    def _call(self, request: Request, path: dict[str, str], principal: Principal) -> Call:
        """Without its body."""
        host, port = _host_of(request)
        query = query_of(request.scope["query_string"])
        return Call(
            broker=self._broker,
            path=path,
            query=query,
            body=b"",
            accept=request.headers.get("accept", ""),
            host=host,
            http_port=port,
            addresses=self._addresses,
            alarm=lambda: self._alarm(request.receive),
            vitals=self._vitals,
            backups=self._backups,
            principal=principal,
            may_be_browser=may_be_browser(request.headers),
            listener=header_of(request, "X-Pulsar-ListenerName") or query.get("listenerName", ""),
            is_tls=request.scope["scheme"] == "https",
            shared=self._shared,
        )


def create_app(
    broker: Broker,
    *,
    addresses: Addresses,
    committed: Committed,
    alarm: NewAlarm,
    vitals: Vitals,
    backups: BackupSource,
    guard: Guard,
) -> AdminApp:
    """`committed()` waits for the disk, `alarm()` creates an alarm to wait for, for one request."""
    return AdminApp(broker, addresses, committed, alarm, vitals, backups, guard)


@cache
def _tree() -> Tree:
    return tree_of(ROUTES)


def _find(method: str, segments: Sequence[str]) -> tuple[Leaf, list[str]] | None:
    """The route of a request. HEAD is answered like GET, where that is sure to change nothing."""
    if method != "HEAD":
        return _tree().find(method, segments)
    found = _tree().find("GET", segments)
    return None if found is None or found[0].route.changes else found


def _allowed(segments: Sequence[str]) -> list[str]:
    """The methods that this path supports."""
    methods = _tree().methods(segments)
    return sorted(methods | {"HEAD"} if _find("HEAD", segments) else methods)


def _client_of(request: Request) -> str:
    return f"{request.client.host}:{request.client.port}" if request.client else "?"


def _path_of(request: Request) -> str:
    """The path as sent: a %2F is part of a name and must not split it."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    return path.rstrip("/") if path.startswith("/admin/") else path


def _decoded(name: str, part: str) -> str:
    # A plus is a space, as in a form: Pulsar's Java tools encode names so.
    try:
        return unquote_to_bytes(part.replace("+", " ").encode("latin-1")).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name} in the path is not percent-encoded UTF-8") from error


def _host_of(request: Request) -> tuple[str, int]:
    """Host and port of the Host header; those of the socket if the header cannot be parsed."""
    server: tuple[str, int | None] = request.scope.get("server") or ("localhost", 80)
    default = 443 if request.scope["scheme"] == "https" else 80
    try:
        return request.url.hostname or server[0], request.url.port or default
    except ValueError:
        return server[0], server[1] or default


async def _body(request: Request, size_max: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > size_max:
            raise BodyTooLarge(f"request body exceeds the limit of {size_max} bytes")
    return bytes(body)


def _response(outcome: object) -> Response:
    if outcome is None:
        return Response(status_code=204)
    if isinstance(outcome, Response):
        return outcome
    return Response(msgspec.json.encode(outcome), media_type=_JSON)


def _refused(status: int, reason: str) -> Response:
    return Response(msgspec.json.encode(ErrorBody(reason)), status_code=status, media_type=_JSON)


def _on_no_route(method: str, path: str, allowed: Sequence[str]) -> Response:
    """The error for a request without a route: 501 for a known gap, 405 or 404 otherwise."""
    reason = None if method == "HEAD" and "GET" in allowed else why_not(method, path)
    if reason is not None:
        return _refused(501, reason)
    if allowed:
        response = _refused(405, f"{method} is not allowed on {path[:PATH_SHOWN_MAX]}")
        response.headers["Allow"] = ", ".join(allowed)
        return response
    return _refused(404, f"path {path[:PATH_SHOWN_MAX]} not found")
