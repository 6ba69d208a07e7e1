"""Seats for connections: how many are open on the ports that share a limit, and why another one is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Seats:
    """`connections_max` is the most that there is room for, `per_host` a limit per address, 0 for none."""

    def __init__(self, connections_max: int, noun: str = "connections", per_host: Callable[[], int] = int) -> None:
        self.connections_max = connections_max
        self._noun = noun
        self._per_host = per_host
        self._open = 0
        self._by_host: Counter[str] = Counter()

    def refusal_for(self, host: str) -> str | None:
        """The words are Apache Pulsar's, the numbers ours."""
        if self._open >= self.connections_max:
            return f"Reached the maximum number of {self._noun}: {self.connections_max}"
        per_host = self._per_host()
        if 0 < per_host <= self._by_host[host]:
            return (
                f"Reached the maximum number of {self._noun} on address {host}: brokerMaxConnectionsPerIp is {per_host}"
            )
        return None

    def enter(self, host: str) -> Callable[[], None]:
        """Returns what is to be called when the connection ends; only the first call counts."""
        self._open += 1
        self._by_host[host] += 1
        is_in = True

        def leave() -> None:
            nonlocal is_in
            if is_in:
                is_in = False
                self._open -= 1
                self._by_host[host] -= 1
                if not self._by_host[host]:
                    del self._by_host[host]

        return leave
