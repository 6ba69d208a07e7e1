"""Users and passwords, as Pulsar's AuthenticationProviderBasic: a file of `htpasswd`, read again when it changes.

A hash of a password takes long on purpose: `ahead` has the work for a thread, and `authenticate` only knows verdicts. A
password that was checked is remembered by a keyed hash. `htpasswd` has the hashes, and `guesses` the limits, by which
guesses take neither the processor nor the thread from others.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.access.json_web_token import checked_role
from magnetar.access.principal import Principal
from magnetar.access.providers.guesses import Guesses
from magnetar.access.providers.htpasswd import Hash, Users, is_password
from magnetar.access.sources import ChangingFile, read_source
from magnetar.access_bounds import PASSWORD_SIZE, PASSWORD_VERDICTS
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.authentication import AuthenticationSettings
from magnetar.settings.source_path import path_of

METHOD = "basic"
_SETTING = "basicAuthConf"
_REFUSED = "the user is unknown or the password is wrong"


class _Guess(NamedTuple):
    """A password that has a place: its mark, and whose it is."""

    mark: bytes
    address: str
    now_ms: int


class BasicProvider:
    """`authenticate` after `ahead`, and after its work if there is some. Only the work runs in a thread, in order."""

    name = "AuthenticationProviderBasic"

    def __init__(self, settings: AuthenticationSettings) -> None:
        if not settings.basicAuthConf:
            raise InvalidSetting(f"the authentication provider basic needs {_SETTING}")
        path = path_of(settings.basicAuthConf, _SETTING)
        self._file = None if path is None else ChangingFile(path, _SETTING, _users_in, is_secret=True)
        self._users = (
            _users_in(read_source(settings.basicAuthConf, _SETTING)) if self._file is None else self._file.current()
        )
        self._mark_key = secrets.token_bytes(32)
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self._done: deque[tuple[_Guess, bool]] = deque()  # appended to by the thread
        self._in_work: set[bytes] = set()
        self._guesses = Guesses()

    def ahead(self, data: bytes, address: str, now_ms: int) -> Callable[[], None] | None:
        """The work that `authenticate` needs to have been done; None if none. Raises `AuthenticationFailed`."""
        self._collect()
        user, password = _pair_of(data)
        own = self._users.hash_of(user)
        mark = self._mark(user, own, password)
        if mark in self._verdicts:
            return None
        if mark in self._in_work:
            return _wait_for_turn
        self._guesses.enter(address, now_ms)
        self._in_work.add(mark)
        return partial(self._work, _Guess(mark, address, now_ms), password, own, self._users.compared(own))

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        self._collect()
        user, password = _pair_of(data)
        verdict = self._verdicts.get(self._mark(user, self._users.hash_of(user), password))
        if verdict is None:
            raise AuthenticationFailed("the password was not checked in time, try again", "UNKNOWN")
        if not verdict:
            raise AuthenticationFailed(_REFUSED, "INVALID_TOKEN")
        return Principal(user, METHOD)

    def _work(self, guess: _Guess, password: bytes, own: Hash | None, compared: Sequence[Hash]) -> None:
        verdict = False
        try:
            verdict = is_password(password, own, compared)
        finally:
            self._done.append((guess, verdict))

    def _collect(self) -> None:
        """What the thread found, and a file that changed. A changed hash has another mark, hence no old verdict."""
        while self._done:
            guess, verdict = self._done.popleft()
            self._in_work.discard(guess.mark)
            self._guesses.leave(guess.address, guess.now_ms, is_right=verdict)
            self._verdicts[guess.mark] = verdict
            if len(self._verdicts) > PASSWORD_VERDICTS.limit:
                self._verdicts.popitem(last=False)
        if self._file is not None:
            self._users = self._file.current()

    def _mark(self, user: str, own: Hash | None, password: bytes) -> bytes:
        """By a key of this process: what is remembered says nothing about the password."""
        shown = b"\0".join((user.encode(), b"" if own is None else own.text.encode(), password))
        return hmac.new(self._mark_key, shown, hashlib.sha256).digest()


def _users_in(content: bytes) -> Users:
    return Users(content, _SETTING)


def _wait_for_turn() -> None:
    """Nothing: the same password is checked before, for another connection, which may be one of many of a client."""


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
