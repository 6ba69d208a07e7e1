"""The committer in steps: take, write, sync and complete, with other steps possible in between.

Follows the server's committer: one flight at a time, a sync only if a group requires it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from magnetar.broker.commit import Commits, Group
from magnetar.storage.api import StorageError
from magnetar.storage.memory import MemoryBatch, MemoryStorage

from .durable import Durable
from .snapshot import Boundary, Snapshot


class CommitSteps:
    """`decided` is the number of the group with all decisions so far, `synced` that of the last durable one."""

    def __init__(
        self, commits: Commits, storage: MemoryStorage, durable: Durable, rng: Random, snapshot: Callable[[], Snapshot]
    ) -> None:
        self._commits = commits
        self._storage = storage
        self._durable = durable
        self._rng = rng
        self._snapshot = snapshot
        self._before: Snapshot = snapshot()
        self._boundaries: dict[Group, Boundary | None] = {}
        self._flight: list[Group] = []
        self._unwritten: list[Group] = []
        self._unsynced = 0  # groups written since the last sync
        self._is_synced = False
        self._closed = 0
        self._written = 0
        self.synced = 0
        self.failure: StorageError | None = None
        self._close = commits._close
        commits._close = self._closing  # type: ignore[method-assign]  # the only way to see where a group ends

    def _closing(self, group: Group) -> None:
        self._close(group)
        self._closed += 1
        self._boundaries[group] = None

    @property
    def decided(self) -> int:
        return self._closed + (self._commits._open is not None)

    @property
    def is_done(self) -> bool:
        return not self._flight and self._commits._open is None and not self._commits._closed

    def after_step(self) -> None:
        """Groups closed during the step hold the state before it, after it, or in between."""
        if None in self._boundaries.values():
            after = self._snapshot()
            for group, boundary in self._boundaries.items():
                if boundary is None:
                    self._boundaries[group] = Boundary(self._before, after)
            self._before = after
        elif self._commits._open is not None:
            self._before = self._snapshot()

    def step(self) -> str | None:
        if self.failure is not None:
            return None
        if not self._flight:
            return self._take()
        try:
            if self._unwritten:
                return self._write()
            if not self._is_synced and any(group.durable for group in self._flight):
                return self._sync()
        except StorageError as error:
            self.failure = error
            return f"storage fails: {error}"
        return self._complete()

    def _take(self) -> str | None:
        for _ in range(self._rng.randint(1, 3)):
            group = self._commits.take()
            if group is None:
                break
            if self._boundaries[group] is None:  # closed between two steps
                now = self._snapshot()
                self._boundaries[group] = Boundary(now, now)
            self._flight.append(group)
        self._unwritten = list(self._flight)
        self._is_synced = False
        return f"take {len(self._flight)} groups" if self._flight else None

    def _write(self) -> str:
        group = self._unwritten[0]
        assert isinstance(group.batch, MemoryBatch)
        self._storage.write(group.batch)
        del self._unwritten[0]
        boundary = self._boundaries.pop(group)
        assert boundary is not None
        self._durable.unsynced.append((group.batch.operations, boundary))
        self._written += 1
        return f"write a group of {len(group.batch)}"

    def _sync(self) -> str:
        self._storage.sync()
        self._durable.synced()
        self.synced = self._written
        self._is_synced = True
        return "sync"

    def _complete(self) -> str:
        flight, self._flight = self._flight, []
        for group in flight:
            group.complete()
        return f"complete {len(flight)} groups"
