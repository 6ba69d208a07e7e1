"""Guesses of passwords: how many may wait to be checked, from one address and from all, and how many may be wrong.

Owns the counts. Knows no passwords, and of users only the names that were tried.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from magnetar.access_bounds import (
    ADDRESS_PASSWORD_FAILURES,
    ADDRESS_PASSWORDS_WAITING,
    PASSWORD_FAILURES,
    PASSWORDS_WAITING,
)
from magnetar.errors import AuthenticationFailed

_MINUTE_MS = 60_000
_ADDRESSES_MAX = 1000  # the oldest is forgotten
_IPV6_HOST_BITS = 64


class _Failures(NamedTuple):
    """Wrong passwords of one address, by user; no more than its limit, whatever names it tries."""

    since_ms: int
    by_user: Counter[str]


class Guesses:
    """A password has a place from `enter` to `leave`. Until then it counts as a failure of its user and address, which
    could otherwise guess as often as there are places before the first one is found to be wrong.

    Many users may have one address: one who fails holds up others there only by the limit of the address, which is
    larger.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Counter[str]] = {}
        self._waiting_count = 0
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def enter(self, user: str, address: str, now_ms: int) -> None:
        """Raises `AuthenticationFailed`."""
        network = network_of(address)
        waiting, failures = self._waiting.get(network, Counter()), self._failures_of(network, now_ms).by_user
        if failures[user] >= PASSWORD_FAILURES.limit:
            raise _refusal("too many wrong passwords of this user from this address, try again in a minute")
        if failures.total() >= ADDRESS_PASSWORD_FAILURES.limit:
            raise _refusal("too many wrong passwords from this address, try again in a minute")
        if (
            waiting.total() >= ADDRESS_PASSWORDS_WAITING.limit
            or waiting[user] + failures[user] >= PASSWORD_FAILURES.limit
            or waiting.total() + failures.total() >= ADDRESS_PASSWORD_FAILURES.limit
        ):
            raise _refusal("too many passwords from this address wait to be checked, try again")
        if self._waiting_count >= PASSWORDS_WAITING.limit:
            raise _refusal("too many passwords wait to be checked, try again")
        self._waiting.setdefault(network, Counter())[user] += 1
        self._waiting_count += 1

    def leave(self, user: str, address: str, now_ms: int, *, is_wrong: bool) -> None:
        """`now_ms` is the time of `enter`."""
        network = network_of(address)
        self._waiting_count -= 1
        waiting = self._waiting[network]
        waiting[user] -= 1
        if not waiting[user]:
            del waiting[user]
        if not waiting:
            del self._waiting[network]
        if is_wrong:
            failures = self._failures[network] = self._failures_of(network, now_ms)
            failures.by_user[user] += 1
            if len(self._failures) > _ADDRESSES_MAX:
                self._failures.popitem(last=False)

    def _failures_of(self, network: str, now_ms: int) -> _Failures:
        found = self._failures.get(network)
        return found if found and 0 <= now_ms - found.since_ms < _MINUTE_MS else _Failures(now_ms, Counter())


def network_of(address: str) -> str:
    """One machine has a whole network of IPv6, and as many addresses as it wants: they count as one."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or int(found) >> _IPV6_HOST_BITS)
    return address


def _refusal(text: str) -> AuthenticationFailed:
    return AuthenticationFailed(text, "UNKNOWN")
