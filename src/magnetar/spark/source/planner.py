"""Planning of reads: where a query starts, how far each micro-batch goes, and its entry ranges.

Plain Python over `Topics`. Owns topic discovery, the limits of a micro-batch, the end of a Trigger.AvailableNow run,
waiting for new messages, and detection of data loss. Reads no messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.errors import NotFound
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.names import TopicName
from magnetar.spark.source.data_loss import DataLossReporter, messages_deleted, topic_deleted, topic_recreated
from magnetar.spark.source.entry_range import EntryRange
from magnetar.spark.source.limits import Backlog, Limits, limited_ends
from magnetar.spark.source.offsets import Instant, Offsets, OffsetSpec, Point, sort_key, whole_entry
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.topics import Topics

log = logging.getLogger(__name__)

DISCOVERY_INTERVAL_S = 2.0
"""How often a stream discovers new topics and partitions."""

_PAUSE_S = 0.2  # before the next discovery, when a topic was deleted


class Planner:
    """`_checked` are partitions without data loss after their offset, `_latest` their newest known offsets.

    `_caught_up` are offsets that were the last ones when they were planned.
    """

    def __init__(self, topics: Topics, options: SourceOptions) -> None:
        self._topics = topics
        self._options = options
        self._limits = Limits(options.entries_max, options.bytes_max, options.messages_max)
        self._known: list[str] = []
        self._absent: list[str] = []  # topics selected by name that do not exist
        self._discover_at_s = float("-inf")
        self._checked: set[str] = set()
        self._new: dict[str, MessageId] = {}
        self._latest: dict[str, MessageId] = {}
        self._caught_up: dict[str, MessageId] = {}
        self._data_loss = DataLossReporter(fail=options.fail_on_data_loss)
        self._final: dict[str, MessageId] | None = None
        self._turn = 0

    # -- discovery

    def partitions(self) -> list[str]:
        """All existing partitions; raises `NotFound` if a topic selected by name does not exist."""
        self._discover()
        if self._absent:
            raise NotFound(f"topic {', '.join(self._absent)} does not exist")
        return self._known

    def partitions_to_describe(self) -> list[str]:
        """As `partitions`, but without failOnDataLoss topics may be missing."""
        if self._options.fail_on_data_loss:
            return self.partitions()
        self._discover()
        return self._known

    def _discover(self) -> None:
        selection = self._options.topics
        self._discover_at_s = self._topics.now_s() + DISCOVERY_INTERVAL_S
        if selection.names:
            found = self._named(selection.names)
        else:
            listed = {TopicName.parse(name) for name in self._topics.listed(selection.namespace)}
            found = [name.full for name in listed if selection.matches(name)]
        self._forget(set(self._known).difference(found))
        self._known = sorted(set(found))

    def _named(self, names: Iterable[str]) -> list[str]:
        found: list[str] = []
        self._absent = []
        for name in names:
            try:
                found.extend(self._topics.partitions(name))
            except NotFound:
                self._absent.append(name)
        return found

    def _forget(self, gone: Iterable[str]) -> None:
        for topic in gone:
            self._checked.discard(topic)
            self._new.pop(topic, None)
            self._latest.pop(topic, None)
            self._topics.forget(topic)

    # -- start and end of a query

    def resolved(self, spec: OffsetSpec | None, default: MessageId) -> Offsets:
        """Offsets of all partitions as specified, or the default."""
        partitions = dict.fromkeys(self.partitions())
        if spec is not None:
            spec.check_topics(partitions)
        points = {topic: default if spec is None else spec.of(topic) for topic in partitions}
        return Offsets({topic: self._resolve(topic, point) for topic, point in points.items()})

    def _resolve(self, topic: str, point: Point) -> MessageId:
        try:
            if isinstance(point, Instant):
                return whole_entry(self._topics.position_at(topic, point.time_ms))
            if point not in (EARLIEST, LATEST):
                return point
            bounds = self._topics.bounds(topic)
        except NotFound:  # a partition without any producer or consumer so far
            return EARLIEST
        return bounds.before_first if point == EARLIEST or bounds.is_empty else whole_entry(bounds.last)

    def batch_ranges(self) -> list[EntryRange]:
        """One range per partition with entries between the start and the end that the options specify."""
        start = self.resolved(self._options.starting, EARLIEST)
        end = self.resolved(self._options.ending, LATEST)
        if self._options.ending is not None:
            end = Offsets({topic: self._stored(topic, offset) for topic, offset in end.items()})
        return self.ranges(start, end)

    def _stored(self, topic: str, offset: MessageId) -> MessageId:
        """The end, or the last entry if that comes first."""
        last = self._ends([topic]).get(topic, EARLIEST)
        if sort_key(offset) <= sort_key(last):
            return offset
        log.warning("%s ends at %s, before the requested end %s", topic, last, offset)
        return last

    # -- stream

    def prepare_available_now(self) -> None:
        """Ends the run at the messages that exist now."""
        self._discover()
        self._final = self._ends(self._known)

    def latest_known(self) -> Offsets:
        """The newest known offsets of all partitions, for Spark's lag metrics."""
        return Offsets(self._latest)

    def next_end(self, start: Offsets, *, limited: bool = True) -> Offsets:
        """The end of the next micro-batch. Waits for new messages; returns `start` if none arrive in time."""
        if self._final is not None:
            self._check_missing(start)
            return self._advanced(start, self._final, limited=limited)
        return self._advanced(start, self._wait_for_ends(start), limited=limited)

    def _wait_for_ends(self, start: Offsets) -> dict[str, MessageId]:
        """Ends of the partitions with messages after `start`, as soon as there is one."""
        now_s = self._topics.now_s()
        deadline_s = now_s + self._options.poll_timeout_s
        while True:
            if now_s >= self._discover_at_s:
                self._discover()
                self._check_missing(start)
            ends = self._ends(self._wait(start, max(0.0, min(deadline_s, self._discover_at_s) - now_s)))
            self._recheck_new_ledgers(start, ends)
            now_s = self._topics.now_s()
            if ends or now_s >= deadline_s:
                return ends

    def _wait(self, start: Offsets, timeout_s: float) -> list[str]:
        starts = {topic: self._continue_at(topic, start) for topic in self._known}
        try:
            return self._topics.wait({topic: after for topic, after in starts.items() if after is not None}, timeout_s)
        except NotFound:
            self._forget([topic for topic in self._known if not self._exists(topic)])
            self._discover_at_s = float("-inf")
            return self._topics.wait({}, min(timeout_s, _PAUSE_S))

    def _exists(self, topic: str) -> bool:
        try:
            self._topics.last(topic)
        except NotFound:
            return False
        return True

    def _recheck_new_ledgers(self, start: Offsets, ends: Mapping[str, MessageId]) -> None:
        """A partition that continues in another ledger may have been deleted and created again."""
        self._checked.difference_update(
            topic for topic, end in ends.items() if topic in start and end.ledger_id != start[topic].ledger_id
        )

    def _ends(self, topics: Iterable[str]) -> dict[str, MessageId]:
        """The last offsets of the topics that exist and have messages."""
        ends = {}
        for topic in topics:
            try:
                last = self._topics.last(topic)
            except NotFound:
                continue
            if last.entry_id >= 0:
                ends[topic] = whole_entry(last)
        self._latest.update(ends)
        return ends

    def _advanced(self, start: Offsets, ends: Mapping[str, MessageId], *, limited: bool) -> Offsets:
        starts = {topic: self._continue_at(topic, start) for topic in ends}
        backlogs = [
            Backlog(topic, after, ends[topic])
            for topic, after in starts.items()
            if after is not None and sort_key(ends[topic]) > sort_key(after)
        ]
        if not backlogs:
            return start
        further = {backlog.topic: backlog.end for backlog in backlogs}
        if limited and self._limits.are_set:
            self._turn += 1
            further = limited_ends(self._topics, backlogs, self._limits, self._turn)
        self._caught_up.update((topic, end) for topic, end in further.items() if end == ends[topic])
        return start.with_offsets(further)

    # -- ranges

    def ranges(self, start: Offsets, end: Offsets) -> list[EntryRange]:
        """One range per partition that advances between the two. A new partition starts at its first message."""
        ranges = []
        for topic, last in end.items():
            if start.get(topic) == last:
                continue
            after = self._continue_at(topic, start)
            if after is not None and sort_key(last) > sort_key(after):
                ranges.append(EntryRange(topic, after, last))
        return ranges

    # -- data loss

    def _continue_at(self, topic: str, start: Offsets) -> MessageId | None:
        """Where reading a partition continues; None if it does not exist. Raises `DataLoss` with failOnDataLoss."""
        offset = start.get(topic)
        if offset is None and topic in self._new:
            return self._new[topic]
        if offset is not None and topic in self._checked:
            return offset
        try:
            bounds = self._topics.bounds(topic)
        except NotFound:
            if offset is not None:
                self._report_lost_topic(topic, offset)
            return None
        if not bounds.is_empty:
            self._latest[topic] = whole_entry(bounds.last)
        if offset is None:
            self._new[topic] = bounds.before_first
            return bounds.before_first
        lost = self._loss(topic, offset, bounds)
        if lost is None:
            self._checked.add(topic)
            return offset
        self._data_loss.report(lost)
        return bounds.before_first

    def _loss(self, topic: str, offset: MessageId, bounds: Bounds) -> str | None:
        """Describes the messages missing between an offset and the stored ones, if any."""
        first = bounds.before_first
        if offset.ledger_id < 0 or first.ledger_id < 0:
            return None
        if offset.ledger_id == first.ledger_id:
            return messages_deleted(topic, offset, first) if offset.entry_id < first.entry_id else None
        if offset.ledger_id > max(first.ledger_id, bounds.last.ledger_id):
            return topic_recreated(topic, offset, first)
        if offset.ledger_id > first.ledger_id:
            return None
        if self._topics.keeps_its_ledger(topic):
            return topic_recreated(topic, offset, first)
        if self._caught_up.get(topic) == offset or self._options.subscription is not None:
            return None  # the ledger was read completely, then deleted
        return messages_deleted(topic, offset, first)

    def _check_missing(self, start: Offsets) -> None:
        """Reports topics that were read, or selected by name, and no longer exist."""
        for topic in sorted(start.keys() - set(self._known)):
            self._report_lost_topic(topic, start[topic])
        for topic in self._absent:
            self._data_loss.report(f"topic {topic} does not exist")

    def _report_lost_topic(self, topic: str, offset: MessageId) -> None:
        if offset.entry_id >= 0:
            self._data_loss.report(topic_deleted(topic, offset))
