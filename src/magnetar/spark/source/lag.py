"""Lag of a stream: what the broker has that the stream has not yet read.

Compares the offsets of the last micro-batch with the topics, because Spark takes no metrics from a Python source.
Messages and bytes are estimated from the first unread entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from magnetar.client import Client
from magnetar.client.consume.entry import Entry
from magnetar.client.message import MessageId
from magnetar.clock import SystemClock
from magnetar.spark.client_options import CLIENT_OPTIONS, SparkClientOptions
from magnetar.spark.clients import blocking_client
from magnetar.spark.option import GivenOptions, Use
from magnetar.spark.source.offsets import Offsets, whole_entry
from magnetar.spark.source.topics import SAMPLE_ENTRIES
from magnetar.wire.metadata import messages_in, metadata_of


class PartitionLag(NamedTuple):
    """Unread messages and bytes, None if they are in several ledgers, and the age of the oldest in seconds."""

    messages: int | None
    bytes: int | None
    seconds: float


class RunningQuery(Protocol):
    """The part of a `StreamingQuery` that lag needs."""

    @property
    def lastProgress(self) -> Any: ...


def lag(query: RunningQuery, options: Mapping[str, str]) -> dict[str, PartitionLag]:
    """Lag by partition of the topics that a query reads; empty before its first micro-batch.

    `options` has the client options of the source, such as `service.url`; others are ignored.
    """
    names = {option.name.lower() for option in CLIENT_OPTIONS}
    given = {name: text for name, text in options.items() if name.lower() in names}
    with closing(blocking_client(SparkClientOptions.of(GivenOptions(given, Use.READ, CLIENT_OPTIONS)))) as client:
        return {topic: _lag(client, topic, offset) for topic, offset in _offsets(query.lastProgress)}


def _offsets(progress: Any) -> Iterator[tuple[str, MessageId]]:
    for source in (progress or {}).get("sources", ()):
        offsets = source.get("endOffset")
        if isinstance(offsets, Mapping) and all(isinstance(offset, str) for offset in offsets.values()):
            yield from Offsets.of_json("the last progress", offsets).items()


def _lag(client: Client, topic: str, offset: MessageId) -> PartitionLag:
    with client.tail(topic) as tail:
        last = whole_entry(tail.last())
    first = _first_unread(client, topic, offset)
    if not first:
        return PartitionLag(0, 0, 0.0)
    before = first[0].id.entry_id - 1
    seconds = max(0, SystemClock().now_ms() - metadata_of(first[0].blob).publish_time) / 1000
    if last.ledger_id != first[0].id.ledger_id:
        return PartitionLag(None, None, seconds)
    scale = max(1.0, (last.entry_id - before) / len(first))
    messages, size = sum(messages_in(entry.blob) for entry in first), sum(len(entry.blob) for entry in first)
    return PartitionLag(round(messages * scale), round(size * scale), seconds)


def _first_unread(client: Client, topic: str, offset: MessageId) -> list[Entry]:
    """The first entries after an offset, at most `SAMPLE_ENTRIES`."""
    first = client.first_after(topic, offset)
    if first is None:
        return []
    after = MessageId(first.ledger_id, first.entry_id - 1)
    end = MessageId(first.ledger_id, first.entry_id - 1 + SAMPLE_ENTRIES)
    return [entry for entries in client.entries(topic, after, end) for entry in entries]
