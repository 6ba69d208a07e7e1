"""Tokens (JSON web tokens), as Pulsar's AuthenticationProviderToken: one key, a claim with the role, an audience.

The kind of the key decides the algorithms, never the token. Knows no files but those of its settings.
"""

from __future__ import annotations

from magnetar.access import json_web_token as jwt
from magnetar.access.principal import Principal
from magnetar.access.sources import read_source
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.authentication import AuthenticationSettings

METHOD = "token"


class TokenProvider:
    """The key is read once, at the start."""

    name = "AuthenticationProviderToken"

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._key, self._algorithms = _key_of(settings)
        self._claim = settings.tokenAuthClaim or "sub"
        self._audience_claim = settings.tokenAudienceClaim
        self._audience = settings.tokenAudience
        self._skew_s = settings.tokenAllowedClockSkewSeconds
        if self._audience_claim and not self._audience:
            raise InvalidSetting("tokenAudienceClaim needs tokenAudience: without it no token would be accepted")
        if self._audience and not self._audience_claim:
            raise InvalidSetting("tokenAudience needs tokenAudienceClaim: without it no audience would be checked")

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        if not data.strip():
            raise AuthenticationFailed("there is no token")
        claims = jwt.verified(data.strip(), self._key, self._algorithms)
        expires_ms = jwt.check_times(claims, now_ms, self._skew_s)
        if self._audience_claim and not jwt.has_audience(claims, self._audience_claim, [self._audience]):
            raise AuthenticationFailed("the token is not for this broker", "INVALID_AUDIENCES")
        return Principal(jwt.role_of(claims, self._claim), METHOD, expires_ms)


def _key_of(settings: AuthenticationSettings) -> tuple[bytes | jwt.PublicKey, tuple[str, ...]]:
    """A secret key comes first, as in Pulsar."""
    if settings.tokenSecretKey:
        secret = read_source(settings.tokenSecretKey, "tokenSecretKey")
        jwt.check_secret(secret, "tokenSecretKey")
        return secret, jwt.secret_algorithms(secret)
    if settings.tokenPublicKey:
        content = read_source(settings.tokenPublicKey, "tokenPublicKey")
        key = jwt.read_public_key(content, settings.tokenPublicAlg, "tokenPublicKey")
        return key, jwt.public_algorithms(key, settings.tokenPublicAlg)
    raise InvalidSetting("the authentication provider token needs tokenSecretKey or tokenPublicKey")
