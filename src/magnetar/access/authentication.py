"""Authentication: from what a client shows to the principal that it is.

Owns the choice of the provider, by Pulsar's rules, and the counts of successes and failures; each provider knows one
method. Called for CONNECT, AUTH_RESPONSE and every HTTP request.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from magnetar.access.principal import INTERNAL_ROLE, NO_ONE_ASKED, Principal
from magnetar.access.providers.internal import InternalToken
from magnetar.errors import AuthenticationFailed, ForeignToken, InvalidSetting
from magnetar.settings.authentication import AuthenticationSettings

Work = Callable[[], None]
IsWanted = Callable[[], bool]

_SCHEMES = {"bearer": "token", "basic": "basic"}
_CLASSES = {
    "token": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "basic": "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic",
    "tls": "org.apache.pulsar.broker.authentication.AuthenticationProviderTls",
    "openid": "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID",
}


class Provider(Protocol):
    """Checks the credentials of one method; raises `AuthenticationFailed`, never with a secret in its text.

    `name` is that of Pulsar's class, for metrics.
    """

    name: str

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        """`data` is what the client sent, `common_name` that of its verified certificate, or empty."""


@runtime_checkable
class SlowProvider(Protocol):
    """A provider whose checks take long: its work runs in a thread before `authenticate` is called.

    The thread asks `is_wanted` when it comes to the work, which is dropped when the client has gone.
    """

    def ahead(self, data: bytes, address: str, now_ms: int, is_wanted: IsWanted) -> Work | None: ...


class Authentication:
    """Without providers every client is let in as `NO_ONE_ASKED`: the broker has no authentication.

    `providers` are tried in their order, for each method. `successes` are counted by provider and method, `failures` by
    provider, method and reason.
    """

    def __init__(
        self,
        providers: Mapping[str, Sequence[Provider]] | None = None,
        *,
        anonymous: str = "",
        internal: InternalToken | None = None,
    ) -> None:
        self._providers = providers
        self._anonymous = Principal(anonymous, "anonymous") if anonymous else None
        self.internal = internal
        self.successes: Counter[tuple[str, ...]] = Counter()
        self.failures: Counter[tuple[str, ...]] = Counter()

    @staticmethod
    def from_settings(settings: AuthenticationSettings, internal: InternalToken | None = None) -> Authentication:
        """Reads the keys; raises `InvalidSetting` if no client could ever be authenticated."""
        if not settings.authenticationEnabled:
            return Authentication()
        if settings.anonymousUserRole == INTERNAL_ROLE:
            raise InvalidSetting(f"anonymousUserRole {INTERNAL_ROLE} is the role of the broker's own process")
        providers: dict[str, list[Provider]] = {}
        for word in filter(None, (word.strip() for word in settings.authenticationProviders.split(","))):
            method, provider = _create(word, settings)
            providers.setdefault(method, []).append(provider)
        if not providers:
            raise InvalidSetting("authenticationEnabled=true needs authenticationProviders: " + ", ".join(_CLASSES))
        return Authentication(providers, anonymous=settings.anonymousUserRole, internal=internal)

    @property
    def is_enabled(self) -> bool:
        return self._providers is not None

    @property
    def methods(self) -> frozenset[str]:
        """Those by which a client can log in."""
        return frozenset(self._providers or ())

    @property
    def challenge(self) -> str:
        """The header WWW-Authenticate of a refused request."""
        schemes = {"token": 'Bearer realm="pulsar"', "basic": 'Basic realm="pulsar", charset="UTF-8"'}
        return ", ".join(text for method, text in schemes.items() if method in (self._providers or ())) or "Mutual"

    # -- binary clients

    def ahead(self, method: str, data: bytes, address: str, now_ms: int, *, is_wanted: IsWanted) -> Work | None:
        """Work that must be done in a thread before `connect`; None if there is none. Raises `AuthenticationFailed`."""
        for provider in (self._providers or {}).get(method, ()):
            if isinstance(provider, SlowProvider):
                try:
                    return provider.ahead(data, address, now_ms, is_wanted)
                except AuthenticationFailed as error:
                    self._failed(provider, method, error)
                    raise
        return None

    def connect(self, method: str, data: bytes, common_name: str, now_ms: int) -> Principal:
        """The principal of a binary client, from CONNECT or AUTH_RESPONSE; raises `AuthenticationFailed`.

        A client with a method that no provider has is anonymous, where that is allowed.
        """
        if self._providers is None:
            return NO_ONE_ASKED
        if method == "token" and self.internal is not None and self.internal.matches(data):
            return self.internal.authenticate(data, common_name, now_ms)
        if method in self._providers:
            return self._first(method, data, common_name, now_ms)
        if self._anonymous is not None:
            return self._anonymous
        known = ", ".join(self._providers)
        shown = f"method {method[:100]!r} is not accepted" if method not in ("", "none") else "is required"
        raise AuthenticationFailed(f"authentication {shown}: this broker accepts {known}")

    # -- HTTP

    def ahead_of_request(self, authorization: str, address: str, now_ms: int, *, is_wanted: IsWanted) -> Work | None:
        """The same for `request`."""
        method, data = _shown(authorization)
        return self.ahead(method, data, address, now_ms, is_wanted=is_wanted) if method == "basic" else None

    def request(self, authorization: str, common_name: str, now_ms: int, *, method: str = "") -> Principal:
        """The principal of an HTTP request, from its header Authorization or its certificate; `method` is what the
        header X-Pulsar-Auth-Method-Name has. Raises `AuthenticationFailed`.

        Wrong credentials are refused, also where clients without any are anonymous.
        """
        if self._providers is None:
            return NO_ONE_ASKED
        scheme, data = _shown(authorization)
        if scheme == "token" and self.internal is not None and self.internal.matches(data):
            return self.internal.authenticate(data, common_name, now_ms)
        if method:
            if method not in self._providers:
                raise AuthenticationFailed(f"authentication method {method[:100]!r} is not accepted")
            return self.connect(method, data if scheme == method else b"", common_name, now_ms)
        failure: AuthenticationFailed | None = None
        for candidate in (scheme, "tls" if common_name else ""):
            if candidate in self._providers:
                try:
                    return self.connect(candidate, data, common_name, now_ms)
                except AuthenticationFailed as error:
                    failure = failure or error
        if failure is None and self._anonymous is not None and not authorization:
            return self._anonymous
        raise failure or AuthenticationFailed("authentication is required")

    def _first(self, method: str, data: bytes, common_name: str, now_ms: int) -> Principal:
        """Of the first provider that accepts it; the error is that of the first one that knows the token."""
        assert self._providers is not None
        failure: AuthenticationFailed | None = None
        for provider in self._providers[method]:
            try:
                principal = provider.authenticate(data, common_name, now_ms)
                if principal.role == INTERNAL_ROLE:
                    raise AuthenticationFailed(f"the role {INTERNAL_ROLE} is that of the broker's own process")
            except AuthenticationFailed as error:
                self._failed(provider, method, error)
                if failure is None or isinstance(failure, ForeignToken):
                    failure = error
            else:
                self.successes[provider.name, method] += 1
                return principal
        assert failure is not None, "each method has a provider"
        raise failure

    def _failed(self, provider: Provider, method: str, error: AuthenticationFailed) -> None:
        self.failures[provider.name, method, error.code] += 1


def _shown(authorization: str) -> tuple[str, bytes]:
    """Method and data of a header Authorization; the method is empty if it is none of ours."""
    scheme, _, text = authorization.partition(" ")
    method = _SCHEMES.get(scheme.lower(), "")
    data = text.strip().encode("utf-8", "surrogateescape")
    if method == "basic":
        try:
            return method, base64.b64decode(data, validate=True)
        except binascii.Error:
            return method, b""
    return method, data


def _create(word: str, settings: AuthenticationSettings) -> tuple[str, Provider]:
    """The provider of this name, with its method. Libraries are imported by those that need them."""
    name = next((short for short, full in _CLASSES.items() if word in (short, full)), None)
    if name == "token":
        from magnetar.access.providers.token import TokenProvider

        return "token", TokenProvider(settings)
    if name == "basic":
        from magnetar.access.providers.basic import BasicProvider

        return "basic", BasicProvider(settings)
    if name == "openid":
        from magnetar.access.providers.openid import OpenIdProvider

        return "token", OpenIdProvider(settings)
    if name == "tls":
        from magnetar.access.providers.certificate import CertificateProvider

        return "tls", CertificateProvider()
    known = ", ".join(f"{short} ({full})" for short, full in _CLASSES.items())
    raise InvalidSetting(f"authenticationProviders: {word} is not supported; supported are {known}")
