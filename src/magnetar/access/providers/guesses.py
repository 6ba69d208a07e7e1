"""Guesses of passwords: how many may wait to be checked, from one address and from all, and how many may be wrong.

Owns the counts. Knows neither passwords nor users.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from ipaddress import IPv6Address, ip_address

from magnetar.access_bounds import ADDRESS_PASSWORDS_WAITING, PASSWORD_FAILURES, PASSWORDS_WAITING
from magnetar.errors import AuthenticationFailed

_MINUTE_MS = 60_000
_ADDRESSES_MAX = 1000  # the oldest is forgotten
_IPV6_HOST_BITS = 64


class Guesses:
    """A password has a place from `enter` to `leave`. Until then it counts as a failure of its address, which could
    otherwise guess as often as there are places before the first one is found to be wrong.
    """

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()  # since when, and how many

    def enter(self, address: str, now_ms: int) -> None:
        """Raises `AuthenticationFailed`."""
        network = _network_of(address)
        waiting, failures = self._waiting[network], self._failures_of(network, now_ms)[1]
        if failures >= PASSWORD_FAILURES.limit:
            raise _refusal("too many wrong passwords from this address, try again in a minute")
        if waiting >= ADDRESS_PASSWORDS_WAITING.limit or waiting + failures >= PASSWORD_FAILURES.limit:
            raise _refusal("too many passwords from this address wait to be checked, try again")
        if self._waiting.total() >= PASSWORDS_WAITING.limit:
            raise _refusal("too many passwords wait to be checked, try again")
        self._waiting[network] += 1

    def leave(self, address: str, now_ms: int, *, is_right: bool) -> None:
        """`now_ms` is the time of `enter`."""
        network = _network_of(address)
        self._waiting[network] -= 1
        if not self._waiting[network]:
            del self._waiting[network]
        if not is_right:
            since_ms, count = self._failures_of(network, now_ms)
            self._failures[network] = (since_ms, count + 1)
            if len(self._failures) > _ADDRESSES_MAX:
                self._failures.popitem(last=False)

    def _failures_of(self, network: str, now_ms: int) -> tuple[int, int]:
        since_ms, count = self._failures.get(network, (now_ms, 0))
        return (since_ms, count) if 0 <= now_ms - since_ms < _MINUTE_MS else (now_ms, 0)


def _network_of(address: str) -> str:
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
