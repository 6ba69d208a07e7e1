"""Claims of a token for hints: its expiry and its subject. Brokers reject an expired token, mostly without the reason.

Reads two claims of JSON web tokens, and no other kind of token. Verifies nothing, so it must not decide about access.
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
    """Empty unless the token has expired."""
    try:
        expires_s = _expiry.decode(_claims(token or "")).exp
        if (clock or SystemClock()).now_ms() < expires_s * 1000:
            return ""
        return f"the token expired at {datetime.fromtimestamp(expires_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (msgspec.DecodeError, OverflowError, ValueError, OSError):  # no expiry, or not a time
        return ""


def with_hint(text: str, token: str | None) -> str:
    """The text of a rejected request, with the expiry of its token."""
    hint = expiry_hint(token)
    return f"{text}; {hint}" if hint else text


def subject_of(token: str | None) -> str | None:
    """The subject: the role, unless the broker is configured to read another claim."""
    try:
        return _subject.decode(_claims(token or "")).sub
    except (msgspec.DecodeError, ValueError):
        return None


def _claims(token: str) -> bytes:
    """Raises `ValueError` if it is not a JSON web token."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise ValueError("not a JSON web token")
    claims = parts[1]
    try:
        return base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
    except binascii.Error as error:
        raise ValueError("not in base64") from error
