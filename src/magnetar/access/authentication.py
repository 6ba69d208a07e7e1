"""Authentication: from what a client shows to the principal that it is.

Owns the choice of the provider; each provider knows one method. Called for CONNECT, AUTH_RESPONSE and every HTTP
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from magnetar.access.principal import NO_ONE_ASKED, Principal
from magnetar.errors import AuthenticationFailed


class Provider(Protocol):
    """Checks the credentials of one method; raises `AuthenticationFailed`, never with a secret in its text."""

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        """`data` is what the client sent, `common_name` that of its verified certificate, or empty."""


class Authentication:
    """Without providers every client is let in as `NO_ONE_ASKED`: the broker has no authentication."""

    def __init__(self, providers: Mapping[str, Provider] | None = None) -> None:
        self._providers = providers

    @property
    def is_enabled(self) -> bool:
        return self._providers is not None

    def connect(self, method: str, data: bytes, common_name: str, now_ms: int) -> Principal:
        """The principal of a binary client, from CONNECT or AUTH_RESPONSE; raises `AuthenticationFailed`."""
        if self._providers is None:
            return NO_ONE_ASKED
        return self._provider(method).authenticate(data, common_name, now_ms)

    def request(self, authorization: str, common_name: str, now_ms: int) -> Principal:
        """The principal of an HTTP request, from its header Authorization; raises `AuthenticationFailed`."""
        if self._providers is None:
            return NO_ONE_ASKED
        scheme, _, data = authorization.partition(" ")
        method = {"bearer": "token", "basic": "basic", "": "tls"}.get(scheme.lower(), scheme)
        return self._provider(method).authenticate(data.strip().encode(), common_name, now_ms)

    def _provider(self, method: str) -> Provider:
        assert self._providers is not None
        provider = self._providers.get(method)
        if provider is None:
            known = ", ".join(self._providers)
            raise AuthenticationFailed(f"authentication method {method[:100]!r} is not accepted, only {known}")
        return provider
