"""Damage: the records, runs and cursors that cannot be read, and what is closed because of them.

Owns the list that stats, health, metrics and the log show. Knows neither how a record is decoded nor what happens to
the topic, subscription or schema that it belongs to: the code that meets an unreadable record notes it here and refuses
that one thing with the reason. Bounded: beyond the limit only the number is known.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from magnetar.bounds import DAMAGE_LISTED
from magnetar.errors import Damaged, EntriesDamaged
from magnetar.log.events import DAMAGED, bounded
from magnetar.storage.api import StorageError

DamageKind = Literal["cluster", "tenant", "namespace", "topic", "subscription", "schema", "route policy", "pipeline"]

DAMAGE_KINDS: tuple[DamageKind, ...] = get_args(DamageKind)

UNREADABLE: tuple[type[Exception], ...] = (
    StorageError,
    struct.error,
    msgspec.MsgspecError,
    UnicodeDecodeError,
    Damaged,
)
"""Errors that mean that what is stored cannot be read. Any other exception is a bug."""

REASON_SIZE_MAX = 300

Key = tuple[DamageKind, str, str]


class DamageReport(msgspec.Struct, frozen=True, rename="camel"):
    """`position` is the first entry that cannot be read, where it is known."""

    kind: DamageKind
    name: str
    subscription: str
    reason: str
    position: str
    since_ms: int

    @property
    def title(self) -> str:
        return f"{self.subscription} of {self.name}" if self.subscription else self.name


class DamageList:
    def __init__(self, event: Callable[..., None], now_ms: Callable[[], int]) -> None:
        self._event = event
        self._now_ms = now_ms
        self._listed: dict[Key, DamageReport] = {}
        self.unlisted = 0
        """Reports beyond the limit; the same thing may be counted several times."""
        self.has_blocks = False
        """Whether a block of a file cannot be read. A compaction that reads it would end the broker."""

    def __len__(self) -> int:
        return len(self._listed) + self.unlisted

    def __bool__(self) -> bool:
        return bool(self._listed)

    def all(self) -> list[DamageReport]:
        return list(self._listed.values())

    def counts(self) -> Counter[DamageKind]:
        return Counter(damage.kind for damage in self._listed.values())

    def of(self, kind: DamageKind, name: str, subscription: str = "") -> DamageReport | None:
        return self._listed.get((kind, name, subscription))

    def note(
        self, kind: DamageKind, name: str, error: Exception | str, subscription: str = "", position: str = ""
    ) -> str:
        """Lists what cannot be read, and logs it if it is new. Returns the reason."""
        key, reason = (kind, name, subscription), reason_of(error)
        self.has_blocks |= isinstance(error, StorageError) or (
            isinstance(error, EntriesDamaged) and isinstance(error.cause, StorageError)
        )
        known = self._listed.get(key)
        if known is not None and known.reason == reason and known.position == position:
            return reason
        if known is None and len(self._listed) >= DAMAGE_LISTED.limit:
            self.unlisted += 1
            return reason
        since_ms = self._now_ms() if known is None else known.since_ms
        damage = self._listed[key] = DamageReport(kind, name, subscription, reason, position, since_ms)
        if known is None:
            self._event(DAMAGED, kind=kind, name=damage.title, reason=reason)
        return reason

    def restore(self, damage: DamageReport) -> None:
        """It was cleared, and is damaged still."""
        self._listed[damage.kind, damage.name, damage.subscription] = damage

    def clear(self, kind: DamageKind, name: str, subscription: str = "") -> None:
        """It was deleted, written anew or skipped, or can be read again."""
        self._listed.pop((kind, name, subscription), None)

    def clear_topic(self, name: str) -> None:
        """A topic was deleted, with its subscriptions."""
        for key in [key for key in self._listed if key[1] == name and key[0] in ("topic", "subscription")]:
            del self._listed[key]


def reason_of(error: Exception | str) -> str:
    """One line; errors of decoders say less than their kind does."""
    if isinstance(error, StorageError | Damaged | str):
        text = str(error)
    else:
        text = f"its record cannot be decoded ({type(error).__name__}: {error})"
    return bounded(text, REASON_SIZE_MAX)


def id_in(value: bytes) -> int | None:
    """The id of a topic or subscription, from a record of which only that can still be read."""
    try:
        found = msgspec.msgpack.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    number = found.get("id") if isinstance(found, dict) else None
    return number if isinstance(number, int) and 0 < number < 1 << 63 else None
