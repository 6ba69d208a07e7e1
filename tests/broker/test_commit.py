"""Commit groups: order, size, and isolation of later state from earlier groups."""

from __future__ import annotations

from magnetar.broker.commit import GROUP_SIZE_MAX, Commits
from magnetar.broker.host import ManualHost
from magnetar.storage.api import Batch, Space
from magnetar.storage.memory import MemoryStorage


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def store(self, batch: Batch) -> None:
        batch.put(b"counter", bytes([self.value]))


def test_completions_run_in_order_and_only_on_request() -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    said: list[str] = []
    commits.after(lambda: said.append("first"))
    commits.after(lambda: said.append("second"))
    group = commits.take()
    assert group is not None
    storage.write(group.batch)
    assert said == []
    group.complete()
    assert said == ["first", "second"]
    assert commits.take() is None


def test_bound_group_size_splits_between_transactions() -> None:
    commits = Commits(MemoryStorage(), ManualHost())
    first = commits.open()
    first.grow(GROUP_SIZE_MAX + 1)
    assert commits.open() is not first
    assert commits.take() is first
    assert commits.waiting_bytes == GROUP_SIZE_MAX + 1
    first.complete()
    assert commits.waiting_bytes == 0


def test_state_is_stored_as_of_the_close_of_its_group() -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    counter = Counter()
    counter.value = 1
    commits.touch(counter)
    commits.open().grow(GROUP_SIZE_MAX + 1)
    commits.open()  # closes the first group
    counter.value = 2  # belongs to a later transaction
    commits.touch(counter)
    first = commits.take()
    assert first is not None
    storage.write(first.batch)
    assert storage.get(Space.STATE, b"counter") == b"\x01"


def test_plain_state_alone_requires_no_sync() -> None:
    commits = Commits(MemoryStorage(), ManualHost())
    commits.touch(Counter())
    group = commits.take()
    assert group is not None
    assert not group.durable


def test_discarded_state_is_not_written() -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    counter = Counter()
    commits.touch(counter)
    commits.forget(counter)
    group = commits.take()
    assert group is not None
    storage.write(group.batch)
    assert storage.get(Space.STATE, b"counter") is None


def test_work_is_announced_once_per_open_group() -> None:
    woken: list[int] = []

    class Waking(ManualHost):
        def commit_soon(self) -> None:
            woken.append(1)

    commits = Commits(MemoryStorage(), Waking())
    commits.batch()
    commits.batch()
    assert len(woken) == 1
    commits.take()
    commits.batch()
    assert len(woken) == 2
