"""Some seeds of each kind of fault per test run, `make simulate` runs thousands; and proof that a seed can fail."""

from __future__ import annotations

import pytest

from magnetar.broker.broker import Broker
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.broker.topic.log import Log
from magnetar.storage.api import Space, StorageError, StorageLoss
from tests.simulation.failure import BrokenPromise

from .faulty_storage import FaultyStorage
from .planted import CLASSES, methods_of
from .world import World

SEEDS = 40


def run(first: int, *faults: str) -> list[World]:
    worlds = [World(seed, *faults) for seed in range(first, first + SEEDS)]
    for world in worlds:
        world.run()
    assert sum(len(ids) for world in worlds for ids in world.ledger.confirmed.values()) > SEEDS * 10
    return worlds


def test_fault_random_bytes_beside_honest_clients() -> None:
    run(0, "vandal")


def test_fault_planted_exception_in_the_core() -> None:
    worlds = run(1000, "planted")
    assert sum(world.planter.raised for world in worlds) > SEEDS / 2


def test_fault_storage_that_cannot_be_read() -> None:
    worlds = run(2000, "disk")
    assert sum(world.failed_reads for world in worlds) > SEEDS / 4
    assert any(world.hurt for world in worlds)


def test_fault_planted_exception_with_everything_else() -> None:
    run(3000)


def test_a_seed_is_deterministic() -> None:
    histories = []
    for _ in range(2):
        world = World(7)
        world.run()
        histories.append((list(world.history), world.ledger.confirmed, world.planter.raised))
    assert histories[0] == histories[1]


# -- planted bugs


def never_restores_a_subscription(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Broker, "restore", lambda broker, subscription: None)


def notes_sequences_without_their_messages(patch: pytest.MonkeyPatch) -> None:
    append = Log.append

    def forget(log: Log, batch: object, now_ms: int, new: list[object], *, keep: bool) -> None:
        append(log, batch, now_ms, new[1:] if len(new) > 1 else new, keep=keep)  # type: ignore[arg-type]

    patch.setattr(Log, "append", forget)


def takes_everything_for_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deduplication, "last_sequence", lambda deduplication, name: 5)


@pytest.mark.parametrize(
    "plant",
    [
        never_restores_a_subscription,
        notes_sequences_without_their_messages,
        takes_everything_for_a_duplicate,
    ],
)
def test_a_planted_bug_is_found(plant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)  # type: ignore[operator]
    for seed in range(200):
        try:
            World(seed, "planted").run()
        except BrokenPromise as broken:
            assert f"python -m tests.survival {seed}" in str(broken)
            return
    raise AssertionError("no seed finds it")


# -- the instruments


def test_exceptions_are_planted_all_over_the_core() -> None:
    found = methods_of(CLASSES)
    assert len(found) > 150
    assert {owner for owner, _ in found} == {*CLASSES}


def test_a_disk_that_cannot_be_read() -> None:
    storage = FaultyStorage()
    for key in (b"a", b"b"):
        batch = storage.batch()
        batch.put(key, key)
        storage.write(batch)
        storage.sync()
    storage.corrupt(Space.STATE, b"a")
    with pytest.raises(StorageError, match="checksum"):
        storage.get(Space.STATE, b"a")
    with pytest.raises(StorageError, match="checksum"):
        storage.scan(Space.STATE, b"", b"z")
    assert storage.scan(Space.STATE, b"b", b"z") == [(b"b", b"b")]
    with storage.readable():
        assert storage.get(Space.STATE, b"a") == b"a"
    batch = storage.batch()
    batch.put(b"a", b"again")
    storage.write(batch)
    assert storage.get(Space.STATE, b"a") == b"again", "written again, it is whole"
    storage.fail_reads(1)
    with pytest.raises(StorageError, match="cannot be read"):
        storage.get(Space.STATE, b"b")
    assert storage.get(Space.STATE, b"b") == b"b"
    assert storage.failed_reads == 3


def test_a_lost_end_refuses_to_open_unless_it_is_accepted() -> None:
    storage = FaultyStorage()
    for value in (b"1", b"2", b"3"):
        batch = storage.batch()
        batch.put(b"a", value)
        storage.write(batch)
        storage.sync()
    with pytest.raises(StorageLoss):
        storage.lose_tail(2, accept_loss=False)
    survivor = storage.lose_tail(2, accept_loss=True)
    assert survivor.get(Space.STATE, b"a") == b"1"
    assert survivor.lost_writes == 2
    assert storage.get(Space.STATE, b"a") == b"3"
