"""The committer: the only thread that writes. It writes and syncs groups, and hands completions back to the loop.

One batch of groups is in flight at a time, and changes made meanwhile are the next one: a busy broker commits in large
groups, an idle one immediately. Storage releases the interpreter's lock while it syncs, so the loop goes on.

Whatever goes wrong ends the broker with a reason: an error of storage, any other exception while a group is closed or
written, and a disk that does not answer. Nothing is acknowledged after it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from magnetar.bounds import (
    COMMIT_WAIT,
    COMMIT_WAIT_WARNED,
    GROUPS_PER_SYNC,
    LAST_COMMIT_WAIT,
    SEQUENCE_MARK,
    UNSYNCED_WAIT,
)
from magnetar.broker.commit import Commits, Group
from magnetar.latency import Latencies
from magnetar.storage.api import Storage, StorageError

_GROUPS_PER_SYNC = GROUPS_PER_SYNC.limit  # bounds the latency of the first group
_SYNC_AFTER_S = UNSYNCED_WAIT.limit / 1000
_CLOSE_S = LAST_COMMIT_WAIT.limit
_JOIN_S = 1.0

MARK_EVERY_S = SEQUENCE_MARK.limit / 1000
"""Interval of the records of what is synced, under load."""

WATCH_EVERY_S = 5.0
"""Interval of the checks whether the disk answers."""


class CommitFailed(StorageError):
    """Not storage, but an exception that was not expected failed; it is the cause of this one."""


class Committer:
    """Writes from `start` to `close`, whenever it is woken.

    `on_failure` is called once, in the loop, when something failed: nothing is acknowledged after that.
    `on_written` gets the number of groups of each commit, and its duration in seconds; `on_waiting` gets the seconds
    that a group has waited for the disk, once, when it is late.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        storage: Storage,
        *,
        on_commit: Callable[[], None],
        on_failure: Callable[[StorageError], None],
        on_written: Callable[[int, float], None],
        on_waiting: Callable[[float], None],
    ) -> None:
        self._loop = loop
        self._storage = storage
        self._commits: Commits
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._on_written = on_written
        self._on_waiting = on_waiting
        self._work: SimpleQueue[tuple[list[Group], bool] | None] = SimpleQueue()
        self._busy = True  # until it is started: a broker that cannot be made leaves nothing to write
        self._is_closed = False
        self._failure: StorageError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._unsynced: Group | None = None  # the youngest one that is written and not synced
        self._must_sync = False
        self._marking: asyncio.Future[None] | None = None
        self._mark_timer: asyncio.TimerHandle | None = None
        self._is_mark_old = False
        self._sync_timer: asyncio.TimerHandle | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self._watched_s = 0.0  # when the disk was last checked
        self._late_s = 0.0  # how long the groups in flight have been seen waiting
        self._is_reported = False
        self.last_commit_s: float | None = None
        """The monotonic time of the last commit."""
        self.waiting_since_s: float | None = None
        """The monotonic time since which the disk works on the groups in flight; None when there are none."""
        self.commit_seconds = Latencies()
        self.fsync_seconds = Latencies()

    def start(self, commits: Commits) -> None:
        self._commits = commits
        self._thread.start()
        self._busy = False
        self.wake()
        self._watched_s = time.monotonic()
        self._watch_timer = self._loop.call_later(WATCH_EVERY_S, self._watch)

    def wake(self) -> None:
        """There is a group to write. It is taken in the next turn of the loop, with all that this turn adds to it."""
        if not self._busy and self._failure is None and not self._is_closed:
            self._busy = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        groups: list[Group] = []
        try:
            while len(groups) < _GROUPS_PER_SYNC:
                group = self._commits.take()
                if group is None:
                    break
                groups.append(group)
        except BaseException as error:  # memory has changes that no group contains: the disk must not go on without
            self._fail(error)
            return
        if groups or self._must_sync:
            self.waiting_since_s = time.monotonic()
            self._work.put((groups, self._must_sync))
            self._must_sync = False
        else:
            self._busy = False

    # -- in the thread

    def _run(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                groups, must_sync = work
                started_s = time.monotonic()
                for group in groups:
                    self._storage.write(group.batch)
                fsync_s = None
                if must_sync or any(group.durable for group in groups):
                    written_s = time.monotonic()
                    self._storage.sync()
                    fsync_s = time.monotonic() - written_s
                self._in_loop(self._done, groups, time.monotonic() - started_s, fsync_s)
        except BaseException as error:  # a panic of a native library is no Exception
            self._in_loop(self._fail, error)

    def _in_loop(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(action, *arguments)
        except RuntimeError:
            return  # the loop did not wait for the disk any longer, and is closed

    # -- in the loop

    def _done(self, groups: list[Group], seconds: float, fsync_s: float | None) -> None:
        self.waiting_since_s = None
        self.last_commit_s = time.monotonic()
        self._late_s, self._is_reported = 0.0, False
        if self._failure is not None:
            return  # it took too long: the broker ends already
        self._next()  # first, so that the disk works while the loop sends receipts; its failure ends only what follows
        for group in groups:
            group.complete()
        self._note_synced(groups, fsync_s)
        self.commit_seconds.add(seconds)
        if not self._busy:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                _finish(waiter)
        self._on_commit()
        if groups:
            self._on_written(len(groups), seconds)

    def _note_synced(self, groups: list[Group], fsync_s: float | None) -> None:
        """Groups that need no sync wait for the next one, but not long."""
        if groups:
            self._unsynced = groups[-1]
        if fsync_s is not None:
            self.fsync_seconds.add(fsync_s)
            if self._unsynced is not None:
                self._commits.synced(self._unsynced)
                self._unsynced = None
            if self._mark_timer is None:
                self._mark()
            else:
                self._is_mark_old = True
        elif self._sync_timer is None:
            self._sync_timer = self._loop.call_later(_SYNC_AFTER_S, self._sync)

    def _sync(self) -> None:
        self._sync_timer = None
        if self._unsynced is not None:
            self._must_sync = True
            self.wake()

    def _mark(self) -> None:
        """Records what is synced, in another thread: at once after a pause, and once a second under load."""
        self._is_mark_old = False
        self._mark_timer = self._loop.call_later(MARK_EVERY_S, self._mark_again)
        if self._marking is None or self._marking.done():
            self._marking = self._loop.run_in_executor(None, self._storage.mark_synced)
            self._marking.add_done_callback(self._marked)

    def _mark_again(self) -> None:
        self._mark_timer = None
        if self._is_mark_old:
            self._mark()

    def _marked(self, marking: asyncio.Future[None]) -> None:
        if not marking.cancelled() and (error := marking.exception()) is not None:
            self._fail(error)

    def _watch(self) -> None:
        """A disk that does not answer raises no error: only time shows it.

        Time is counted between two checks, and a long pause as one check: a process that was stopped for an hour has
        not waited for its disk.
        """
        now_s = time.monotonic()
        passed_s, self._watched_s = min(now_s - self._watched_s, 2 * WATCH_EVERY_S), now_s
        self._watch_timer = self._loop.call_later(WATCH_EVERY_S, self._watch)
        if self.waiting_since_s is None:
            return
        self._late_s += min(passed_s, now_s - self.waiting_since_s)
        if self._late_s >= COMMIT_WAIT.limit:
            self._fail(StorageError(f"the disk has not written a group of changes for {self._late_s:.0f} s"))
        elif self._late_s >= COMMIT_WAIT_WARNED.limit and not self._is_reported:
            self._is_reported = True
            self._on_waiting(self._late_s)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        if not isinstance(error, StorageError):
            cause, error = error, CommitFailed(f"a group of changes was not written: {type(error).__name__}: {error}")
            error.__cause__ = cause
        self._failure = error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
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
        """Writes the remaining groups and ends the thread, within a limit."""
        if self._busy and self._failure is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await asyncio.wait([waiter], timeout=_CLOSE_S)
            if waiter.done():
                waiter.exception()  # reported by `on_failure`
            else:
                waiter.cancel()
                self._fail(StorageError(f"the disk has not written the last changes within {_CLOSE_S} s"))
        self._is_closed = True
        for timer in (self._sync_timer, self._mark_timer, self._watch_timer):
            if timer is not None:
                timer.cancel()
        if self._marking is not None:
            await asyncio.wait([self._marking], timeout=_JOIN_S)
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, _JOIN_S)

    @property
    def is_stuck(self) -> bool:
        """Whether a thread still waits for the disk after `close`: storage must not be closed then."""
        return self._thread.is_alive() or (self._marking is not None and not self._marking.done())


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
