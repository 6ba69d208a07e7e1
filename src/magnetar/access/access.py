"""Access: authentication and the rules of authorization as the settings say, before there is a catalog to ask.

Owns the check that all of it can be had together: a broker makes it before it opens its data, so that a key that cannot
be read ends the start and nothing else. What asks for protection and would have no effect ends it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from magnetar.access.authentication import Authentication
from magnetar.access.authorization import Authorization, rules_of
from magnetar.access.decision import Rules, View
from magnetar.access.providers.internal import InternalToken
from magnetar.errors import InvalidSetting
from magnetar.settings.settings import DEFAULTS
from magnetar.settings.tls import TlsSettings

_NEED_AUTHENTICATION = {
    "authorizationEnabled": "no client has a role",
    "authenticateMetricsEndpoint": "any client reads `/metrics`",
    "authenticateOriginalAuthData": "nothing that a proxy shows is checked",
}
"""What asks for protection, and what is the case without authentication."""

_OF_AUTHENTICATION = (
    "authenticationProviders",
    "tokenSecretKey",
    "tokenPublicKey",
    "tokenPublicAlg",
    "tokenAuthClaim",
    "tokenAudienceClaim",
    "tokenAudience",
    "tokenAllowedClockSkewSeconds",
    "basicAuthConf",
    "openIDAllowedTokenIssuers",
    "openIDAllowedAudiences",
    "openIDRoleClaim",
    "openIDAcceptedTimeLeewaySeconds",
    "openIDKeySetFile",
    "proxyRoles",
    "superUserRoles",
)
"""What many files of Pulsar have while authentication is off. Alone it protects nothing there either."""

_OF_TLS = ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath")
_OF_PORTS = {
    "brokerServicePortTls": ("tlsProtocols", "tlsCiphers"),
    "webServicePortTls": ("webServiceTlsProtocols", "webServiceTlsCiphers"),
}


class Access(NamedTuple):
    """Without `rules`, the broker has no authorization. `internal_token` is for its own pipelines process."""

    authentication: Authentication
    rules: Rules | None
    internal_token: InternalToken

    @staticmethod
    def from_settings(settings: TlsSettings) -> Access:
        """Reads the keys; raises `InvalidSetting`."""
        _check_effect(settings)
        internal = InternalToken()
        authentication = Authentication.from_settings(settings, internal)
        if authentication.methods == {"tls"}:
            _check_certificates(settings)
        return Access(authentication, rules_of(settings) if settings.authorizationEnabled else None, internal)

    def authorization(self, view: View) -> Authorization:
        """By the records that the view shows."""
        return Authorization(view, self.rules) if self.rules is not None else Authorization()


def without_effect(settings: TlsSettings) -> Iterator[str]:
    """A warning for settings that do nothing without another one."""
    if not settings.authenticationEnabled:
        yield from _idle(
            settings, _OF_AUTHENTICATION, "authenticationEnabled is not true: any client may do everything"
        )
    elif not settings.authorizationEnabled:
        yield from _idle(
            settings,
            ("superUserRoles",),
            "authorizationEnabled is not true: any client that is let in may do everything",
        )
    if not _has_tls(settings):
        yield from _idle(settings, _OF_TLS, "no port has TLS: set brokerServicePortTls and webServicePortTls")
    for port, names in _OF_PORTS.items():
        if getattr(settings, port) is None:
            yield from _idle(settings, names, f"{port} is empty")


def _idle(settings: TlsSettings, names: tuple[str, ...], reason: str) -> Iterator[str]:
    found = [name for name in names if getattr(settings, name) != DEFAULTS[name]]
    if found:
        yield f"{', '.join(found)}: without effect, because {reason}"


def _check_effect(settings: TlsSettings) -> None:
    """Raises `InvalidSetting` for protection that is asked for and would be missing."""
    if not settings.authenticationEnabled:
        for name, consequence in _NEED_AUTHENTICATION.items():
            if getattr(settings, name):
                raise InvalidSetting(f"{name}=true needs authenticationEnabled=true: without it, {consequence}")
    if settings.tlsRequireTrustedClientCertOnConnect and not _has_tls(settings):
        raise InvalidSetting(
            "tlsRequireTrustedClientCertOnConnect=true needs brokerServicePortTls or webServicePortTls: on a port"
            " without TLS, no client shows a certificate"
        )


def _check_certificates(settings: TlsSettings) -> None:
    """For a broker whose clients log in by certificate alone. Raises `InvalidSetting` if it would verify none."""
    if not _has_tls(settings):
        reason = "brokerServicePortTls or webServicePortTls: on a port without TLS, no client shows a certificate"
    elif not settings.tlsTrustCertsFilePath:
        reason = "tlsTrustCertsFilePath: without authorities, no certificate of a client is verified"
    elif settings.tlsAllowInsecureConnection:
        reason = "tlsAllowInsecureConnection=false: otherwise no certificate of a client is verified"
    else:
        return
    raise InvalidSetting(f"authenticationProviders=tls needs {reason}")


def _has_tls(settings: TlsSettings) -> bool:
    return settings.brokerServicePortTls is not None or settings.webServicePortTls is not None
