"""Watchers of a declaration: callbacks after every change, as many as requests may wait for one.

Owns their number, and that a failing one costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.bounds import LONG_POLLS

_OWN = 2  # of the server: they come first

Watcher = Callable[[], None]


class Watchers:
    """`guarded` calls a watcher, and reports its failure."""

    def __init__(self, guarded: Callable[[Watcher], object]) -> None:
        self._guarded = guarded
        self._watchers: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: Watcher) -> bool:
        """Called after every change, until it is removed. It must not change anything itself. False if there are as
        many as there may be."""
        if len(self._watchers) >= LONG_POLLS.limit + _OWN:
            return False
        self._watchers[watcher] = None
        return True

    def remove(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def notify(self) -> None:
        for watcher in list(self._watchers):
            self._guarded(watcher)
