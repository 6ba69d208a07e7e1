"""Users and hashes of their passwords, as `htpasswd` writes them, and the comparison of a password with hashes.

A comparison takes long on purpose, and how long depends on the hash. Each password is compared with one hash of every
kind that the users have, so that the time does not say who is a user. Knows neither files nor clients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from magnetar.errors import InvalidSetting

_BCRYPT = "bcrypt"
_BCRYPT_BYTES = 72  # what exceeds them is refused by some versions of the library, and dropped by others
_PLAIN = "plaintext"  # what the library calls a text that is no hash


class Hash(NamedTuple):
    """`rounds` is the cost that the text has, 0 for a scheme with one cost."""

    text: str
    scheme: str
    rounds: int


class Users:
    """Raises `InvalidSetting` with the number of a line, never with its text."""

    def __init__(self, content: bytes, setting: str) -> None:
        self._hashes = _hashes_in(content, setting)
        self._of_each_kind = {(one.scheme, one.rounds): one for one in self._hashes.values()}

    def hash_of(self, user: str) -> Hash | None:
        return self._hashes.get(user)

    def compared(self, own: Hash | None) -> tuple[Hash, ...]:
        """One hash of each kind, the user's own in place of its kind: the same work for all users, and for no user."""
        found = self._of_each_kind if own is None else {**self._of_each_kind, (own.scheme, own.rounds): own}
        return tuple(found.values())


def is_password(password: bytes, own: Hash | None, compared: Sequence[Hash]) -> bool:
    """Whether it is that of `own`, which is one of those that it is compared with: always with all of them."""
    matching = [one for one in compared if _matches(password, one)]
    return own in matching


def _matches(password: bytes, one: Hash) -> bool:
    """A password that is too long for its hash is wrong, which takes as long to find as for any other."""
    is_whole = one.scheme != _BCRYPT or len(password) <= _BCRYPT_BYTES
    with contextlib.suppress(ValueError, TypeError):  # a password that this hash cannot have, such as one with a zero
        is_same: bool = _context().verify(password if is_whole else password[:_BCRYPT_BYTES], one.text)
        return is_same and is_whole
    return False


def _hashes_in(content: bytes, setting: str) -> dict[str, Hash]:
    found: dict[str, Hash] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, text = line.strip().partition(":")
        one = _hash_of(text)
        if not user or one is None:
            raise InvalidSetting(
                f"{setting}: line {number} is not of the form user:hash, with a hash of bcrypt, MD5 (apr1), SHA or"
                " crypt"
            )
        found[user] = one
    if not found:
        raise InvalidSetting(f"{setting} has no user")
    return found


def _hash_of(text: str) -> Hash | None:
    """None for a text that no password can be compared with."""
    scheme = _context().identify(text)
    if scheme in (None, _PLAIN):
        return None
    try:
        parts = _context().handler(scheme).from_string(text)
    except ValueError:
        return None
    return Hash(text, scheme, getattr(parts, "rounds", 0)) if parts.checksum else None


def _context() -> Any:
    from passlib.apache import htpasswd_context  # type: ignore[import-untyped]

    return htpasswd_context
