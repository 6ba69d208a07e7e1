"""A finding: one thing of a data folder that is not as the broker writes it, and the changes that repair it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.log.events import bounded
from magnetar.storage.api import Batch, Space


class Change(NamedTuple):
    """A new value of a key, or None to delete it."""

    space: Space
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` names the record, `name` what it belongs to. `repair` completes the sentence "--fix would …".

    Without changes, it waits for the repair of another one, or has none.
    """

    kind: str
    name: str
    what: str
    repair: str
    space: Space = Space.STATE
    key: bytes = b""
    changes: tuple[Change, ...] = field(default=())

    @property
    def is_fixable(self) -> bool:
        return bool(self.changes)

    def described(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "name": bounded(self.name),
            "what": bounded(self.what),
            "repair": self.repair,
            "fixable": self.is_fixable,
            "space": self.space.name.lower(),
            "key": self.key.hex(),
        }


def put(key: bytes, value: bytes, space: Space = Space.STATE) -> Change:
    return Change(space, key, value)


def delete(key: bytes, space: Space = Space.STATE) -> Change:
    return Change(space, key, None)


def apply(batch: Batch, change: Change) -> None:
    if change.value is None and change.space is Space.STATE:
        batch.delete(change.key)
    elif change.value is None:
        batch.delete_range(change.space, change.key, change.key + b"\0")
    elif change.space is Space.STATE:
        batch.put(change.key, change.value)
    else:
        batch.put_entry(change.key, change.value)


def shown_key(key: bytes) -> str:
    """A key for people: its letter and the rest, escaped."""
    return bounded(key.decode("latin-1").encode("unicode_escape").decode(), 120)
