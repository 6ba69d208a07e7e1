"""Keys and tokens of the tests, made anew in each run."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

SECRET = bytes(range(64))
SECRET_SETTING = "data:;base64," + base64.b64encode(SECRET).decode()
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


SHORT_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)


def public_der(key: Any) -> bytes:
    der: bytes = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return der


def public_setting(key: Any) -> str:
    return "data:;base64," + base64.b64encode(public_der(key)).decode()


def token(key: Any = SECRET, alg: str = "HS256", *, kid: str | None = None, **claims: Any) -> bytes:
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(claims or {"sub": "ann"}, key, alg, headers=headers).encode()


def by_hand(header: dict[str, object], claims: dict[str, object], signature: bytes = b"") -> bytes:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
