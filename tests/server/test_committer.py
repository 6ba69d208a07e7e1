"""The committer: whatever goes wrong ends the broker with a reason, and what needs no sync is synced soon."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Iterator

import pytest

from magnetar.bounds import GROUP_SIZE, GROUPS_PER_SYNC
from magnetar.broker.commit import Commits
from magnetar.broker.host import ManualHost
from magnetar.latency import BUCKETS_S, Latencies
from magnetar.server import committer as module
from magnetar.server.committer import CommitFailed, Committer
from magnetar.storage.api import Batch, Space, Storage, StorageError
from magnetar.storage.memory import MemoryStorage

_PATIENCE_S = 60


class CountingStorage(MemoryStorage):
    """Counts syncs, and waits for `may_sync` in each; both of them in the committer's thread."""

    __slots__ = ("may_sync", "syncs")

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.may_sync = threading.Event()
        self.may_sync.set()

    def sync(self) -> None:
        self.may_sync.wait(_PATIENCE_S)
        super().sync()
        self.syncs += 1


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def store(self, batch: Batch) -> None:
        batch.put(b"counter", bytes([self.value]))


class Broken:
    def store(self, batch: Batch) -> None:
        raise ValueError("cannot be encoded")


class Panic(BaseException):
    """As a native library raises it."""


class Running:
    """A committer in a loop, with its outcome."""

    def __init__(self, storage: Storage, *, is_started: bool = True) -> None:
        self.failures: list[StorageError] = []
        self.written: list[int] = []
        self.waits: list[float] = []
        self.committer = Committer(
            asyncio.get_running_loop(),
            storage,
            on_commit=lambda: None,
            on_failure=self.failures.append,
            on_written=lambda groups, seconds: self.written.append(groups),
            on_waiting=self.waits.append,
        )
        host = ManualHost()
        host.commit_soon = self.committer.wake  # type: ignore[method-assign]
        self.commits = Commits(storage, host)
        if is_started:
            self.committer.start(self.commits)


def run(storage: Storage, test: Callable[[Running], Coroutine[None, None, None]]) -> Running:
    async def main() -> Running:
        running = Running(storage)
        try:
            await asyncio.wait_for(test(running), _PATIENCE_S)
        finally:
            await running.committer.close()
        return running

    return asyncio.run(main())


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@pytest.fixture
def storage() -> Iterator[CountingStorage]:
    storage = CountingStorage()
    yield storage
    storage.may_sync.set()


def test_nothing_is_written_before_the_start(storage: CountingStorage) -> None:
    """The rest of a broker may be impossible to make: then its changes are not those of a broker that failed."""

    async def main() -> Running:
        running = Running(storage, is_started=False)
        counter, written = Counter(), asyncio.Event()
        running.commits.touch(counter)
        running.commits.after(written.set)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not written.is_set()
        running.committer.start(running.commits)
        await asyncio.wait_for(written.wait(), _PATIENCE_S)
        await running.committer.close()
        return running

    assert asyncio.run(main()).failures == []
    assert storage.get(Space.STATE, b"counter") == b"\0"


def test_fault_store_exception_ends_the_broker(storage: CountingStorage) -> None:
    completed: list[str] = []

    async def test(running: Running) -> None:
        storage.may_sync.clear()
        running.commits.after(lambda: completed.append("first"))
        await asyncio.sleep(0)  # the first group is in flight
        running.commits.touch(Broken())
        running.commits.after(lambda: completed.append("second"))
        storage.may_sync.set()
        await until(lambda: running.failures)
        with pytest.raises(CommitFailed):
            await running.committer.drained()

    running = run(storage, test)
    assert completed == ["first"]  # it is durable; what comes after the failure is not
    assert len(running.failures) == 1
    assert str(running.failures[0]) == "a group of changes was not written: ValueError: cannot be encoded"


def test_fault_storage_panic_ends_the_broker() -> None:
    class Panicking(MemoryStorage):
        def write(self, batch: Batch, /) -> None:
            raise Panic("slice index out of range")

    async def test(running: Running) -> None:
        running.commits.batch().put(b"k", b"v")
        with pytest.raises(CommitFailed, match="Panic: slice index out of range"):
            await running.committer.drained()

    assert len(run(Panicking(), test).failures) == 1


