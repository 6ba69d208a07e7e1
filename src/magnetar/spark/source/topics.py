"""Topics as the planner sees them: the interface, and its implementation over a client.

Owns the tails of a stream, and retries while a broker is unavailable. Plans nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from magnetar.client import Client
from magnetar.client.blocking.readers import Cursor, TopicTail
from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.errors import NotFound, NotSupported
from magnetar.client.message import MessageId
from magnetar.client.schema import Schema
from magnetar.names import TopicName
from magnetar.spark.source.limits import EntrySize
from magnetar.wire.metadata import messages_in

_T = TypeVar("_T")

SAMPLE_ENTRIES = 16


class Topics(Protocol):
    """Topic lookups; they raise `NotFound` for a topic that does not exist."""

    def partitions(self, topic: str) -> list[str]:
        """Full names of its partitions, or its own if it has none."""

    def listed(self, namespace: str) -> list[str]:
        """Full names of the topics in a namespace, with partitions instead of partitioned topics."""

    def bounds(self, topic: str) -> Bounds: ...

    def last(self, topic: str) -> MessageId: ...

    def wait(self, after: Mapping[str, MessageId], timeout_s: float) -> list[str]:
        """The topics with messages after these positions, as soon as there is one; [] after `timeout_s`."""

    def position_at(self, topic: str, time_ms: int) -> MessageId: ...

    def first_after(self, topic: str, position: MessageId) -> MessageId | None: ...

    def entry_sizes(self, topic: str, after: MessageId) -> list[EntrySize]:
        """Sizes of the first few entries after a position."""

    def schema(self, topic: str) -> Schema | None:
        """The latest schema."""

    def keeps_its_ledger(self, topic: str) -> bool:
        """Whether a topic has one ledger for life, so that another ledger means that it was recreated."""

    def forget(self, topic: str) -> None:
        """Closes the tail of a topic."""

    def now_s(self) -> float:
        """Monotonic clock."""

    def close(self) -> None: ...


class ClientTopics:
    """`Topics` over a client, which it owns and closes."""

    def __init__(self, client: Client, *, first_give_up_s: float, give_up_s: float) -> None:
        self._client = client
        self._tails: dict[str, TopicTail] = {}
        self._give_up_s = first_give_up_s
        self._later_give_up_s = give_up_s

    def partitions(self, topic: str) -> list[str]:
        return self._with_retry(lambda: self._partitions(topic))

    def _partitions(self, topic: str) -> list[str]:
        try:
            return self._client.get_partitions_for_topic(topic, create_if_auto_creation_enabled=False)
        except NotSupported:  # an older broker would create the topic: list the namespace instead
            name = TopicName.parse(topic)
            listed = {TopicName.parse(each) for each in self._client.topics(name.namespace_full)}
            found = sorted((each for each in listed if name in (each, each.base)), key=lambda each: each.partition)
            if not found:
                raise NotFound(f"topic {topic} does not exist") from None
            return [each.full for each in found]

    def listed(self, namespace: str) -> list[str]:
        return self._with_retry(lambda: self._client.topics(namespace))

    def bounds(self, topic: str) -> Bounds:
        return self._with_retry(lambda: self._tail(topic).bounds())

    def last(self, topic: str) -> MessageId:
        return self._with_retry(lambda: self._tail(topic).last())

    def wait(self, after: Mapping[str, MessageId], timeout_s: float) -> list[str]:
        if not after:
            time.sleep(timeout_s)
            return []
        pairs = [(self._tail(topic), position) for topic, position in after.items()]
        ready = self._with_retry(lambda: self._client.wait_any(pairs, timeout_s))
        return [tail.topic for tail in ready]

    def position_at(self, topic: str, time_ms: int) -> MessageId:
        return self._with_retry(lambda: self._client.position_at(topic, time_ms))

    def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        return self._with_retry(lambda: self._client.first_after(topic, position))

    def entry_sizes(self, topic: str, after: MessageId) -> list[EntrySize]:
        return self._with_retry(lambda: self._entry_sizes(topic, after))

    def _entry_sizes(self, topic: str, after: MessageId) -> list[EntrySize]:
        end = MessageId(after.ledger_id, after.entry_id + SAMPLE_ENTRIES)
        found = [entry.blob for entries in self._client.entries(topic, after, end) for entry in entries]
        return [EntrySize(messages_in(blob), len(blob)) for blob in found]

    def schema(self, topic: str) -> Schema | None:
        return self._with_retry(lambda: self._client.schema(topic))

    def keeps_its_ledger(self, topic: str) -> bool:
        return self._with_retry(lambda: self._client.server_version(topic)).startswith("Magnetar")

    def cursor(self, topic: str, subscription: str, initial_position: MessageId, *, busy_s: float) -> Cursor:
        return self._client.cursor(topic, subscription, initial_position=initial_position, busy_s=busy_s)

    def forget(self, topic: str) -> None:
        tail = self._tails.pop(topic, None)
        if tail is not None:
            tail.close()

    def now_s(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._client.close()

    def _tail(self, topic: str) -> TopicTail:
        tail = self._tails.get(topic)
        if tail is None:
            tail = self._tails[topic] = self._client.tail(topic)
        return tail

    def _with_retry(self, request: Callable[[], _T]) -> _T:
        """The first request gives up sooner: the address may be wrong."""
        result = with_retry_blocking(request, self._give_up_s)
        self._give_up_s = self._later_give_up_s
        return result
