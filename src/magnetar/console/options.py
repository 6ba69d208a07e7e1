"""The options of a console, and its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from magnetar.security.credentials import Security

PORT_DEFAULT = 8090
BIND_DEFAULT = "127.0.0.1"

SESSIONS_MAX = 1000
"""Further ones replace the one that was used last the longest time ago."""

SESSION_IDLE_S = 12 * 3600
SOCKETS_MAX = 500
SOCKETS_OF_A_SESSION_MAX = 20
PAGES_OPEN_MAX = 1000
"""Pages that were requested and have no socket yet count, for the minute that they are kept."""

TOKEN_SIZE_MAX = 16 << 10
FORM_SIZE_MAX = TOKEN_SIZE_MAX + 1024
REQUESTS_MAX = 64
REQUESTS_OF_A_SESSION_MAX = 8
ANSWER_TIMEOUT_S = 20.0
ANSWER_SIZE_MAX = 32 << 20
ROWS_PER_PAGE = 50
PAYLOAD_SHOWN_MAX = 64 << 10
TEXT_SHOWN_MAX = 2000
TYPED_CONFIRMATION_FROM = 100
"""An action that touches so many messages has to be confirmed by typing their number."""


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`security` has trusted certificates and no login: each session logs in with its own token.

    `trusted_hosts` are names of the console in addition to loopback and IP addresses, for one behind a proxy.
    `until_eof`: it ends when its standard input does, as that of a broker which started it.
    """

    url: str
    security: Security | None = None
    bind: str = BIND_DEFAULT
    port: int = PORT_DEFAULT
    without_authentication: bool = False
    trusted_hosts: tuple[str, ...] = ()
    until_eof: bool = False
