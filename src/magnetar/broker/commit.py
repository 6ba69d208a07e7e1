"""Group commit: changes that are not durable yet, and the completions that run once they are.

The core changes its memory at once and adds the same change to the open group. The host (the server's committer
thread, or a simulation) takes the oldest group, writes and syncs it, and then calls `Group.complete()`. Receipts,
replies and dispatch are completions, so nothing is acknowledged or delivered before it is durable.

A group is closed when it is taken or has grown past `GROUP_SIZE_MAX`. Changes between two calls of `Commits.batch()`
are one transaction and never split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from magnetar.bounds import GROUP_SIZE
from magnetar.broker.host import Host
from magnetar.storage.api import Batch, Storage

# RocksDB copies a batch while holding the interpreter's lock: larger groups would freeze the loop.
GROUP_SIZE_MAX = GROUP_SIZE.limit


class Storable(Protocol):
    """State that is written once per group, however often it changed meanwhile."""

    def store(self, batch: Batch) -> None: ...


class Group:
    """One atomic write. `durable` is false while it only holds changes that may be lost, such as plain acks."""

    __slots__ = ("_commits", "batch", "changed", "completions", "durable", "size")

    def __init__(self, commits: Commits, batch: Batch) -> None:
        self._commits = commits
        self.batch = batch
        self.changed: dict[Storable, None] = {}
        self.completions: list[Callable[[], None]] = []
        self.durable = False
        self.size = 0

    def grow(self, size: int) -> None:
        self.size += size
        self._commits.waiting_bytes += size

    def complete(self) -> None:
        """The group is durable or, if it does not have to be, written."""
        self._commits.waiting_bytes -= self.size
        self._commits.completed(self)
        for completion in self.completions:
            try:
                completion()
            except Exception as error:
                self._commits.host.fault("completion", error)


class Commits:
    """The queue of groups: at most one open, the others closed and waiting to be written."""

    def __init__(self, storage: Storage, host: Host) -> None:
        self.host = host
        self._storage = storage
        self._closed: deque[Group] = deque()
        self._open: Group | None = None
        self._youngest: Group | None = None  # None once it is durable, and with it all before it
        self.waiting_bytes = 0  # published and not durable yet

    def open(self) -> Group:
        """The group that takes the next transaction."""
        group = self._open
        if group is None:
            group = self._open = self._youngest = Group(self, self._storage.batch())
            self.host.commit_soon()
        elif group.size > GROUP_SIZE_MAX:
            self._close(group)
            group = self._open = self._youngest = Group(self, self._storage.batch())
        return group

    def batch(self) -> Batch:
        """A batch for a change that must be durable before the reply to it."""
        group = self.open()
        group.durable = True
        return group.batch

    def put(self, key: bytes, value: bytes) -> None:
        """A record that must be durable before the reply to its change. Its size counts as that of a message does."""
        group = self.open()
        group.durable = True
        group.batch.put(key, value)
        group.grow(len(key) + len(value))

    def after(self, completion: Callable[[], None]) -> None:
        """Runs `completion` when everything decided so far is durable."""
        group = self.open()
        group.durable = True
        group.completions.append(completion)

    def touch(self, storable: Storable) -> None:
        """Stores `storable` with the open group. Alone, it does not force a sync."""
        self.open().changed[storable] = None

    def forget(self, storable: Storable) -> None:
        """`storable` was deleted: no group may write it any more."""
        for group in (*self._closed, self._open):
            if group is not None:
                group.changed.pop(storable, None)

    def take(self) -> Group | None:
        """The oldest group, closed; None when there is nothing to write."""
        if not self._closed:
            if self._open is None:
                return None
            self._close(self._open)
            self._open = None
        return self._closed.popleft()

    def _close(self, group: Group) -> None:
        # Stored when the group is closed, not later: a later transaction must not slip into an earlier group.
        for storable in group.changed:
            storable.store(group.batch)
        group.changed = {}
        self._closed.append(group)

    def completed(self, group: Group) -> None:
        if group is self._youngest and group.durable:
            self._youngest = None

    def synced(self, group: Group) -> None:
        """Everything written up to `group` is durable, whether it has to be or not."""
        if group is self._youngest:
            self._youngest = None

    @property
    def waiting_groups(self) -> int:
        """Groups that the disk has not begun to write."""
        return len(self._closed) + (self._open is not None)

    @property
    def idle(self) -> bool:
        """Everything decided so far is durable: nothing is open, waiting, being written, or written but not synced."""
        return self._youngest is None
