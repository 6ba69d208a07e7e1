"""The gate in front of all pages: checks each request and web socket, finds its session, and answers logins.

An ASGI application around NiceGUI's. Whatever it lets through has a session, in the scope; a web socket also belongs to
a page of that session. Owns cookies and the plain pages.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.responses import RedirectResponse, Response

from magnetar.client.errors import ClientError
from magnetar.console.options import FORM_SIZE_MAX, ConsoleOptions
from magnetar.console.rest.admin import BrokerAccess
from magnetar.console.rest.capabilities import needs_login
from magnetar.console.rest.errors import BrokerError, BrokerUnreachable, LoginRefused
from magnetar.console.web.assets import asset
from magnetar.console.web.documentation import DOCUMENTATION_PATH, documentation
from magnetar.console.web.headers import SafeSend, Scope, Send
from magnetar.console.web.plain_page import login_page, refused_page, unreachable_page
from magnetar.console.web.request_check import RequestCheck, values_of
from magnetar.console.web.session import BrowserSession, Sessions
from magnetar.settings.addresses import is_loopback

Receive = Callable[[], Awaitable[Any]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION_KEY = "magnetar.session"
SOCKET_PATH = "/_nicegui_ws/"
LIBRARY_PATH = "/_nicegui/"
_LOGIN_KNOWN_S = 5.0
_TOO_MANY_SOCKETS = 1013
_REFUSED_SOCKET = 1008


class Gate:
    """`page_session` is the session of an open page, by its id, and `has_room` whether another page may be opened."""

    def __init__(
        self,
        app: App,
        options: ConsoleOptions,
        broker: BrokerAccess,
        sessions: Sessions,
        page_session: Callable[[str], BrowserSession | None],
        has_room: Callable[[], bool],
    ) -> None:
        self._app = app
        self._options = options
        self._broker = broker
        self._sessions = sessions
        self._page_session = page_session
        self._has_room = has_room
        self._check = RequestCheck({options.bind, *options.trusted_hosts})
        self._stranger = broker.api()
        self._documentation = documentation()
        self._login_known: tuple[float, bool] = (0.0, False)
        self.port = options.port

    async def close(self) -> None:
        await self._sessions.close()
        await self._stranger.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [one for one in scope["headers"] if one[0] != b"x-forwarded-prefix"]
            response = await self._answer(scope, receive)
            await (response or self._app)(scope, receive, SafeSend(self._with_cookie(scope, send)))
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    # -- requests

    async def _answer(self, scope: Scope, receive: Receive) -> App | None:
        """The answer, or None if it is a page's."""
        method, path = scope["method"], scope["path"]
        fault = self._check.fault(method, scope["headers"])
        if fault:
            return refused_page(fault)
        if path.startswith(SOCKET_PATH):
            return refused_page("only web sockets are served here")
        if method == "POST" and path == "/login":
            return await self._log_in(scope, receive)
        if method == "POST" and path == "/logout":
            return await self._log_out(scope)
        if method not in ("GET", "HEAD"):
            return refused_page(f"{method} is refused", 405)
        if (found := asset(path)) is not None or path.startswith(LIBRARY_PATH):
            return found
        if path == "/login":
            return login_page(self._broker.url, _next_of(scope))
        if path.startswith(DOCUMENTATION_PATH) and self._documentation is not None:
            return self._documentation
        return await self._enter(scope)

    async def _enter(self, scope: Scope) -> Response | None:
        session = self._session_of(scope)
        if session is None:
            try:
                if await self._asks_for_login():
                    target = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}").rstrip("?")
                    return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
            except BrokerUnreachable as error:
                return unreachable_page(str(error))
            session = await self._sessions.start()
            scope["magnetar.cookie"] = self._cookie(session.id, scope)
        if not self._has_room():
            return refused_page("too many pages are open: close some, and try again in a minute", 503)
        scope[SESSION_KEY] = session
        return None

    async def _asks_for_login(self) -> bool:
        """A console for other machines wants a login always, except without authentication by an explicit option."""
        if not is_loopback(self._options.bind) and not self._options.without_authentication:
            return True
        asked_s, answer = self._login_known
        if not asked_s or time.monotonic() - asked_s > _LOGIN_KNOWN_S:
            answer = await needs_login(self._stranger)
            self._login_known = (time.monotonic(), answer)
        return answer

    # -- logins

    async def _log_in(self, scope: Scope, receive: Receive) -> Response:
        next_path = _next_of(scope)
        token = _token_of(await _body(receive))
        if not token:
            return login_page(self._broker.url, next_path, "Give a token.")
        try:
            fault = await self._fault_of(token)
        except BrokerUnreachable as error:
            return unreachable_page(str(error))
        if fault:
            return login_page(self._broker.url, next_path, fault)
        if (earlier := self._session_of(scope)) is not None:
            await self._sessions.end(earlier)
        session = await self._sessions.start(token)
        response = RedirectResponse(next_path, 303)
        response.raw_headers.append((b"set-cookie", self._cookie(session.id, scope)))
        return response

    async def _fault_of(self, token: str) -> str:
        """Why a token is not accepted; empty if it is."""
        try:
            api = self._broker.api(token)
        except ClientError:
            return "This is not a token: it has characters that no token has."
        try:
            await api.get(list[str], "clusters")
        except LoginRefused as error:
            return f"The broker refuses this token: {error.reason}"
        except BrokerUnreachable:
            raise
        except BrokerError:
            pass  # the role is known, and may not list clusters
        finally:
            await api.close()
        return ""

    async def _log_out(self, scope: Scope) -> Response:
        session = self._session_of(scope)
        if session is not None:
            await self._sessions.end(session)
        response = RedirectResponse("/login" if session is None or session.is_logged_in else "/", 303)
        response.raw_headers.append((b"set-cookie", self._cookie("", scope) + b"; Max-Age=0"))
        return response

    # -- cookies

    @property
    def cookie_name(self) -> str:
        """Ports of a host share their cookies."""
        return f"magnetar_console_{self.port}"

    def _cookie(self, value: str, scope: Scope) -> bytes:
        is_tls = any(one.startswith("https:") for one in values_of(scope["headers"], b"origin"))
        secure = "; Secure" if is_tls else ""
        return f"{self.cookie_name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}".encode()

    def _session_of(self, scope: Scope) -> BrowserSession | None:
        cookies: SimpleCookie = SimpleCookie()
        for header in values_of(scope["headers"], b"cookie"):
            try:
                cookies.load(header)
            except CookieError:
                return None
        found = cookies.get(self.cookie_name)
        return None if found is None else self._sessions.find(found.value)

    def _with_cookie(self, scope: Scope, send: Send) -> Send:
        async def sending(message: Any) -> None:
            cookie = scope.get("magnetar.cookie")
            if cookie and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"set-cookie", cookie)]
            await send(message)

        return sending

    # -- web sockets

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = self._session_of(scope)
        page = parse_qs(scope["query_string"].decode("latin-1")).get("client_id", [""])[0]
        is_ours = not self._check.fault("GET", scope["headers"], is_socket=True)
        if not is_ours or session is None or self._page_session(page) is not session:
            await _refuse(receive, send, _REFUSED_SOCKET)
            return
        if not self._sessions.open_socket(session):
            await _refuse(receive, send, _TOO_MANY_SOCKETS)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._sessions.close_socket(session)


async def _refuse(receive: Receive, send: Send, code: int) -> None:
    await receive()
    await send({"type": "websocket.close", "code": code})


async def _body(receive: Receive) -> bytes:
    """The body of a form; a larger one is cut, and is then no form."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False) or len(body) > FORM_SIZE_MAX:
            return body[:FORM_SIZE_MAX]


def _token_of(body: bytes) -> str:
    return parse_qs(body.decode("latin-1"), max_num_fields=10).get("token", [""])[0].strip()


def _next_of(scope: Scope) -> str:
    """The page to show after a login: one of ours."""
    target = parse_qs(scope["query_string"].decode("latin-1")).get("next", ["/"])[0]
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_ours and not target.startswith(("/login", "/logout")) else "/"
