"""Keys of tokens, and tokens signed with them, in the forms of Pulsar: a secret key is its bytes, a key pair is in DER.

Owns the making. `json_web_token` verifies; where keys are kept, and the time, are the caller's.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from magnetar.access import json_web_token as jwt
from magnetar.errors import AuthenticationFailed, InvalidSetting

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey

SECRET_ALGORITHMS = tuple(jwt.SECRET_SIZES)
PAIR_ALGORITHMS = (*jwt.RSA_ALGORITHMS, *jwt.CURVES)

_RSA_BITS = {"256": 2048, "384": 3072, "512": 4096}
_EXPIRES_MS_MAX = 253_402_300_799_000  # the end of the year 9999
_OWN_HEADERS = ("alg", "crit", "b64")


class KeyPair(NamedTuple):
    """In DER: the private key as PKCS 8, the public key as X.509 does it."""

    private: bytes
    public: bytes

    def __repr__(self) -> str:
        return "KeyPair(…)"


def new_secret(algorithm: str = "HS256") -> bytes:
    return secrets.token_bytes(jwt.SECRET_SIZES[algorithm])


def new_key_pair(algorithm: str = "RS256") -> KeyPair:
    """An RSA key is as long as its hash deserves."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key: PrivateKey
    if algorithm in jwt.CURVES:
        curves = (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())
        key = ec.generate_private_key({curve.name: curve for curve in curves}[jwt.CURVES[algorithm]])
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS[algorithm[2:]])
    form = serialization.Encoding.DER
    private = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(private, key.public_key().public_bytes(form, serialization.PublicFormat.SubjectPublicKeyInfo))


class Signer:
    """A key with the algorithm that it signs by."""

    def __init__(self, key: bytes | PrivateKey, algorithm: str) -> None:
        self._key = key
        self.algorithm = algorithm

    def sign(self, subject: str, expires_ms: int | None = None, headers: Mapping[str, str] | None = None) -> str:
        """A token for a role, which expires at a time or never; raises `InvalidSetting`."""
        from jwt import PyJWS

        try:
            claims: dict[str, object] = {"sub": jwt.checked_role(subject)}
        except AuthenticationFailed as error:
            raise InvalidSetting(str(error)) from None
        if expires_ms is not None:
            if expires_ms > _EXPIRES_MS_MAX:
                raise InvalidSetting("the token would expire after the year 9999")
            claims["exp"] = expires_ms // 1000
        if own := sorted({name.lower() for name in headers or ()}.intersection(_OWN_HEADERS)):
            raise InvalidSetting(f"the header {own[0]} of a token cannot be chosen")
        payload = msgspec.json.encode(claims)
        return PyJWS().encode(payload, self._key, self.algorithm, headers={"typ": None, **(headers or {})})


def secret_signer(secret: bytes, what: str, algorithm: str = "") -> Signer:
    """By the strongest algorithm that the key is long enough for, as Pulsar; raises `InvalidSetting`."""
    jwt.check_secret(secret, what)
    fitting = jwt.secret_algorithms(secret)
    if algorithm and algorithm not in fitting:
        raise InvalidSetting(f"{what} is not a key for the algorithm {algorithm}")
    return Signer(secret, algorithm or fitting[-1])


def private_signer(content: bytes, what: str, algorithm: str = "") -> Signer:
    """A key in DER or PEM. Its size decides the algorithm if none is given, as in Pulsar; raises `InvalidSetting`."""
    key = _private_key(content, what)
    public = key.public_key()
    fitting = [name for name in PAIR_ALGORITHMS if jwt.fits(public, name)]
    jwt.check_size(key, what)
    if not fitting or (algorithm and algorithm not in fitting):
        raise InvalidSetting(f"{what} is not a key for {f'the algorithm {algorithm}' if algorithm else 'tokens'}")
    by_size = [name for name in fitting if _RSA_BITS[name[2:]] <= key.key_size and name.startswith("RS")]
    return Signer(key, algorithm or (by_size or fitting)[-1])


def _private_key(content: bytes, what: str) -> PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    load = load_pem_private_key if content.lstrip().startswith(b"-----") else load_der_private_key
    try:
        key = load(content, password=None)
    except TypeError:
        raise InvalidSetting(f"{what} is locked with a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidSetting(f"{what} is not a private key in DER or PEM") from None
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey):
        raise InvalidSetting(f"{what} is neither an RSA key nor one of an elliptic curve")
    return key