def test_bound_late_commit_is_reported_once(storage: CountingStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_EVERY_S", 0.005)
    monkeypatch.setattr(module, "COMMIT_WAIT_WARNED", module.COMMIT_WAIT_WARNED._replace(limit=0.02))

    async def test(running: Running) -> None:
        storage.may_sync.clear()
        running.commits.batch().put(b"k", b"v")
        await until(lambda: running.waits)
        assert running.committer.waiting_since_s is not None
        await asyncio.sleep(0.05)
        assert len(running.waits) == 1
        storage.may_sync.set()
        await running.committer.drained()
        await until(lambda: running.committer.waiting_since_s is None)
        assert running.committer.last_commit_s is not None

    running = run(storage, test)
    assert not running.failures and not running.committer.is_stuck


def test_bound_hanging_commit_ends_the_broker(storage: CountingStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_EVERY_S", 0.005)
    monkeypatch.setattr(module, "COMMIT_WAIT", module.COMMIT_WAIT._replace(limit=0.02))
    monkeypatch.setattr(module, "_JOIN_S", 0.01)
    completed: list[str] = []

    async def test(running: Running) -> None:
        storage.may_sync.clear()
        running.commits.after(lambda: completed.append("receipt"))
        await until(lambda: running.failures)

    running = run(storage, test)
    assert running.committer.is_stuck
    assert "the disk has not written a group of changes for" in str(running.failures[0])
    assert completed == []


def test_a_process_that_was_stopped_has_not_waited_for_its_disk(
    storage: CountingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = itertools.count(0, 3600)

    async def test(running: Running) -> None:
        storage.may_sync.clear()
        running.commits.batch().put(b"k", b"v")
        await until(lambda: running.committer.waiting_since_s is not None)
        with monkeypatch.context() as patched:
            patched.setattr(module.time, "monotonic", lambda: time.perf_counter() + 1e6 + next(hours))
            for _ in range(2):
                assert running.committer._watch_timer is not None
                running.committer._watch_timer.cancel()
                running.committer._watch()
        assert not running.waits and not running.failures
        storage.may_sync.set()

    run(storage, test)


def test_bound_last_commit_limits_the_end(storage: CountingStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 0.02)
    monkeypatch.setattr(module, "_JOIN_S", 0.01)

    async def test(running: Running) -> None:
        storage.may_sync.clear()
        running.commits.batch().put(b"k", b"v")
        await asyncio.sleep(0)

    running = run(storage, test)
    assert running.committer.is_stuck
    assert "the disk has not written the last changes within" in str(running.failures[0])


def test_bound_unsynced_acks_are_synced_by_themselves(
    storage: CountingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SYNC_AFTER_S", 0.01)

    async def test(running: Running) -> None:
        counter = Counter()
        for counter.value in range(20):
            running.commits.touch(counter)
            await until(lambda expected=bytes([counter.value]): storage.get(Space.STATE, b"counter") == expected)
        await until(lambda: running.commits.idle)
        assert storage.syncs >= 1 and storage.unsynced_writes == 0
        assert storage.crash().get(Space.STATE, b"counter") == bytes([19])
        before = storage.syncs
        await asyncio.sleep(0.05)
        assert storage.syncs == before  # once is enough

    run(storage, test)


def test_bound_sequence_mark_follows_at_once_and_then_once_a_second(
    storage: CountingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MARK_EVERY_S", 0.05)
    marks: list[int] = []
    mark_synced = MemoryStorage.mark_synced

    def counted(self: MemoryStorage) -> None:
        mark_synced(self)
        marks.append(self.marked)

    monkeypatch.setattr(MemoryStorage, "mark_synced", counted)

    async def test(running: Running) -> None:
        running.commits.batch().put(b"k", b"v")
        await until(lambda: storage.marked == 1)
        for _ in range(50):
            running.commits.batch().put(b"k", b"v")
            await running.committer.drained()
        await until(lambda: storage.marked == storage.sequence == 51)
        await asyncio.sleep(0.2)

    run(storage, test)
    assert marks == sorted(set(marks))  # and none without a sync since the one before
    assert len(marks) < 51


def test_a_mark_that_cannot_be_written_ends_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(MemoryStorage):
        def mark_synced(self) -> None:
            raise StorageError("SEQUENCE cannot be written")

    async def test(running: Running) -> None:
        running.commits.batch().put(b"k", b"v")
        await until(lambda: running.failures)

    assert "SEQUENCE cannot be written" in str(run(Failing(), test).failures[0])


def test_latencies_are_counted_once_per_commit(storage: CountingStorage) -> None:
    async def test(running: Running) -> None:
        for _ in range(3):
            running.commits.batch().put(b"k", b"v")
            await running.committer.drained()

    committer = run(storage, test).committer
    assert committer.commit_seconds.count == sum(committer.commit_seconds.counts) == committer.fsync_seconds.count >= 3


def test_a_latency_is_in_the_bucket_of_the_next_bound() -> None:
    latencies = Latencies()
    for seconds in (0.0, BUCKETS_S[0], BUCKETS_S[0] + 1e-9, 1e9):
        latencies.add(seconds)
    assert (latencies.counts[0], latencies.counts[1], latencies.counts[-1]) == (2, 1, 1)


def test_bound_groups_per_sync(storage: CountingStorage) -> None:
    async def test(running: Running) -> None:
        storage.may_sync.clear()
        running.commits.batch()
        await until(lambda: running.committer.waiting_since_s is not None)
        for _ in range(2 * GROUPS_PER_SYNC.limit):  # while the first is in flight
            running.commits.batch()
            running.commits.open().grow(GROUP_SIZE.limit + 1)
        storage.may_sync.set()
        await running.committer.drained()

    assert run(storage, test).written == [1, GROUPS_PER_SYNC.limit, GROUPS_PER_SYNC.limit, 1]
