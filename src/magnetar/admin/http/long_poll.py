"""Long polls of a declaration: a pipelines process waits for another version than the one that it has.

Owns the wait, and what is concluded from a connection that ends during it. Knows no declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from magnetar.admin.http.errors import TooManyWaiting
from magnetar.admin.http.request import Call
from magnetar.bounds import LONG_POLL, LONG_POLLS

WAIT_MS_MAX = LONG_POLL.limit
COALESCED_S = 0.02
"""Changes come in bursts: a waiting client receives those that follow within this time in one reply."""


class Followed(Protocol):
    """Records with a version that differs after every change."""

    @property
    def version(self) -> str: ...

    def watch(self, watcher: Callable[[], None], /) -> bool: ...

    def unwatch(self, watcher: Callable[[], None], /) -> None: ...

    def process_left(self, pipeline: str, /) -> None: ...


async def wait_for_change(call: Call, followed: Followed) -> None:
    """With the parameter `after` waits up to `timeoutMs` for another version than that one. A process names itself
    with `pipeline`: if its connection ends while it waits, it is gone."""
    after = call.query.get("after", "")
    timeout_ms = call.number("timeoutMs", 0, WAIT_MS_MAX, default=30_000)
    if after != followed.version or not timeout_ms:
        return
    alarm = call.alarm()
    if not followed.watch(alarm.ring):
        raise TooManyWaiting(f"{LONG_POLLS.limit} requests wait for the declaration already")
    try:
        if not await alarm.wait(timeout_ms / 1000):
            followed.process_left(call.query.get("pipeline", ""))
        elif after != followed.version:
            await call.alarm().wait(COALESCED_S)
    finally:
        followed.unwatch(alarm.ring)
