"""HTTP connections within limits: their number, the requests that run at the same time, and the time of a request.

A subclass of uvicorn's protocol on h11, which has limits of sizes but none of time before the first reply.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import h11
import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from magnetar.admin.app import TLS_EXTENSION
from magnetar.admin.http.answer_headers import ANSWER_HEADERS
from magnetar.bounds import HTTP_BODY_WAIT, HTTP_HEAD_WAIT
from magnetar.security.server_tls import common_name_of
from magnetar.server.admission.seats import Seats

_HEAD_S = HTTP_HEAD_WAIT.limit
_BODY_S = HTTP_BODY_WAIT.limit

_HEADERS = tuple(
    (name.lower().encode(), value.encode())
    for name, value in {"Content-Type": "application/json", "Connection": "close", **ANSWER_HEADERS}.items()
)
"""Of the answers that are made here."""

Refused = Callable[[str, str], None]
"""A client and the reason why its connection was refused."""


class BoundedHttp(H11Protocol):
    """A head has its time from the first byte on, or from the start of the connection; a body from its head on.

    Between two requests uvicorn's own time-out counts, and while a request is handled none.
    """

    seats: Seats
    on_refused: Refused

    def __init__(self, *args: Any, leave: Callable[[], None] | None = None, **kwargs: Any) -> None:
        """`leave` is given for a connection that has a seat already."""
        super().__init__(*args, **kwargs)
        self._leave = leave
        self._awaited: Any = None  # the state of h11 whose end is awaited
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        host, port = self.client or ("?", 0)
        if self._leave is None:
            refusal = self.seats.refusal_for(host)
            if refusal is not None:
                self.on_refused(f"{host}:{port}", refusal)
                self._end(b"503 Service Unavailable", refusal)
                return
            self._leave = self.seats.enter(host)
        if self.scheme == "https":
            self.app = _with_common_name(self.app, common_name_of(transport.get_extra_info("peercert")))
        self._await(h11.IDLE)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        if self._leave is not None:
            self._leave()
        super().connection_lost(exc)

    def _watch(self) -> None:
        state = self.conn.their_state
        # Idle without data: the next request has not begun.
        is_begun = state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        self._await(state if is_begun and not self.transport.is_closing() else None)

    def _await(self, state: Any) -> None:
        if state is self._awaited and self._deadline is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = state
        if state is not None:
            seconds = _HEAD_S if state is h11.IDLE else _BODY_S
            self._deadline = self.loop.call_later(seconds, self._too_late, state, seconds)

    def _too_late(self, state: Any, seconds: int) -> None:
        what = "head" if state is h11.IDLE else "body"
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
        else:
            self._end(b"408 Request Timeout", f"the {what} of the request did not arrive within {seconds} s")

    def _end(self, status: bytes, reason: str) -> None:
        body = msgspec.json.encode({"reason": reason})
        lines = [b"HTTP/1.1 " + status, *(b"%s: %s" % pair for pair in _HEADERS), b"content-length: %d" % len(body)]
        with contextlib.suppress(OSError, RuntimeError):
            self.transport.write(b"\r\n".join((*lines, b"", body)))
        self.transport.close()


def bounded_http(seats: Seats, on_refused: Refused) -> type[BoundedHttp]:
    return cast(
        type[BoundedHttp],
        type("BoundedHttp", (BoundedHttp,), {"seats": seats, "on_refused": staticmethod(on_refused)}),
    )


def _with_common_name(app: Any, common_name: str) -> Any:
    """The application for requests of a connection whose client showed this name in a verified certificate."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[TLS_EXTENSION] = {"common_name": common_name}
        await app(scope, receive, send)

    return serve


class BoundedRequests:
    """An application that runs at most `requests_max` requests at the same time; more are refused with 503."""

    def __init__(self, app: ASGIApp, requests_max: int) -> None:
        self._app = app
        self._requests_max = requests_max
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if 0 < self._requests_max <= self._running:
            reason = f"{self._running} requests are running, maxConcurrentHttpRequests is {self._requests_max}"
            await send({"type": "http.response.start", "status": 503, "headers": list(_HEADERS)})
            await send({"type": "http.response.body", "body": msgspec.json.encode({"reason": reason})})
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
