"""Users and passwords, as Pulsar's AuthenticationProviderBasic: a file of `htpasswd`, read again when it changes.

A hash of a password takes long on purpose: `ahead` has the work for a thread, and `authenticate` only knows verdicts. A
password that was checked is remembered by a keyed hash; failures of an address and passwords that wait are limited, so
that guesses take neither the processor nor the thread from others.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from magnetar.access.json_web_token import checked_role
from magnetar.access.principal import Principal
from magnetar.access.sources import ChangingFile, path_of, read_source
from magnetar.access_bounds import PASSWORD_FAILURES, PASSWORD_SIZE, PASSWORD_VERDICTS, PASSWORDS_WAITING
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.authentication import AuthenticationSettings

METHOD = "basic"
_SETTING = "basicAuthConf"
_MINUTE_MS = 60_000
_ADDRESSES_MAX = 1000  # the oldest is forgotten
_REFUSED = "the user is unknown or the password is wrong"


class BasicProvider:
    """`authenticate` after `ahead`, and after its work if there is some. Only the work runs in a thread."""

    name = "AuthenticationProviderBasic"

    def __init__(self, settings: AuthenticationSettings) -> None:
        if not settings.basicAuthConf:
            raise InvalidSetting(f"the authentication provider basic needs {_SETTING}")
        path = path_of(settings.basicAuthConf, _SETTING)
        self._file = None if path is None else ChangingFile(path, _SETTING)
        content = read_source(settings.basicAuthConf, _SETTING) if self._file is None else self._file.read()
        self._users = _users_in(content)
        self._decoy = next(iter(self._users.values()))
        self._mark_key = secrets.token_bytes(32)
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self._done: deque[tuple[bytes, bool, str, int]] = deque()  # appended to by the thread
        self._waiting = 0
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()  # since when, and how many

    def ahead(self, data: bytes, address: str, now_ms: int) -> Callable[[], None] | None:
        """The work that `authenticate` needs to have been done; None if none. Raises `AuthenticationFailed`."""
        self._collect()
        user, password = _pair_of(data)
        stored = self._users.get(user)
        mark = self._mark(user, stored, password)
        if mark in self._verdicts:
            return None
        since_ms, count = self._failures.get(address, (now_ms, 0))
        if count >= PASSWORD_FAILURES.limit and 0 <= now_ms - since_ms < _MINUTE_MS:
            raise AuthenticationFailed("too many wrong passwords from this address, try again in a minute", "UNKNOWN")
        if self._waiting >= PASSWORDS_WAITING.limit:
            raise AuthenticationFailed("too many passwords wait to be checked, try again", "UNKNOWN")
        self._waiting += 1
        # An unknown user takes as long as a known one.
        return partial(self._work, mark, stored is not None, stored or self._decoy, password, address, now_ms)

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        self._collect()
        user, password = _pair_of(data)
        verdict = self._verdicts.get(self._mark(user, self._users.get(user), password))
        if verdict is None:
            raise AuthenticationFailed("the password was not checked in time, try again", "UNKNOWN")
        if not verdict:
            raise AuthenticationFailed(_REFUSED, "INVALID_TOKEN")
        return Principal(user, METHOD)

    def _work(self, mark: bytes, is_known: bool, stored: str, password: bytes, address: str, now_ms: int) -> None:
        verdict = False
        try:
            with contextlib.suppress(
                ValueError, TypeError
            ):  # a password that this hash cannot have, such as a long one
                verdict = _context().verify(password, stored) and is_known
        finally:
            self._done.append((mark, verdict, address, now_ms))

    def _collect(self) -> None:
        """What the thread found, and a file that changed. A changed hash has another mark, hence no old verdict."""
        while self._done:
            mark, verdict, address, now_ms = self._done.popleft()
            self._waiting -= 1
            self._verdicts[mark] = verdict
            if len(self._verdicts) > PASSWORD_VERDICTS.limit:
                self._verdicts.popitem(last=False)
            if not verdict:
                self._note_failure(address, now_ms)
        content = None if self._file is None else self._file.changed()
        if content is not None:
            with contextlib.suppress(InvalidSetting):  # those of before stay in force
                self._users = _users_in(content)

    def _note_failure(self, address: str, now_ms: int) -> None:
        since_ms, count = self._failures.get(address, (now_ms, 0))
        is_same = 0 <= now_ms - since_ms < _MINUTE_MS
        self._failures[address] = (since_ms, count + 1) if is_same else (now_ms, 1)
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _mark(self, user: str, stored: str | None, password: bytes) -> bytes:
        """By a key of this process: what is remembered says nothing about the password."""
        shown = b"\0".join((user.encode(), (stored or "").encode(), password))
        return hmac.new(self._mark_key, shown, hashlib.sha256).digest()


def _pair_of(data: bytes) -> tuple[str, bytes]:
    name, separator, password = data.partition(b":")
    if not separator or not password:
        raise AuthenticationFailed("there is no user with a password")
    if len(data) > PASSWORD_SIZE.limit:
        raise AuthenticationFailed(f"user and password of {len(data)} bytes exceed {PASSWORD_SIZE.limit}")
    try:
        return checked_role(name.decode()), password
    except UnicodeDecodeError:
        raise AuthenticationFailed("the name of the user is not UTF-8") from None


def _users_in(content: bytes) -> dict[str, str]:
    """Hashes by user; raises `InvalidSetting` with the number of a line, never with its text."""
    users: dict[str, str] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, stored = line.strip().partition(":")
        if not user or _context().identify(stored) in (None, "plaintext"):
            raise InvalidSetting(
                f"{_SETTING}: line {number} is not of the form user:hash, with a hash of bcrypt, MD5 (apr1), SHA or"
                " crypt"
            )
        users[user] = stored
    if not users:
        raise InvalidSetting(f"{_SETTING} has no user")
    return users


def _context() -> Any:
    from passlib.apache import htpasswd_context  # type: ignore[import-untyped]

    return htpasswd_context
