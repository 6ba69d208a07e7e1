"""Keys and tokens that are made here: the broker's provider accepts them, and weak keys are refused."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_der_public_key,
)

from magnetar.access import json_web_token
from magnetar.access.providers.token import TokenProvider
from magnetar.access.signing import (
    PAIR_ALGORITHMS,
    SECRET_ALGORITHMS,
    new_key_pair,
    new_secret,
    private_signer,
    secret_signer,
)
from magnetar.errors import InvalidSetting
from magnetar.settings.settings import Settings
from tests.access.keys import SHORT_RSA

NOW_MS = 1_700_000_000_000


def data(content: bytes) -> str:
    return "data:;base64," + base64.b64encode(content).decode()


@pytest.mark.parametrize("algorithm", SECRET_ALGORITHMS)
def test_a_secret_key_signs_by_its_algorithm(algorithm: str) -> None:
    secret = new_secret(algorithm)
    token = secret_signer(secret, "key").sign("ann", NOW_MS + 5_000).encode()
    assert json_web_token.header_of(token) == {"alg": algorithm}
    found = TokenProvider(Settings(tokenSecretKey=data(secret))).authenticate(token, "", NOW_MS)
    assert (found.role, found.expires_ms) == ("ann", NOW_MS + 5_000)
    assert new_secret(algorithm) != secret


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "RS384", "ES256", "ES384", "ES512"])
def test_a_key_pair_signs_by_its_algorithm(algorithm: str) -> None:
    assert algorithm in PAIR_ALGORITHMS
    pair = new_key_pair(algorithm)
    token = private_signer(pair.private, "key", algorithm).sign("ann").encode()
    assert json_web_token.header_of(token)["alg"] == algorithm
    broker = TokenProvider(Settings(tokenPublicKey=data(pair.public), tokenPublicAlg=algorithm))
    assert broker.authenticate(token, "", NOW_MS).role == "ann"
    assert broker.authenticate(token, "", NOW_MS).expires_ms is None
    chosen = private_signer(pair.private, "key").sign("bob").encode()
    assert json_web_token.header_of(chosen)["alg"] == algorithm.replace("PS", "RS")
    load_der_private_key(pair.private, password=None)
    load_der_public_key(pair.public)
    assert repr(pair) == "KeyPair(…)"


def test_a_weak_key_or_one_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"^--secret-key has 31 bytes, less than 32$"):
        secret_signer(bytes(31), "--secret-key")
    with pytest.raises(InvalidSetting, match=r"^--secret-key is not a key for the algorithm HS384$"):
        secret_signer(bytes(47), "--secret-key", "HS384")
    curve = ec.generate_private_key(ec.SECP256K1())
    der = [key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) for key in (SHORT_RSA, curve)]
    locked = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    for content, algorithm, text in (
        (der[0], "", "--private-key has 1024 bits, less than 2048"),
        (der[1], "", "--private-key is not a key for tokens"),
        (new_key_pair("ES256").private, "ES384", "--private-key is not a key for the algorithm ES384"),
        (new_key_pair("ES256").public, "", "--private-key is not a private key in DER or PEM"),
        (bytes(32), "", "--private-key is not a private key in DER or PEM"),
        (locked, "", "--private-key is locked with a password"),
    ):
        with pytest.raises(InvalidSetting) as refused:
            private_signer(content, "--private-key", algorithm)
        assert str(refused.value) == text


def test_what_a_broker_would_refuse_is_not_signed() -> None:
    signer = secret_signer(new_secret(), "key")
    for subject in ("", " ", "a\nb", "x" * 1025):
        with pytest.raises(InvalidSetting):
            signer.sign(subject)
    with pytest.raises(InvalidSetting, match="after the year 9999"):
        signer.sign("ann", 1 << 60)
    for name in ("alg", "ALG", "crit", "b64"):
        with pytest.raises(InvalidSetting, match=f"the header {name.lower()} of a token cannot be chosen"):
            signer.sign("ann", headers={name: "none"})
    assert json_web_token.header_of(signer.sign("ann", headers={"kid": "1"}).encode()) == {"alg": "HS256", "kid": "1"}


# Made with Apache Pulsar 4.2.4: `bin/pulsar tokens create-key-pair` and `create`, which chooses RS512 for an RSA key of
# 4096 bits although tokenPublicAlg is RS256.
