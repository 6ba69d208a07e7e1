"""JSON web tokens: the signature, the times and the claims of one. No key is chosen by what a token says.

Owns the form. The library verifies signatures; times are checked here, against the time that the caller gives.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from magnetar.access_bounds import ROLE_SIZE, TOKEN_SIZE
from magnetar.errors import AuthenticationFailed, ForeignToken, InvalidSetting

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey

Claims = Mapping[str, Any]

_RSA_BITS_MIN = 2048
_SECRET_BYTES_MIN = 32
SECRET_SIZES = {"HS256": 32, "HS384": 48, "HS512": 64}
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_DER_SEQUENCE = b"\x30"
_PARTS = 3  # header, claims, signature
_object = msgspec.json.Decoder(dict[str, Any])


def secret_algorithms(secret: bytes) -> tuple[str, ...]:
    """Those that a secret key of this size is long enough for; none for a weak one."""
    return tuple(name for name, size in SECRET_SIZES.items() if len(secret) >= size)


def check_secret(secret: bytes, what: str) -> None:
    """Raises `InvalidSetting` for a secret key that is too short, or is a key of a pair: no token is signed with it."""
    if not secret_algorithms(secret):
        raise InvalidSetting(f"{what} has {len(secret)} bytes, less than {_SECRET_BYTES_MIN}")
    if _is_of_pair(secret):
        raise InvalidSetting(f"{what} is a key of a key pair, and no secret key: public keys are for tokenPublicKey")


def _is_of_pair(content: bytes) -> bool:
    """Whether it is PEM, or a key in DER. Few other keys begin like DER, so most starts need not import the library."""
    if not content.startswith(_DER_SEQUENCE):
        return _is_pem(content)
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_der_public_key

    for load in (load_der_public_key, partial(load_der_private_key, password=None)):
        with contextlib.suppress(ValueError):
            with contextlib.suppress(TypeError, UnsupportedAlgorithm):  # a key all the same
                load(content)
            return True
    return False


def _is_pem(content: bytes) -> bool:
    return content.lstrip().startswith(b"-----")


def public_algorithms(key: PublicKey, algorithm: str = "") -> tuple[str, ...]:
    """Those that are verified with a public key: of a curve one, of RSA those of the same padding.

    The hash may be another one: Pulsar's tool chooses it by the size of an RSA key, whatever `tokenPublicAlg` is.
    """
    names = (*RSA_ALGORITHMS, *CURVES)
    return tuple(name for name in names if fits(key, name) and name.startswith(algorithm[:2]))


def read_public_key(content: bytes, algorithm: str, what: str) -> PublicKey:
    """A key in DER or PEM for this algorithm, or for any if it is empty; raises `InvalidSetting`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    try:
        load = load_pem_public_key if _is_pem(content) else load_der_public_key
        key = load(content)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidSetting(f"{what} is not a public key in DER or PEM") from None
    if not any(fits(key, name) for name in ([algorithm] if algorithm else (*RSA_ALGORITHMS, *CURVES))):
        raise InvalidSetting(f"{what} is not a key for {f'the algorithm {algorithm}' if algorithm else 'tokens'}")
    check_size(key, what)
    return key  # type: ignore[return-value]  # `fits` has seen which


def check_size(key: object, what: str) -> None:
    """Raises `InvalidSetting` for an RSA key that is too short for every algorithm."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

    if isinstance(key, RSAPrivateKey | RSAPublicKey) and key.key_size < _RSA_BITS_MIN:
        raise InvalidSetting(f"{what} has {key.key_size} bits, less than {_RSA_BITS_MIN}")


def fits(key: object, algorithm: str) -> bool:
    """Whether this is a public key for the algorithm, by its kind and its curve."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, EllipticCurvePublicKey):
        return key.curve.name == CURVES.get(algorithm)
    return isinstance(key, RSAPublicKey) and algorithm in RSA_ALGORITHMS


def header_of(token: bytes) -> Claims:
    """What a token says of itself before anything is verified; raises `AuthenticationFailed`."""
    return _json_of(_parts_of(token)[0])


