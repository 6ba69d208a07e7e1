"""The choice of the provider, for CONNECT and for HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jwt.algorithms import RSAAlgorithm

from magnetar.access.authentication import Authentication
from magnetar.access.principal import INTERNAL_ROLE, NO_ONE_ASKED, Principal
from magnetar.access.providers.internal import InternalToken
from magnetar.errors import AuthenticationFailed
from magnetar.settings.settings import Settings
from tests.access.keys import RSA, SECRET_SETTING, token


class Echo:
    """The role is what the client sends."""

    name = "Echo"

    def __init__(self, method: str) -> None:
        self._method = method

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        return Principal(data.decode() or common_name, self._method)


def test_without_providers_every_client_is_let_in() -> None:
    assert Authentication().connect("token", b"anything", "", 0) is NO_ONE_ASKED
    assert Authentication().request("Bearer anything", "", 0) is NO_ONE_ASKED


def test_the_method_chooses_the_provider() -> None:
    authentication = Authentication({method: [Echo(method)] for method in ("token", "basic", "tls")})
    assert authentication.connect("token", b"a", "", 0) == Principal("a", "token")
    assert authentication.request("Bearer a", "", 0) == Principal("a", "token")
    assert authentication.request("basic YQ==", "", 0) == Principal("a", "basic")
    assert authentication.request("", "cn", 0) == Principal("cn", "tls")


@pytest.mark.parametrize("methods", [("basic",), ("token", "basic"), ("tls",)])
def test_the_pipelines_process_logs_in_whatever_the_providers_are(methods: tuple[str, ...]) -> None:
    internal = InternalToken()
    authentication = Authentication({method: [Echo(method)] for method in methods}, internal=internal)
    for method in ("", "token"):
        assert authentication.request(f"Bearer {internal.text}", "", 0, method=method).role == INTERNAL_ROLE
    assert authentication.connect("token", internal.text.encode(), "", 0).role == INTERNAL_ROLE
    other = InternalToken().text
    if "token" not in methods:
        with pytest.raises(AuthenticationFailed):
            authentication.request(f"Bearer {other}", "", 0)
    assert internal.text not in repr(internal) + repr(authentication)


@pytest.mark.parametrize("names", ["token,openid", "openid,token"])
def test_the_reason_is_that_of_the_provider_whose_token_it_is(tmp_path: Path, names: str) -> None:
    key_set = {"keys": [{**RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True), "kid": "r"}]}
    (tmp_path / "keys").write_text(json.dumps(key_set))
    settings = Settings(
        authenticationEnabled=True,
        authenticationProviders=names,
        tokenSecretKey=SECRET_SETTING,
        openIDKeySetFile=str(tmp_path / "keys"),
        openIDAllowedTokenIssuers="https://issuer",
        openIDAllowedAudiences="broker",
    )
    authentication = Authentication.from_settings(settings)
    expired = {"iss": "https://issuer", "aud": "broker", "sub": "ann", "iat": 1, "exp": 2}
    for data in (token(**expired), token(RSA, "RS256", kid="r", **expired)):
        with pytest.raises(AuthenticationFailed, match="the token has expired"):
            authentication.connect("token", data, "", 10_000)
    with pytest.raises(AuthenticationFailed, match=r"no key of the key set|another algorithm"):
        authentication.connect("token", token(RSA, "RS256", kid="other", **expired), "", 10_000)


def test_another_method_is_refused_by_name() -> None:
    authentication = Authentication({"token": [Echo("token")]})
    with pytest.raises(AuthenticationFailed, match="'sasl' is not accepted: this broker accepts token"):
        authentication.connect("sasl", b"", "", 0)
