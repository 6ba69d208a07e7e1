"""The partitions that a process reads: a cursor holds the subscription of each, and says where to go on.

Owns what a round takes of them: a range of a topic, or the messages of a retry topic that are due. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.client.errors import ConsumerBusy
from magnetar.client.message import EARLIEST, LATEST, MessageId, Position
from magnetar.pipelines.processing.schedule import RetrySchedule
from magnetar.pipelines.processing.task import RoundTask
from magnetar.pipelines.run import RunFailed
from magnetar.spark.source.entry_range import EntryRange
from magnetar.spark.source.limits import Backlog, Limits, limited_ends
from magnetar.spark.source.offsets import sort_key, whole_entry
from magnetar.wire.metadata import MetadataError, metadata_of

if TYPE_CHECKING:
    from magnetar.client import Client
    from magnetar.client.blocking.readers import Cursor
    from magnetar.spark.source.topics import ClientTopics

DUE_MAX = 10_000
"""Messages of a retry topic in one round."""

_BUSY_S = 5.0
_BYTES_MAX = 256 << 20  # of one round


class HeldPartition:
    """A subscription on one partition, held by its cursor."""

    def __init__(self, topics: ClientTopics, topic: str, subscription: str, initial: MessageId) -> None:
        self.topic = topic
        self.cursor: Cursor = topics.cursor(topic, subscription, initial, busy_s=_BUSY_S)
        try:
            self.position = self.cursor.position()
        except ConsumerBusy as error:
            raise RunFailed(
                f"subscription {subscription!r} of {topic} is in use: a process holds it alone ({error.text})"
            ) from error
        self.last = self.position
        self._unknown = whole_entry(topics.last(topic))  # up to here, others may have acknowledged messages
        self.checks = True
        """Whether messages after the position may be acknowledged."""

    def look(self, topics: ClientTopics) -> None:
        """What is stored now, and what is acknowledged."""
        self.position = self.cursor.position()
        self.last = whole_entry(topics.last(self.topic))

    def settle(self, end: MessageId) -> None:
        """Acknowledges everything up to the end of a round."""
        self.cursor.acknowledge_up_to(end)
        self.checks = sort_key(self._unknown) > sort_key(end)

    @property
    def has_more(self) -> bool:
        return self.last.entry_id >= 0 and sort_key(self.last) > sort_key(self.position)


class Primary:
    """The partitions of the topic."""

    def __init__(self, topics: ClientTopics, partitions: Iterable[str], subscription: str, *, earliest: bool) -> None:
        self._topics = topics
        initial = EARLIEST if earliest else LATEST
        self._turn = 0
        self.held = {topic: HeldPartition(topics, topic, subscription, initial) for topic in partitions}

    def tasks(self, messages_max: int, *, is_ours: bool) -> list[RoundTask]:
        """One for each partition with messages."""
        for held in self.held.values():
            held.look(self._topics)
        backlogs = [Backlog(held.topic, held.position, held.last) for held in self.held.values() if held.has_more]
        if not backlogs:
            return []
        self._turn += 1
        limits = Limits(None, _BYTES_MAX * len(backlogs), messages_max * len(backlogs))
        ends = limited_ends(self._topics, backlogs, limits, self._turn)
        return [
            RoundTask(
                EntryRange(topic, self._start(topic), end), is_retry=False, checks=is_ours or self.held[topic].checks
            )
            for topic, end in ends.items()
        ]

    def _start(self, topic: str) -> MessageId:
        """In the ledger of the first message."""
        position = self.held[topic].position
        first = self._topics.first_after(topic, position) if position.entry_id < 0 or self._has_ended(topic) else None
        if first is None or first.ledger_id == position.ledger_id:
            return position
        return MessageId(first.ledger_id, first.entry_id - 1, first.partition)

    def _has_ended(self, topic: str) -> bool:
        held = self.held[topic]
        return held.position.ledger_id != held.last.ledger_id

    def settle(self, task: RoundTask) -> None:
        self.held[task.span.topic].settle(whole_entry(task.span.end))

    def positions(self) -> dict[str, MessageId]:
        """After which to wait for more."""
        return {topic: held.last if held.has_more else held.position for topic, held in self.held.items()}

    def close(self) -> None:
        for held in self.held.values():
            held.cursor.close()


class Retries:
    """The partitions of the retry topic. Messages that are not due are left alone, whatever delays the broker knows."""

    def __init__(self, client: Client, topics: ClientTopics, partitions: Iterable[str], subscription: str) -> None:
        self._client = client
        self._topics = topics
        self.held = {topic: HeldPartition(topics, topic, subscription, EARLIEST) for topic in partitions}
        self._schedules = {topic: RetrySchedule() for topic in self.held}
        self._seen = {topic: held.position for topic, held in self.held.items()}

    def tasks(self, now_ms: int) -> list[RoundTask]:
        self._look()
        found = []
        for topic, schedule in self._schedules.items():
            if due := schedule.due(now_ms, DUE_MAX):
                partition = self._seen[topic].partition
                span = EntryRange(
                    topic,
                    MessageId(due[0].ledger_id, due[0].entry_id - 1, partition),
                    MessageId(*due[-1], partition),
                )
                found.append(RoundTask(span, is_retry=True, chosen=due))
        return found

    def _look(self) -> None:
        """Notes when new messages are due."""
        for topic, schedule in self._schedules.items():
            last = whole_entry(self._topics.last(topic))
            if last.entry_id < 0 or sort_key(last) <= sort_key(self._seen[topic]) or not schedule.room:
                continue
            for entries in self._client.entries(topic, self._seen[topic], last):
                for entry in entries:
                    schedule.add(entry.id.position, _due_ms(entry.blob))
                    self._seen[topic] = whole_entry(entry.id)
                if not schedule.room:
                    break
            else:
                self._seen[topic] = last  # markers are not sent

    def settle(self, task: RoundTask) -> None:
        assert task.chosen is not None
        topic = task.span.topic
        partition = task.span.start.partition
        self.held[topic].cursor.acknowledge_each([MessageId(*position, partition) for position in task.chosen])
        self._schedules[topic].settle(task.chosen)

    @property
    def next_ms(self) -> int | None:
        times = [schedule.next_ms for schedule in self._schedules.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def waiting(self) -> int:
        """Messages on the ladder."""
        return sum(map(len, self._schedules.values()))

    def positions(self) -> dict[str, MessageId]:
        return {topic: seen for topic, seen in self._seen.items() if self._schedules[topic].room}

    def close(self) -> None:
        for held in self.held.values():
            held.cursor.close()


def _due_ms(blob: bytes) -> int:
    try:
        return metadata_of(blob).deliver_at_time
    except MetadataError:
        return 0  # unreadable: at once a dead letter


def split(task: RoundTask, messages_in_entry: int) -> list[RoundTask] | None:
    """Two halves of a task; None for a single message. `messages_in_entry` matters for a task of one entry."""
    from dataclasses import replace

    if task.chosen is not None and len(task.chosen) > 1:
        half = len(task.chosen) // 2
        return [replace(task, chosen=part) for part in (task.chosen[:half], task.chosen[half:])]
    start, end = task.span.start, task.span.end
    if task.chosen is not None:
        start, end = MessageId(*_before(task.chosen[0]), start.partition), MessageId(*task.chosen[0], start.partition)
    count = end.entry_id - start.entry_id if start.batch_index < 0 else 1
    if count > 1:
        middle = MessageId(start.ledger_id, start.entry_id + count // 2, start.partition)
        spans = [(start, middle), (middle, end)]
    else:
        first = start.batch_index + 1
        stop = end.batch_index + 1 if end.batch_index >= 0 else messages_in_entry
        if stop - first <= 1:
            return None
        middle = MessageId(end.ledger_id, end.entry_id, end.partition, (first + stop) // 2 - 1, messages_in_entry)
        last = MessageId(end.ledger_id, end.entry_id, end.partition, stop - 1, messages_in_entry)
        spans = [(start, middle), (middle, last)]
    return [replace(task, chosen=None, span=EntryRange(task.span.topic, *span)) for span in spans]


def _before(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id - 1)
