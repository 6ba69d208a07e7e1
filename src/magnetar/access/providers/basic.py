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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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


@dataclass(slots=True, eq=False)
class _Check:
    """A password that has a place: its mark, whose it is, and how it is compared.

    `works` are those of as many connections, still to be done. The first that is wanted finds the verdict for all.
    """

    mark: bytes
    user: str
    address: str
    now_ms: int
    compare: Callable[[], bool]
    works: int = 0
    verdict: bool | None = None

    def work(self, is_wanted: Callable[[], bool]) -> None:
        """In the thread."""
        if self.verdict is not None or not is_wanted():
            return
        verdict = False
        try:
            verdict = self.compare()
        finally:
            self.verdict = verdict


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
        self._checks: dict[bytes, _Check] = {}
        self._done: deque[_Check] = deque()  # appended to by the thread, once for each work
        self._guesses = Guesses()

    def ahead(
        self, data: bytes, address: str, now_ms: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> Callable[[], None] | None:
        """The work that `authenticate` needs to have been done; None if none. Raises `AuthenticationFailed`.

        Many connections may be those of one client, with the same password: they need one place.
        """
        self._collect()
        user, password = _pair_of(data)
        own = self._users.hash_of(user)
        mark = self._mark(user, own, password)
        if mark in self._verdicts:
            return None
        check = self._checks.get(mark)
        if check is None:
            self._guesses.enter(user, address, now_ms)
            compare = partial(is_password, password, own, self._users.compared(own))
            check = self._checks[mark] = _Check(mark, user, address, now_ms, compare)
        check.works += 1
        return partial(self._work, check, is_wanted)

    def authenticate(self, data: bytes, common_name: str, now_ms: int) -> Principal:
        self._collect()
        user, password = _pair_of(data)
        verdict = self._verdicts.get(self._mark(user, self._users.hash_of(user), password))
        if verdict is None:
            raise AuthenticationFailed("the password was not checked in time, try again", "UNKNOWN")
        if not verdict:
            raise AuthenticationFailed(_REFUSED, "INVALID_TOKEN")
        return Principal(user, METHOD)

    def _work(self, check: _Check, is_wanted: Callable[[], bool]) -> None:
        try:
            check.work(is_wanted)
        finally:
            self._done.append(check)

    def _collect(self) -> None:
        """What the thread found, and a file that changed. A changed hash has another mark, hence no old verdict."""
        while self._done:
            check = self._done.popleft()
            check.works -= 1
            if self._checks.get(check.mark) is check and (check.verdict is not None or not check.works):
                self._settle(check)
        if self._file is not None:
            self._users = self._file.current()

    def _settle(self, check: _Check) -> None:
        """A password that no connection waited for any more is no failure: nothing was found out by it."""
        del self._checks[check.mark]
        self._guesses.leave(check.user, check.address, check.now_ms, is_wrong=check.verdict is False)
        if check.verdict is not None:
            self._verdicts[check.mark] = check.verdict
            if len(self._verdicts) > PASSWORD_VERDICTS.limit:
                self._verdicts.popitem(last=False)

    def _mark(self, user: str, own: Hash | None, password: bytes) -> bytes:
        """By a key of this process: what is remembered says nothing about the password."""
        shown = b"\0".join((user.encode(), b"" if own is None else own.text.encode(), password))
        return hmac.new(self._mark_key, shown, hashlib.sha256).digest()


def _users_in(content: bytes) -> Users:
    return Users(content, _SETTING)


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
