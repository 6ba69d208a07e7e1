"""Rounds of a redrive: a range of each dead letter topic at a time, in one Spark job.

Owns the size of a round, the rate, and what follows a job that failed. A round that failed is planned again from what
still waits: what it sent before is acknowledged, or known to the target.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from magnetar.client import Client
from magnetar.client.connection.retry import Backoff
from magnetar.client.errors import ClientError
from magnetar.client.message import MessageId
from magnetar.deadletter.redriven import OriginKey
from magnetar.pipelines.jobs import failure_text
from magnetar.pipelines.moving.lock import TopicLocks
from magnetar.pipelines.redrive.forward import Forwarded
from magnetar.pipelines.redrive.frames import LetterFrames
from magnetar.pipelines.redrive.handled import acknowledge_handled
from magnetar.pipelines.redrive.stage import (
    HANDLED,
    KEPT,
    QUARANTINED,
    REPORT,
    SENT,
    RedriveStage,
    redrive_rows,
)
from magnetar.pipelines.run import Progress, RunContext, RunFailed
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.plan import LetterRange
from magnetar.spark.runtime.map_in_arrow import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import Row

log = logging.getLogger(__name__)

_RANGES_MAX = 64
"""Partitions of dead letter topics in one round; the others follow."""

_ENTRIES_FIRST, _ENTRIES_MIN, _ENTRIES_MAX = 10_000, 100, 200_000
_ROUND_S = 4.0
_GROWTH_MAX = 4.0
_ENTRIES_SLOW = 2_000  # after a letter that is not plain, before plain ones are tried again
_FAILURES_MAX = 8
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.5, 15.0
_REASONS_MAX = 20  # in a report


@dataclass
class RedriveOutcome:
    """Messages so far: all that match, those that were sent, by target, and those that stay, by reason."""

    total: int = 0
    sent: int = 0
    quarantined: int = 0
    targets: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        return self.sent + self.kept.total()

    def progress(self, note: str = "") -> Progress:
        kept = {f"kept: {reason}": count for reason, count in self.kept.most_common(_REASONS_MAX)}
        counts = {"sent": self.sent, "quarantined": self.quarantined} | kept
        return Progress(self.done, self.total, counts, note)

    def forwarded(self, found: Forwarded) -> None:
        self.sent += found.sent.total()
        self.targets += found.sent
        self.kept += found.kept

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.outcome == SENT:
                self.sent += row.messages
                self.targets[row.name] += row.messages
            elif row.outcome == QUARANTINED:
                self.quarantined += row.messages
            elif row.outcome == KEPT:
                self.kept[row.name] += row.messages


class Forwarding(Protocol):
    """The quick way for plain letters; see `forward`."""

    def run(self, letters: LetterRange) -> Forwarded: ...

    def resolve(self, origins: set[OriginKey]) -> None:
        """Finds the targets of more origins."""
        ...

    def prepare(self, ranges: Sequence[LetterRange], admin: CursorAdmin) -> None:
        """Before letters that are not plain are sent."""
        ...


class Rounds:
    def __init__(
        self,
        context: RunContext,
        client: Client,
        frames: LetterFrames,
        stage: RedriveStage,
        locks: TopicLocks,
        outcome: RedriveOutcome,
        rate: float | None,
        forwarding: Forwarding | None = None,
    ) -> None:
        self._context = context
        self._client = client
        self._frames = frames
        self._stage = stage
        self._locks = locks
        self._outcome = outcome
        self._rate = rate
        self._forwarding = forwarding
        self._slow: set[str] = set()  # partitions whose next letter is not plain
        self._entries = _ENTRIES_FIRST if rate is None else max(1, min(_ENTRIES_FIRST, round(rate)))
        self._failures = 0
        self.has_failed = False
        """Whether a round failed: then messages may have been sent that no outcome counts."""
        self._backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LAST_S)
        self._started_s = time.monotonic()

    def run(self, admin: CursorAdmin) -> None:
        """Raises `RunFailed` or `TopicLocked`."""
        left = list(self._frames.plan.ranges)
        while left and not self._context.is_stopping:
            self._locks.check()
            self._context.report(self._outcome.progress("sending"))
            now, later = left[:_RANGES_MAX], left[_RANGES_MAX:]
            try:
                rests = self._round(now, admin)
            except (PySparkException, Py4JError, ClientError) as error:
                self._on_failure(error)
                left = [*self._refreshed(now, admin), *later]
                continue
            self._failures = 0
            self._backoff.reset()
            left = [*later, *rests]
            self._keep_rate()

    def _round(self, ranges: list[LetterRange], admin: CursorAdmin) -> list[LetterRange]:
        """What is left of the ranges."""
        if self._forwarding is None:
            return self._by_columns(ranges, admin)
        plain = [one for one in ranges if one.span.topic not in self._slow]
        if plain:
            return [*self._forward(plain, self._forwarding), *(one for one in ranges if one not in plain)]
        parts = [_first(one, _ENTRIES_SLOW) for one in ranges]
        self._forwarding.prepare(parts, admin)
        left = {rest.span.topic: rest.span.start for rest in self._by_columns(parts, admin)}
        self._slow.clear()
        starts = [left.get(part.span.topic, part.span.end) for part in parts]
        return [
            replace(one, span=replace(one.span, start=start))
            for one, start in zip(ranges, starts, strict=True)
            if start.position < one.span.end.position
        ]

    def _forward(self, ranges: list[LetterRange], forwarding: Forwarding) -> list[LetterRange]:
        each = max(_ENTRIES_MIN if self._rate is None else 1, self._entries // len(ranges))
        started_s = time.monotonic()
        rests: list[LetterRange] = []
        for one in ranges:
            found = forwarding.run(_first(one, each))
            self._outcome.forwarded(found)
            forwarding.resolve(found.unknown)
            if not found.is_plain:
                self._slow.add(one.span.topic)
            if found.up_to < one.span.end.entry_id:
                start = MessageId(one.span.end.ledger_id, found.up_to, one.span.start.partition)
                rests.append(replace(one, span=replace(one.span, start=start)))
        self._adapt(time.monotonic() - started_s)
        return rests

    def _by_columns(self, ranges: list[LetterRange], admin: CursorAdmin) -> list[LetterRange]:
        each = max(_ENTRIES_MIN if self._rate is None else 1, self._entries // len(ranges))
        parts = [_first(one, each) for one in ranges]
        started_s = time.monotonic()
        stage = map_in_arrow(self._frames.rows(parts), partial(redrive_rows, self._stage), REPORT)
        rows = stage.collect()
        handled = {row.name: row.positions for row in rows if row.outcome == HANDLED}
        if handled:
            acknowledge_handled(self._context.endpoint, admin, handled)
        self._outcome.add(rows)
        self._adapt(time.monotonic() - started_s)
        return [rest for one, part in zip(ranges, parts, strict=True) if (rest := self._rest(one, part)) is not None]

    def _rest(self, one: LetterRange, part: LetterRange) -> LetterRange | None:
        start, end = part.span.end, one.span.end
        if start.position >= end.position:
            return None
        if start.ledger_id != end.ledger_id:  # the part may have ended after the last entry of its ledger
            following = self._client.first_after(one.span.topic, start)
            if following is None or following.position > end.position:
                return None
            start = MessageId(following.ledger_id, following.entry_id - 1, start.partition)
        return replace(one, span=replace(one.span, start=start))

    def _adapt(self, seconds: float) -> None:
        if self._rate is not None:
            return
        factor = min(_GROWTH_MAX, max(0.5, _ROUND_S / max(seconds, 0.001)))
        self._entries = round(min(_ENTRIES_MAX, max(_ENTRIES_MIN, self._entries * factor)))

    def _keep_rate(self) -> None:
        if self._rate is None:
            return
        due_s = self._started_s + self._outcome.sent / self._rate
        self._context.wait(max(0.0, due_s - time.monotonic()))

    def _on_failure(self, error: Exception) -> None:
        """Raises `RunFailed` after too many failures in a row."""
        if self._context.is_stopping:
            return
        self._failures += 1
        self.has_failed = True
        text = error.text if isinstance(error, ClientError) else failure_text(error)
        if self._failures >= _FAILURES_MAX:
            raise RunFailed(f"{self._failures} rounds in a row failed: {text}") from error
        log.warning("a round of the redrive failed, and is repeated: %s", text)
        self._entries = max(_ENTRIES_MIN, self._entries // 2)
        self._context.report(self._outcome.progress(f"after an error: {text}"[:500]))
        self._context.wait(self._backoff.next_s())

    def _refreshed(self, ranges: Sequence[LetterRange], admin: CursorAdmin) -> list[LetterRange]:
        """The same ranges with what is unacknowledged now; as they were while the broker is away."""
        try:
            return [replace(one, unacknowledged=admin.unacknowledged(one.span.topic)) for one in ranges]
        except ClientError:
            return list(ranges)


def _first(one: LetterRange, entries: int) -> LetterRange:
    span = one.span
    end = MessageId(span.start.ledger_id, span.start.entry_id + entries, span.start.partition)
    return one if end.position >= span.end.position else replace(one, span=replace(span, end=end))
