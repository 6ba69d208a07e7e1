"""Sessions of browsers: each has its own requests to the broker, with its own token.

A session is in memory alone, ends with the process, by logout or when it is not used, and is named by a random id in a
cookie that no script can read and no other site can send. Owns their number. Does not know HTTP.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.console.options import SESSION_IDLE_S, SESSIONS_MAX, SOCKETS_MAX, SOCKETS_OF_A_SESSION_MAX
from magnetar.console.rest.capabilities import Capabilities, capabilities_of
from magnetar.security.token import subject_of

if TYPE_CHECKING:
    from magnetar.console.rest.admin import AdminApi, BrokerAccess

_ID_BYTES = 32
_CAPABILITIES_S = 60.0


class BrowserSession:
    """`role` is that of the token, empty without one. `zone` is the browser's time zone once it is known."""

    def __init__(self, api: AdminApi, role: str, is_logged_in: bool) -> None:
        self.id = secrets.token_urlsafe(_ID_BYTES)
        self.api = api
        self.role = role
        self.is_logged_in = is_logged_in
        self.is_open = True
        self.zone = ""
        self.theme: bool | None = None
        """True is dark, None as the system."""

        self.used_s = time.monotonic()
        self.sockets = 0
        self._capabilities: Capabilities | None = None
        self._asked_s = 0.0

    async def capabilities(self) -> Capabilities:
        """What the broker can do; raises `BrokerError`."""
        now_s = time.monotonic()
        if self._capabilities is None or now_s - self._asked_s > _CAPABILITIES_S:
            self._capabilities = await capabilities_of(self.api)
            self._asked_s = now_s
        return self._capabilities


class Sessions:
    """`on_end` is called with each session that ends, to close its pages."""

    def __init__(self, broker: BrokerAccess, on_end: Callable[[BrowserSession], None]) -> None:
        self._broker = broker
        self._on_end = on_end
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()
        self.sockets = 0

    def __len__(self) -> int:
        return len(self._sessions)

    async def start(self, token: str | None = None) -> BrowserSession:
        """A new session always has a new id, so one that was known before a login is worth nothing after it."""
        await self._end_idle()
        while len(self._sessions) >= SESSIONS_MAX:
            await self.end(next(iter(self._sessions.values())))
        session = BrowserSession(self._broker.api(token), subject_of(token or "") or "", token is not None)
        self._sessions[session.id] = session
        return session

    def find(self, id: str) -> BrowserSession | None:
        session = self._sessions.get(id)
        if session is None or time.monotonic() - session.used_s > SESSION_IDLE_S:
            return None
        session.used_s = time.monotonic()
        self._sessions.move_to_end(id)
        return session

    async def end(self, session: BrowserSession) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        session.is_open = False
        self._on_end(session)
        await session.api.close()

    async def _end_idle(self) -> None:
        """The first ones are those that were used last the longest time ago."""
        limit_s = time.monotonic() - SESSION_IDLE_S
        while self._sessions and (first := next(iter(self._sessions.values()))).used_s < limit_s:
            await self.end(first)

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            await self.end(session)

    # -- web sockets

    def open_socket(self, session: BrowserSession) -> bool:
        """Whether there is room for one more."""
        if self.sockets >= SOCKETS_MAX or session.sockets >= SOCKETS_OF_A_SESSION_MAX:
            return False
        self.sockets += 1
        session.sockets += 1
        return True

    def close_socket(self, session: BrowserSession) -> None:
        self.sockets -= 1
        session.sockets -= 1