def claims_of(token: bytes) -> Claims:
    """The same of its claims: nothing may be decided by them."""
    return _json_of(_parts_of(token)[1])


def verified(token: bytes, key: bytes | PublicKey, algorithms: Sequence[str]) -> Claims:
    """The claims of a token that one of the algorithms has signed with this key; raises `ForeignToken` for another."""
    from jwt import PyJWS
    from jwt.exceptions import PyJWTError

    header, payload, _ = _parts_of(token)
    found = _json_of(header)
    if found.get("alg") not in algorithms or "crit" in found:
        raise ForeignToken("the token has another algorithm than those of the key", "INVALID_TOKEN")
    try:
        PyJWS(algorithms=list(algorithms)).decode(token, key, algorithms=list(algorithms))
    except (PyJWTError, ValueError, TypeError):
        raise ForeignToken("the signature of the token is not valid", "INVALID_TOKEN") from None
    return _json_of(payload)


def check_times(claims: Claims, now_ms: int, skew_s: int, *, check_issued: bool = False) -> int | None:
    """When the token expires, the skew included; raises `AuthenticationFailed` if it has, or is not valid yet."""
    early = [_time_of(claims, name) for name in (("nbf", "iat") if check_issued else ("nbf",))]
    if any(time_ms is not None and time_ms > now_ms + skew_s * 1000 for time_ms in early):
        raise _invalid("the token is not valid yet")
    expires_ms = _time_of(claims, "exp")
    if expires_ms is None:
        return None
    if expires_ms + skew_s * 1000 < now_ms:
        raise AuthenticationFailed("the token has expired", "EXPIRED_JWT")
    return expires_ms + skew_s * 1000


def has_audience(claims: Claims, claim: str, wanted: Sequence[str]) -> bool:
    """Whether the claim is one of the wanted texts, or a list with one of them."""
    found = claims.get(claim)
    return any(one in wanted for one in (found if isinstance(found, list) else [found]) if isinstance(one, str))


def role_of(claims: Claims, claim: str) -> str:
    """The text of a claim, or the first of its list; raises `AuthenticationFailed`."""
    found = claims.get(claim)
    if isinstance(found, list):
        found = found[0] if found else None
    if not isinstance(found, str):
        raise _invalid(f"the token has no role in its claim {claim}")
    return checked_role(found)


def checked_role(role: str) -> str:
    """Raises `AuthenticationFailed` for a text that is not the name of a role."""
    if not role.strip() or not role.isprintable():
        raise _invalid("the role is empty, or has characters that are not allowed")
    if len(role) > ROLE_SIZE.limit:
        raise _invalid(f"the role of {len(role)} characters exceeds {ROLE_SIZE.limit}")
    return role


def _time_of(claims: Claims, name: str) -> int | None:
    found = claims.get(name)
    if found is None:
        return None
    if type(found) not in (int, float) or abs(found) > 1 << 53:
        raise _invalid(f"the claim {name} of the token is not a time")
    return int(found * 1000)


def _parts_of(token: bytes) -> list[bytes]:
    """Decoded header, payload and signature. Each has one form only: no changed byte is accepted."""
    if len(token) > TOKEN_SIZE.limit:
        raise _invalid(f"the token of {len(token)} bytes exceeds {TOKEN_SIZE.limit}")
    parts = token.split(b".")
    if len(parts) != _PARTS:
        raise _invalid("the token is not a signed JSON web token")
    try:
        decoded = [base64.b64decode(part + b"=" * (-len(part) % 4), b"-_", validate=True) for part in parts]
    except (binascii.Error, ValueError):
        raise _invalid("the token is not a signed JSON web token") from None
    if [base64.urlsafe_b64encode(part).rstrip(b"=") for part in decoded] != parts:
        raise _invalid("the token is not a signed JSON web token")
    return decoded


def _json_of(part: bytes) -> Claims:
    try:
        return _object.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _invalid("the token is not a signed JSON web token") from None


def _invalid(text: str) -> AuthenticationFailed:
    return AuthenticationFailed(text, "INVALID_TOKEN")
