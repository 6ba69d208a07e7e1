"""Tokens of OpenID providers: issuer, audience, claims, and keys from a file that changes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from magnetar.access.providers.openid import OpenIdProvider
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.refused import asks_for_protection
from magnetar.settings.settings import Settings
from tests.access.keys import CURVE, RSA, SECRET, SHORT_RSA, token
from tests.access.reports import reported

NOW_S = 1_700_000_000
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer",
    "aud": ["other", "broker"],
    "iat": NOW_S,
    "exp": NOW_S + 60,
    "sub": "ann",
}


def key_set(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


def rsa_key(key: Any = RSA, **more: str) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "r", **more}


def provider(folder: Path, content: str | None = None, **settings: str) -> OpenIdProvider:
    (folder / "keys").write_text(content or key_set(rsa_key()))
    given = {"openIDAllowedTokenIssuers": "https://issuer", "openIDAllowedAudiences": "broker", **settings}
    return OpenIdProvider(Settings(openIDKeySetFile=f"file://{folder}/keys", **given))  # type: ignore[arg-type]


def role(one: OpenIdProvider, data: bytes) -> str:
    return one.authenticate(data, "", NOW_S * 1000).role


def test_a_token_of_the_issuer_is_accepted(tmp_path: Path) -> None:
    one = provider(tmp_path)
    found = one.authenticate(token(RSA, "RS256", kid="r", **CLAIMS), "", NOW_S * 1000)
    assert (found.role, found.method, found.expires_ms) == ("ann", "token", (NOW_S + 60) * 1000)


def test_keys_of_a_curve_too(tmp_path: Path) -> None:
    public = {**ECAlgorithm.to_jwk(CURVE.public_key(), as_dict=True), "kid": "e"}
    assert role(provider(tmp_path, key_set(public)), token(CURVE, "ES256", kid="e", **CLAIMS)) == "ann"


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "other"},
        {"exp": NOW_S - 1},
        {"exp": None},
        {"iat": None},
        {"iat": NOW_S + 10},
        {"sub": None},
    ],
)
def test_each_claim_is_checked(tmp_path: Path, changed: dict[str, Any]) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    with pytest.raises(AuthenticationFailed):
        role(provider(tmp_path), token(RSA, "RS256", kid="r", **claims))


def test_the_key_decides_the_algorithm(tmp_path: Path) -> None:
    for key, alg, kid in ((SECRET, "HS256", "r"), (RSA, "RS256", "x"), (RSA, "RS256", None), (CURVE, "ES256", "r")):
        with pytest.raises(AuthenticationFailed):
            role(provider(tmp_path), token(key, alg, kid=kid, **CLAIMS))
    with pytest.raises(AuthenticationFailed, match="another algorithm"):
        role(provider(tmp_path, key_set(rsa_key(alg="RS512"))), token(RSA, "RS256", kid="r", **CLAIMS))


def test_keys_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    one = provider(tmp_path)
    (tmp_path / "keys").write_text("{")
    os.utime(tmp_path / "keys", ns=(1, 1))
    assert role(one, token(RSA, "RS256", kid="r", **CLAIMS)) == "ann"
    (tmp_path / "keys").write_text(key_set(rsa_key(kid="new")))
    os.utime(tmp_path / "keys", ns=(2, 2))
    assert role(one, token(RSA, "RS256", kid="new", **CLAIMS)) == "ann"
    with pytest.raises(AuthenticationFailed):
        role(one, token(RSA, "RS256", kid="r", **CLAIMS))


def test_a_key_set_that_cannot_be_used_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "magnetar")
    one, file = provider(tmp_path), tmp_path / "keys"
    for change, reason in (
        (lambda: file.write_text("{hidden"), f"openIDKeySetFile: {file} is not a JSON web key set"),
        (lambda: file.write_text(key_set()), f"openIDKeySetFile: {file} has no public key"),
        (file.unlink, f"openIDKeySetFile: {file} cannot be read: No such file or directory"),
    ):
        change()
        for _ in range(3):
            assert role(one, token(RSA, "RS256", kid="r", **CLAIMS)) == "ann"
        ((level, text),) = reported(caplog)
        assert level == "ERROR" and reason in text and "hidden" not in text
    file.write_text(key_set(rsa_key(kid="new")))
    assert role(one, token(RSA, "RS256", kid="new", **CLAIMS)) == "ann"
    assert [level for level, _ in reported(caplog)] == ["INFO"]


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("{}", {}),
        (key_set(), {}),
        (key_set(rsa_key(SHORT_RSA)), {}),
        (key_set({"kty": "oct", "k": "AAAA", "kid": "r"}), {}),
        (None, {"openIDAllowedAudiences": ""}),
        (None, {"openIDAllowedTokenIssuers": ""}),
        (None, {"openIDAllowedTokenIssuers": "http://issuer"}),
    ],
)
def test_settings_that_accept_nothing_end_the_start(tmp_path: Path, content: str, settings: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        provider(tmp_path, content, **settings)


def test_discovery_is_refused() -> None:
    assert asks_for_protection("openIDFallbackDiscoveryMode", "KUBERNETES_DISCOVER_TRUSTED_ISSUER")
    assert not asks_for_protection("openIDFallbackDiscoveryMode", "DISABLED")
