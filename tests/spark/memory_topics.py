"""The in-memory twin of `Topics`: ledgers are filled, rolled over, trimmed and deleted by the test; with a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.errors import NotFound
from magnetar.client.message import MessageId
from magnetar.client.schema import Schema
from magnetar.names import TopicName
from magnetar.spark.source.limits import EntrySize
from magnetar.spark.source.offsets import sort_key

PUBLIC = "persistent://public/default/"


class MemoryTopic:
    """Entries of several ledgers by position, each with a size and a publish time."""

    def __init__(self, ledger_id: int) -> None:
        self.entries: dict[tuple[int, int], tuple[int, int]] = {}
        self.ledger_id = ledger_id
        self.next_entry_id = 0
        self.before_first = (ledger_id, -1)


class MemoryTopics:
    """`while_waiting` are actions that happen during a wait, one per wait; time passes only by waiting."""

    def __init__(self, *, is_magnetar: bool = True) -> None:
        self.is_magnetar = is_magnetar
        self.time_s = 100.0
        self.while_waiting: list[Callable[[], None]] = []
        self.questions: list[str] = []
        self._topics: dict[str, MemoryTopic] = {}
        self._partitioned: dict[str, int] = {}
        self._ledger_id = 0

    # -- changes to topics

    def create(self, name: str, partitions: int = 0) -> None:
        full = TopicName.parse(name).full
        if partitions:
            for index in range(self._partitioned.get(full, 0), partitions):
                self.create(f"{full}-partition-{index}")
            self._partitioned[full] = partitions
            return
        self._ledger_id += 1
        self._topics[full] = MemoryTopic(self._ledger_id)

    def publish(self, name: str, entries: int = 1, *, size: int = 100, time_ms: int = 0) -> None:
        topic = self._topic(TopicName.parse(name).full)
        for _ in range(entries):
            topic.entries[(topic.ledger_id, topic.next_entry_id)] = (size, time_ms)
            topic.next_entry_id += 1

    def roll_over(self, name: str) -> None:
        """Continues with another ledger."""
        topic = self._topic(TopicName.parse(name).full)
        self._ledger_id += 1
        topic.ledger_id, topic.next_entry_id = self._ledger_id, 0

    def trim(self, name: str, up_to: tuple[int, int]) -> None:
        topic = self._topic(TopicName.parse(name).full)
        topic.entries = {position: entry for position, entry in topic.entries.items() if position > up_to}
        first = min(topic.entries, default=(topic.ledger_id, topic.next_entry_id))
        topic.before_first = (first[0], first[1] - 1)

    def delete(self, name: str) -> None:
        full = TopicName.parse(name).full
        for index in range(self._partitioned.pop(full, 0)):
            del self._topics[f"{full}-partition-{index}"]
        self._topics.pop(full, None)

    # -- lookups

    def _topic(self, full: str) -> MemoryTopic:
        if full not in self._topics:
            raise NotFound(f"topic {full} does not exist")
        return self._topics[full]

    def partitions(self, topic: str) -> list[str]:
        self.questions.append(f"partitions {topic}")
        count = self._partitioned.get(topic, 0)
        if not count:
            self._topic(topic)
        return [f"{topic}-partition-{index}" for index in range(count)] or [topic]

    def listed(self, namespace: str) -> list[str]:
        self.questions.append(f"listed {namespace}")
        return [name for name in self._topics if TopicName.parse(name).namespace_full == namespace]

    def bounds(self, topic: str) -> Bounds:
        self.questions.append(f"bounds {topic}")
        stored = self._topic(topic)
        return Bounds(MessageId(*stored.before_first, _partition(topic)), self._last(topic))

    def last(self, topic: str) -> MessageId:
        self.questions.append(f"last {topic}")
        return self._last(topic)

    def _last(self, topic: str) -> MessageId:
        stored = self._topic(topic)
        return MessageId(*max(stored.entries, default=(stored.ledger_id, -1)), _partition(topic))

    def wait(self, after: Mapping[str, MessageId], timeout_s: float) -> list[str]:
        self.questions.append(f"wait {len(after)}")
        if not (news := self._news(after)) and self.while_waiting:
            self.while_waiting.pop(0)()
            news = self._news(after)
        if not news:
            self.time_s += timeout_s
        return news

    def _news(self, after: Mapping[str, MessageId]) -> list[str]:
        return [topic for topic, position in after.items() if sort_key(self._last(topic)) > sort_key(position)]

    def position_at(self, topic: str, time_ms: int) -> MessageId:
        stored = self._topic(topic)
        later = [position for position, (_, published_ms) in stored.entries.items() if published_ms >= time_ms]
        ledger_id, entry_id = min(later, default=(stored.ledger_id, stored.next_entry_id))
        return MessageId(ledger_id, entry_id - 1, _partition(topic))

    def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        later = [each for each in self._topic(topic).entries if each > position.position]
        return MessageId(*min(later), _partition(topic)) if later else None

    def entry_sizes(self, topic: str, after: MessageId) -> list[EntrySize]:
        """Entries of 100 bytes per message."""
        entries = self._topic(topic).entries
        sizes = [size for position, (size, _) in sorted(entries.items()) if position > after.position]
        return [EntrySize(max(1, size // 100), size) for size in sizes[:3]]

    def schema(self, topic: str) -> Schema | None:
        return None

    def keeps_its_ledger(self, topic: str) -> bool:
        return self.is_magnetar

    def forget(self, topic: str) -> None:
        self.questions.append(f"forget {topic}")

    def now_s(self) -> float:
        return self.time_s

    def close(self) -> None: ...


def _partition(topic: str) -> int:
    return TopicName.parse(topic).partition
