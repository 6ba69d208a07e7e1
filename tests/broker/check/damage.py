"""A populated storage, ways to damage it, and the repair without an export."""

from __future__ import annotations

from magnetar.broker.check.check import DataCheck
from magnetar.broker.check.finding import Change, Finding, apply
from magnetar.broker.check.repair import repair
from magnetar.storage.api import Space
from magnetar.storage.memory import MemoryStorage
from tests.formats.content import populate, populate_more

EVERYTHING = (b"", b"\xff" * 64)

_populated = MemoryStorage()
populate(_populated)
populate_more(_populated)


def populated() -> MemoryStorage:
    return _populated.crash()


def change(storage: MemoryStorage, space: Space, key: bytes, value: bytes | None) -> None:
    batch = storage.batch()
    apply(batch, Change(space, key, value))
    storage.write(batch)
    storage.sync()


def rows(storage: MemoryStorage, space: Space = Space.STATE, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [row for row in storage.scan(space, *EVERYTHING) if row[0].startswith(prefix)]


def findings(storage: MemoryStorage) -> list[Finding]:
    return list(DataCheck(storage).findings())


def repaired(storage: MemoryStorage) -> list[tuple[Finding, Change, bytes]]:
    """Everything that was overwritten or deleted."""
    kept: list[tuple[Finding, Change, bytes]] = []
    repair(storage, lambda *row: kept.append(row), lambda: None)
    return kept
