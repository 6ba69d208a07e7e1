"""The committer: the only thread that writes. It writes and syncs groups, and hands completions back to the loop.

One batch of groups is in flight at a time, and changes made meanwhile are the next one: a busy broker commits in large
groups, an idle one immediately. Storage releases the interpreter's lock while it syncs, so the loop goes on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from magnetar.broker.commit import Commits, Group
from magnetar.storage.api import Storage

_GROUPS_PER_SYNC = 8  # bounds the latency of the first group


class Committer:
    """Writes from `start` to `close`, whenever it is woken.

    `on_failure` is called once, in the loop, when a write or a sync failed: nothing is acknowledged after that.
    `on_written` gets the number of groups of each commit, and its duration in seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        storage: Storage,
        *,
        on_commit: Callable[[], None],
        on_failure: Callable[[Exception], None],
        on_written: Callable[[int, float], None],
    ) -> None:
        self._loop = loop
        self._storage = storage
        self._commits: Commits
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._on_written = on_written
        self._work: SimpleQueue[list[Group] | None] = SimpleQueue()
        self._busy = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def start(self, commits: Commits) -> None:
        self._commits = commits
        self._thread.start()

    def wake(self) -> None:
        """There is a group to write. It is taken in the next turn of the loop, with all that this turn adds to it."""
        if not self._busy and self._failure is None and not self._is_closed:
            self._busy = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        groups: list[Group] = []
        while len(groups) < _GROUPS_PER_SYNC:
            group = self._commits.take()
            if group is None:
                break
            groups.append(group)
        if groups:
            self._work.put(groups)
        else:
            self._busy = False

    def _run(self) -> None:
        while (groups := self._work.get()) is not None:
            started_s = time.monotonic()
            try:
                for group in groups:
                    self._storage.write(group.batch)
                if any(group.durable for group in groups):
                    self._storage.sync()
            except Exception as error:
                self._loop.call_soon_threadsafe(self._fail, error)
                return
            self._loop.call_soon_threadsafe(self._done, groups, time.monotonic() - started_s)

    def _done(self, groups: list[Group], seconds: float) -> None:
        self._next()  # first, so that the disk works while the loop sends receipts
        for group in groups:
            group.complete()
        self._on_commit()
        self._on_written(len(groups), seconds)
        if not self._busy:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                _finish(waiter)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._waiters.clear()
        self._on_failure(error)

    async def drained(self) -> None:
        """Returns when every change made before the call is durable; raises if a write failed."""
        if self._failure is not None:
            raise self._failure
        if not self._busy:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        self._commits.after(lambda: _finish(waiter))
        await waiter

    async def close(self) -> None:
        """Writes the remaining groups and ends the thread."""
        if self._busy and self._failure is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await asyncio.wait([waiter])  # a failure meanwhile is reported by `on_failure`, not here
        self._is_closed = True
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
