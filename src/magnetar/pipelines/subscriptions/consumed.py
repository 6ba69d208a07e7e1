"""Consumed positions of a replicated subscription, in terms that another cluster understands. No input or output.

An entry is identified everywhere by the cluster it was published in, its *origin*, and its position there: a copy has
both in its metadata. Copies of one origin are stored in the order of the origin. So one position per origin describes
what a subscription has consumed: for its own cluster the acknowledged position, its *mark*; for another, the highest
position among the copies that are stored up to the mark.

Owns these positions, how they are learned from the entries of a topic, and the verdict on each entry of the topic in
the other cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from magnetar.client.consume.entry import Entry
from magnetar.client.errors import InvalidArgument
from magnetar.client.message import MessageId, Position
from magnetar.replication.model import SOURCE_POSITION
from magnetar.wire.metadata import MetadataError, metadata_of
from magnetar.wire.text import readable

CHUNK_FIRST = 256
CHUNK_MAX = 4096
"""Entries that are read at once, backwards from a mark."""


class Trace(NamedTuple):
    """The origin of an entry. `source` is its position there, None if unknown."""

    position: Position
    origin: str
    source: Position | None
    goes_to: tuple[str, ...] = ()  # target clusters; empty: all
    is_marker: bool = False  # written by a broker, and not delivered


def trace(entry: Entry, cluster: str) -> Trace:
    """The origin of an entry that `cluster` stores; empty for an entry that cannot be read."""
    position = entry.id.position
    try:
        metadata = metadata_of(entry.blob)
    except MetadataError:
        return Trace(position, "", None)
    source: Position | None = position
    if metadata.replicated_from:
        source = next(
            (_position(readable(pair.value)) for pair in metadata.properties if pair.key == SOURCE_POSITION), None
        )
    return Trace(
        position,
        readable(metadata.replicated_from) or cluster,
        source,
        tuple(map(readable, metadata.replicate_to)),
        metadata.HasField("marker_type"),
    )


def _position(text: str) -> Position | None:
    try:
        return MessageId.parse(text).position
    except InvalidArgument:
        return None


class Verdict(Enum):
    CONSUMED = auto()
    OPEN = auto()  # not yet
    HELD = auto()  # unknown, or not for this subscription: consumers in the other cluster get it


def classify(traced: Trace, cluster: str, marks: Mapping[str, Position]) -> Verdict:
    """Whether a subscription of `cluster` with these positions per origin has consumed an entry stored elsewhere."""
    if traced.is_marker:
        return Verdict.CONSUMED
    if traced.origin != cluster and traced.goes_to and cluster not in traced.goes_to:
        return Verdict.HELD
    mark = marks.get(traced.origin)
    if mark is None or traced.source is None:
        return Verdict.HELD
    return Verdict.CONSUMED if traced.source <= mark else Verdict.OPEN


class Ledgers(msgspec.Struct, frozen=True):
    """The ledgers of a topic in order, each with its number of entries, and the last position."""

    sizes: tuple[tuple[int, int], ...]
    last: Position

    @property
    def before_first(self) -> Position:
        """The position before the first stored entry. Of a single ledger, the first entries may be deleted."""
        if not self.sizes:
            return self.last
        ledger_id, entries = self.sizes[0]
        return Position(ledger_id, self.last[1] - entries if ledger_id == self.last[0] else -1)

    def count(self, after: Position, up_to: Position) -> int:
        """The number of entries in between."""
        if after[0] == up_to[0]:
            return max(0, up_to[1] - after[1])
        between = sum(entries for ledger_id, entries in self.sizes if after[0] < ledger_id < up_to[0])
        rest = max(0, dict(self.sizes).get(after[0], 0) - 1 - after[1])
        return max(0, rest + between + up_to[1] + 1)

    def back(self, position: Position, entries: int) -> Position:
        """The position that many entries earlier, or the one before the first."""
        ledger_id, entry_id = position
        before = [one for one in self.sizes if one[0] < ledger_id]
        while entries > entry_id + 1:
            entries -= entry_id + 1
            if not before:
                return self.before_first
            ledger_id, size = before.pop()
            entry_id = size - 1
        return max(Position(ledger_id, entry_id - entries), self.before_first)


class Consumed(msgspec.Struct):
    """The consumed position by origin, with the subscription's own cluster; none is too high.

    All entries after `low` up to `high` were read, with some of each origin in `found`: their positions are exact for a
    subscription whose mark is `high`.
    """

    marks: dict[str, Position] = {}
    found: set[str] = set()
    low: Position | None = None
    high: Position | None = None

    def move_to(self, cluster: str, mark: Position) -> None:
        """Sets the mark of the subscription. After a seek back, nothing else is known."""
        if self.high is None or mark < self.high:
            self.marks, self.found = {}, set()
            self.low = self.high = mark
        self.marks[cluster] = mark

    def know(self, origin: str, position: Position) -> None:
        self.marks[origin] = max(position, self.marks.get(origin, position))

    def is_settled(self, origin: str, mark: Position, ledgers: Ledgers) -> bool:
        """Whether the position of an origin cannot become more exact."""
        assert self.low is not None
        return self.high == mark and (origin in self.found or self.low <= ledgers.before_first)

    def next_range(self, mark: Position, ledgers: Ledgers, entries_max: int) -> tuple[Position, Position] | None:
        """The next range to read, without its first position and with its last: new entries, then backwards.

        None if there is none, or it has more than `entries_max` entries.
        """
        assert self.low is not None
        assert self.high is not None
        if entries_max <= 0:
            return None
        if self.high < mark:
            if ledgers.count(self.high, mark) <= entries_max:
                return (self.high, mark)
            self.found = set()  # too many new entries: those nearest to the mark count
            self.low = self.high = mark
        if self.low <= ledgers.before_first:
            return None
        seen = ledgers.count(self.low, self.high)
        chunk = min(max(CHUNK_FIRST, seen * 2), CHUNK_MAX, entries_max)
        return (ledgers.back(self.low, chunk), self.low)

    def learn(self, span: tuple[Position, Position], cluster: str, traces: Iterable[Trace]) -> None:
        """Takes all entries of the subscription's own cluster in a range from `next_range`."""
        for traced in traces:
            if traced.origin != cluster and traced.source is not None:
                self.know(traced.origin, traced.source)
                self.found.add(traced.origin)
        low, high = span
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


class Walk:
    """A walk through the entries of the other cluster's topic in order, to find what to acknowledge there.

    `up_to` with all before it; `each`, which are consumed although something before them is held, one by one. Ends with
    the first entry that is open. `reached` is the last entry that was decided.
    """

    def __init__(self, *, holds: bool) -> None:
        """`holds`: an entry before the start is held."""
        self.holds = holds
        self.up_to: Position | None = None
        self.each: list[Position] = []
        self.reached: Position | None = None
        self.is_over = False

    def step(self, position: Position, verdict: Verdict) -> None:
        if verdict is Verdict.OPEN:
            self.is_over = True
            return
        if verdict is Verdict.HELD:
            self.holds = True
        elif self.holds:
            self.each.append(position)
        else:
            self.up_to = position
        self.reached = position
