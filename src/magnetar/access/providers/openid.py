"""Tokens of OpenID providers, as Pulsar's AuthenticationProviderOpenID: issuer, audience, and a set of keys.

The keys come from a file, which is read again when it changes; nothing is fetched.
"""

from __future__ import annotations

from typing import Any

import msgspec

from magnetar.access import json_web_token as jwt
from magnetar.access.principal import Principal
from magnetar.access.sources import ChangingFile
from magnetar.errors import AuthenticationFailed, ForeignToken, InvalidSetting
from magnetar.settings.authentication import AuthenticationSettings
from magnetar.settings.source_path import path_of

METHOD = "token"
ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")
_SETTING = "openIDKeySetFile"


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class OpenIdProvider:
    """A key is chosen by the id in the token, and must fit the algorithm in the token and its own."""

    name = "AuthenticationProviderOpenID"

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._issuers = _words(settings.openIDAllowedTokenIssuers, "openIDAllowedTokenIssuers")
        self._audiences = _words(settings.openIDAllowedAudiences, "openIDAllowedAudiences")
        for issuer in self._issuers:
            if not issuer.lower().startswith("https://"):
                raise InvalidSetting(f"openIDAllowedTokenIssuers: {issuer} does not begin with https://")
        self._claim = settings.openIDRoleClaim or "sub"
        self._leeway_s = settings.openIDAcceptedTimeLeewaySeconds
        path = path_of(settings.openIDKeySetFile, _SETTING) if settings.openIDKeySetFile else None
        if path is None:
            raise InvalidSetting(f"the authentication provider openid needs {_SETTING}, a file that exists")
        self._file = ChangingFile(path, _SETTING, lambda content: _keys_in(content, path))

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        token = data.strip()
        header = jwt.header_of(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise ForeignToken("the token has an algorithm that is not accepted", "UNSUPPORTED_ALGORITHM")
        key, own = self._key(header.get("kid"))
        if (own and own != algorithm) or not jwt.fits(key, algorithm):
            raise ForeignToken("the token has another algorithm than its key", "ALGORITHM_MISMATCH")
        claims = jwt.verified(token, key, (algorithm,))
        if claims.get("iss") not in self._issuers:
            raise AuthenticationFailed("the issuer of the token is not accepted", "UNSUPPORTED_ISSUER")
        for needed in ("iat", "exp", "sub"):
            if needed not in claims:
                raise AuthenticationFailed(f"the token has no claim {needed}", "INVALID_JWT_CLAIM")
        expires_ms = jwt.check_times(claims, now_ms, self._leeway_s, check_issued=True)
        if not jwt.has_audience(claims, "aud", self._audiences):
            raise AuthenticationFailed("the token is not for this broker", "INVALID_JWT_CLAIM")
        return Principal(jwt.role_of(claims, self._claim), METHOD, expires_ms)

    def _key(self, key_id: object) -> tuple[Any, str]:
        """The key and its own algorithm, if it has one."""
        found = self._file.current().get(key_id) if isinstance(key_id, str) else None
        if found is None:
            raise ForeignToken("no key of the key set has the id of the token", "ERROR_RETRIEVING_PUBLIC_KEY")
        return found


def _words(text: str, setting: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidSetting(f"the authentication provider openid needs {setting}")
    return words


def _keys_in(content: bytes, path: str) -> dict[str, tuple[Any, str]]:
    """Public keys by id; keys for encryption, of other kinds, too short or without an id are left out."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        keys = msgspec.json.decode(content, type=_KeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidSetting(f"{_SETTING}: {path} is not a JSON web key set") from None
    found: dict[str, tuple[Any, str]] = {}
    for one in keys:
        key_id, algorithm = one.get("kid"), one.get("alg")
        if not isinstance(key_id, str) or one.get("kty") not in ("RSA", "EC") or one.get("use", "sig") != "sig":
            continue
        public = {name: value for name, value in one.items() if name in ("kty", "n", "e", "crv", "x", "y")}
        try:
            key = PyJWK(public, "RS256" if one["kty"] == "RSA" else None).key
            jwt.check_size(key, key_id)
        except (PyJWTError, InvalidSetting, ValueError, TypeError, KeyError):
            continue
        found[key_id] = key, algorithm or ""
    if not found:
        raise InvalidSetting(
            f"{_SETTING}: {path} has no public key for signatures with an id and a size that is enough"
        )
    return found
