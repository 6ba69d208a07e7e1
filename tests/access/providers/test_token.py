"""Tokens: which are accepted, by key, algorithm, time, audience and role; every other one is refused."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from magnetar.access.providers.token import TokenProvider
from magnetar.access_bounds import ACCESS_FILE, ROLE_SIZE, TOKEN_SIZE
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.settings import Settings
from tests.access.keys import CURVE, RSA, SECRET, SECRET_SETTING, SHORT_RSA, by_hand, public_der, public_setting, token

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def provider(**settings: Any) -> TokenProvider:
    return TokenProvider(Settings(**{"tokenSecretKey": SECRET_SETTING, **settings}))


def role(data: bytes, one: TokenProvider | None = None, now_ms: int = NOW_MS) -> str:
    return (one or provider()).authenticate(data, "", now_ms).role


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
def test_a_secret_key_accepts_its_algorithms(alg: str) -> None:
    assert role(token(alg=alg)) == "ann"


@pytest.mark.parametrize(("key", "alg"), [(RSA, "RS256"), (RSA, "PS512"), (CURVE, "ES256")])
def test_a_public_key_accepts_algorithms_of_its_kind(key: Any, alg: str) -> None:
    public = TokenProvider(Settings(tokenPublicKey=public_setting(key), tokenPublicAlg=alg))
    assert role(token(key, alg), public) == "ann"
    if key is RSA:
        assert (
            role(token(key, alg[:2] + "384"), public) == "ann"
        )  # Pulsar's tool chooses the hash by the size of the key
        with pytest.raises(AuthenticationFailed):
            role(token(key, {"RS": "PS256", "PS": "RS256"}[alg[:2]]), public)


def test_a_public_key_is_no_secret_key() -> None:
    public = TokenProvider(Settings(tokenPublicKey=public_setting(RSA)))
    signed = by_hand({"alg": "HS256"}, {"sub": "ann"})[:-1]
    forged = by_hand({"alg": "HS256"}, {"sub": "ann"}, hmac.new(public_der(RSA), signed, hashlib.sha256).digest())
    with pytest.raises(AuthenticationFailed):
        role(forged, public)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, 5, ["HS256"], "RS256"])
def test_the_token_does_not_choose_the_algorithm(alg: object) -> None:
    with pytest.raises(AuthenticationFailed):
        role(by_hand({"alg": alg}, {"sub": "ann"}))


@given(st.data())
def test_any_changed_byte_is_refused(data: st.DataObject) -> None:
    good = token(sub="ann", exp=NOW_S + 10)
    place = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[place]))
    changed = good[:place] + bytes([other]) + good[place + 1 :]
    if changed.strip() != changed:
        return  # white space around a token is none of it
    with pytest.raises(AuthenticationFailed):
        role(changed)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        role(data)


def test_times_are_those_of_the_broker() -> None:
    one, skewed = provider(), provider(tokenAllowedClockSkewSeconds=5)
    assert role(token(sub="a", exp=NOW_S, nbf=NOW_S), one) == "a"
    for claims in ({"exp": NOW_S - 1}, {"nbf": NOW_S + 1}):
        with pytest.raises(AuthenticationFailed):
            role(token(sub="a", **claims), one)
        assert role(token(sub="a", **claims), skewed) == "a"
    assert one.authenticate(token(sub="a", exp=NOW_S + 7), "", NOW_MS).expires_ms == NOW_MS + 7000
    assert skewed.authenticate(token(sub="a", exp=NOW_S + 7), "", NOW_MS).expires_ms == NOW_MS + 12_000
    assert one.authenticate(token(), "", NOW_MS).expires_ms is None


@pytest.mark.parametrize("value", ["soon", True, [], 1e300])
def test_a_time_that_is_none_is_refused(value: object) -> None:
    payload = by_hand({"alg": "HS256"}, {"sub": "a", "exp": value})[:-1]
    with pytest.raises(AuthenticationFailed):
        role(payload + b"." + _signature(payload))


def _signature(signed: bytes) -> bytes:
    import base64

    return base64.urlsafe_b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).rstrip(b"=")


@pytest.mark.parametrize(
    ("audience", "is_accepted"),
    [
        ("broker", True),
        (["x", "broker"], True),
        ("brok", False),
        (["x"], False),
        (None, False),
        (7, False),
        ([7], False),
    ],
)
def test_the_audience_is_a_text_or_in_a_list(audience: object, is_accepted: bool) -> None:
    one = provider(tokenAudienceClaim="for", tokenAudience="broker")
    data = token(**{"sub": "ann", "for": audience})
    if is_accepted:
        assert role(data, one) == "ann"
    else:
        with pytest.raises(AuthenticationFailed, match="not for this broker"):
            role(data, one)


@pytest.mark.parametrize("value", ["", "  ", None, 7, [], [7], {"a": 1}, "a\nb", "x" * (ROLE_SIZE.limit + 1)])
def test_a_role_is_a_text(value: object) -> None:
    with pytest.raises(AuthenticationFailed):
        role(token(sub="s", role=value), provider(tokenAuthClaim="role"))


def test_the_first_role_of_a_list_counts() -> None:
    assert role(token(roles=["first", "second"]), provider(tokenAuthClaim="roles")) == "first"


@pytest.mark.parametrize(
    ("form", "lock"),
    [
        (serialization.Encoding.DER, serialization.NoEncryption()),
        (serialization.Encoding.DER, serialization.BestAvailableEncryption(b"word")),
        (serialization.Encoding.PEM, serialization.NoEncryption()),
    ],
)
def test_a_private_key_is_no_secret_key(tmp_path: Path, form: Any, lock: Any) -> None:
    (tmp_path / "k").write_bytes(RSA.private_bytes(form, serialization.PrivateFormat.PKCS8, lock))
    with pytest.raises(InvalidSetting, match="tokenSecretKey is a key of a key pair"):
        provider(tokenSecretKey=str(tmp_path / "k"))


def test_a_secret_key_may_begin_like_a_public_one(tmp_path: Path) -> None:
    secret = public_der(RSA)[:-1] + b"x" * 64
    (tmp_path / "k").write_bytes(secret)
    assert role(token(secret), provider(tokenSecretKey=str(tmp_path / "k"))) == "ann"


def test_bound_token_size() -> None:
    assert role(token(sub="ann", padding="x" * 20_000)) == "ann"
    with pytest.raises(AuthenticationFailed, match=f"exceeds {TOKEN_SIZE.limit}"):
        role(token(sub="ann", padding="x" * TOKEN_SIZE.limit))


def test_keys_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(SECRET)
    for text in (f"file://{tmp_path}/k", str(tmp_path / "k")):
        assert role(token(), provider(tokenSecretKey=text)) == "ann"


def test_bound_access_file(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(bytes(ACCESS_FILE.limit + 1))
    with pytest.raises(InvalidSetting, match=f"exceeds {ACCESS_FILE.limit}"):
        provider(tokenSecretKey=str(tmp_path / "k"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tokenSecretKey": ""}, "needs tokenSecretKey or tokenPublicKey"),
        ({"tokenSecretKey": "data:;base64,c2hvcnQ="}, "has 5 bytes"),
        ({"tokenSecretKey": "file:///no/such/file"}, "cannot be read"),
        ({"tokenSecretKey": "not*base64"}, "neither a file"),
        ({"tokenSecretKey": "", "tokenPublicKey": "data:;base64,AAAA"}, "not a public key"),
        ({"tokenSecretKey": "", "tokenPublicKey": public_setting(CURVE)}, "not a key for the algorithm RS256"),
        ({"tokenSecretKey": "", "tokenPublicKey": public_setting(SHORT_RSA)}, "has 1024 bits, less than 2048"),
        ({"tokenSecretKey": public_setting(RSA)}, "is a key of a key pair"),
        ({"tokenSecretKey": public_setting(CURVE)}, "is a key of a key pair"),
        ({"tokenAudienceClaim": "aud"}, "needs tokenAudience"),
        ({"tokenAudience": "b"}, "needs tokenAudienceClaim"),
    ],
)
def test_settings_that_accept_nothing_end_the_start(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refused:
        provider(**settings)
    assert "c2hvcnQ" not in str(refused.value)
    assert "not*base64" not in str(refused.value)
