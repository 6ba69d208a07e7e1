"""Random histories must be equal on RocksDB and in memory, through restarts and compactions."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from magnetar.storage.api import Batch, Space, Storage
from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage

# A small alphabet, so that operations overlap; prefixes and 0xff, so that byte order matters.
keys = st.one_of(
    st.sampled_from([b"", b"\0", b"a", b"a\0", b"ab", b"b", b"\xff", b"\xff\xff"]),
    st.binary(max_size=2),
)
values = st.binary(max_size=40)
spaces = st.sampled_from(list(Space))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put_entry"), keys, values),
        st.tuples(st.just("put"), keys, values),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("delete_range"), spaces, keys, keys),
    ),
    max_size=12,
)


def build(batch: Batch, steps: list[tuple[object, ...]]) -> Batch:
    for name, *arguments in steps:
        getattr(batch, str(name))(*arguments)
    return batch


class Twins(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="magnetar-twins-"))
        self.rocks = RocksStorage(self.folder / "data")
        self.memory = MemoryStorage()

    def both(self) -> tuple[Storage, Storage]:
        return self.rocks, self.memory

    @rule(steps=operations)
    def write(self, steps: list[tuple[object, ...]]) -> None:
        for storage in self.both():
            storage.write(build(storage.batch(), steps))

    @rule()
    def sync(self) -> None:
        for storage in self.both():
            storage.sync()

    @rule()
    def mark_synced(self) -> None:
        for storage in self.both():
            storage.mark_synced()

    @rule(space=spaces, start=keys, end=keys)
    def compact(self, space: Space, start: bytes, end: bytes) -> None:
        for storage in self.both():
            storage.compact(space, start, end)

    @rule()
    def reopen(self) -> None:
        self.rocks.close()
        self.memory.close()
        self.rocks = RocksStorage(self.folder / "data")
        self.memory = self.memory.crash()

    @rule(space=spaces, key=keys)
    def get(self, space: Space, key: bytes) -> None:
        assert self.rocks.get(space, key) == self.memory.get(space, key)

    @rule(
        space=spaces,
        start=keys,
        end=keys,
        limit=st.none() | st.integers(0, 10),
        size_max=st.none() | st.integers(1, 200),
        reverse=st.booleans(),
    )
    def scan(
        self,
        space: Space,
        start: bytes,
        end: bytes,
        limit: int | None,
        size_max: int | None,
        reverse: bool,
    ) -> None:
        rocks, memory = (
            storage.scan(space, start, end, limit=limit, size_max=size_max, reverse=reverse) for storage in self.both()
        )
        assert rocks == memory

    @invariant()
    def same_rows(self) -> None:
        if not hasattr(self, "rocks"):
            return
        assert self.rocks.sequence == self.memory.sequence
        assert self.rocks.mark is not None and self.memory.marked == (self.rocks.mark.sequence or 0)
        for space in Space:
            for reverse in (False, True):
                rocks, memory = (storage.scan(space, b"", b"\xff" * 4, reverse=reverse) for storage in self.both())
                assert rocks == memory

    def teardown(self) -> None:
        if hasattr(self, "rocks"):
            self.rocks.close()
            shutil.rmtree(self.folder)


TestTwins = Twins.TestCase
TestTwins.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
