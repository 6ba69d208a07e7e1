"""What a token says of itself: when it expires, and whose it is. Brokers refuse one that has expired, and mostly tell
why to their log alone.

Reads two claims of JSON web tokens, and knows no other kind. Verifies nothing, and shows nothing but these.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec

from magnetar.clock import Clock, SystemClock

_PARTS = 3  # header, claims, signature


class _Expiry(msgspec.Struct):
    exp: float


class _Subject(msgspec.Struct):
    sub: str


_expiry = msgspec.json.Decoder(_Expiry)
_subject = msgspec.json.Decoder(_Subject)


def expiry_hint(token: str | None, clock: Clock | None = None) -> str:
    """Empty unless it has expired."""
    try:
        expires_s = _expiry.decode(_claims(token or "")).exp
        if (clock or SystemClock()).now_ms() < expires_s * 1000:
            return ""
        return f"the token expired at {datetime.fromtimestamp(expires_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (msgspec.DecodeError, OverflowError, ValueError, OSError):  # it does not say, or says what is no time
        return ""


def with_hint(text: str, token: str | None) -> str:
    """For what was refused because of a token."""
    hint = expiry_hint(token)
    return f"{text}; {hint}" if hint else text


def subject_of(token: str | None) -> str | None:
    """Whose it is: the role, unless the broker reads it from another claim."""
    try:
        return _subject.decode(_claims(token or "")).sub
    except (msgspec.DecodeError, ValueError):
        return None


def _claims(token: str) -> bytes:
    """Raises `ValueError` of what is no such token."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise ValueError("not a JSON web token")
    claims = parts[1]
    try:
        return base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
    except binascii.Error as error:
        raise ValueError("not in base64") from error
