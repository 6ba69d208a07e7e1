"""The proof of the broker's own pipelines process: a random token of one start of the broker, by method `token`.

The server makes it and hands it over the pipe that the process inherits; it is never on a disk, in a command line or in
an environment. `Authentication` asks this provider before the others, whose tokens may have any form. Knows no rights.
"""

from __future__ import annotations

import hmac
import secrets

from magnetar.access.principal import INTERNAL_ROLE, Principal
from magnetar.errors import AuthenticationFailed

METHOD = "token"
_TOKEN_BYTES = 32
_PRINCIPAL = Principal(INTERNAL_ROLE, "internal")


class InternalToken:
    """The token of one start. Two never match; `repr` does not show it."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(_TOKEN_BYTES)
        self._bytes = self.text.encode()

    def matches(self, data: bytes) -> bool:
        """In constant time. What does not match is for the next provider."""
        return hmac.compare_digest(data, self._bytes)

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        """As every provider."""
        if not self.matches(data):
            raise AuthenticationFailed("the token is not that of the pipelines process of this broker")
        return _PRINCIPAL
