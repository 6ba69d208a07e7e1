"""Whole entries of a range: exactly those, through changes of the topic and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client import EARLIEST, LATEST, Client, MessageId
from magnetar.client.connection.protocol import Delivery
from magnetar.client.consume.entry import Entry, EntryDecoder
from magnetar.client.consume.entry_reader import AsyncEntryReader
from magnetar.client.errors import Closed, InvalidArgument, NotFound
from magnetar.client.inline import InlineClient
from magnetar.names import TopicName
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob
from tests.client.connection.test_reconnect import drop_connections
from tests.crash.killable import KillableBroker

BLOB = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"value")


@pytest.fixture
def inline(running: TestBroker) -> Iterator[InlineClient]:
    with InlineClient(running.service_url, operation_timeout_s=10) as client:
        yield client


def publish(client: Client, topic: str, count: int, *, size: int = 10, batch: int = 1) -> list[MessageId]:
    """Publishes `count` entries of `batch` messages each; returns the id of the last message of each."""
    with client.producer(topic, batching=batch > 1, batch_messages_max=batch, batch_delay_s=60) as producer:
        futures = [producer.send_async(b"%d" % n + bytes(size)) for n in range(count * batch)]
        producer.flush()
        return [future.result() for future in futures[batch - 1 :: batch]]


def read(inline: InlineClient, topic: str, start: MessageId, end: MessageId, **options: Any) -> list[Entry]:
    reader = inline.run(inline.client.entries(topic, start, end, **options))
    entries: list[Entry] = []
    while more := inline.run(within_seconds(reader)):
        entries += more
    assert inline.run(reader.next()) == []
    inline.run(reader.close())
    return entries


async def within_seconds(reader: AsyncEntryReader) -> list[Entry]:
    async with asyncio.timeout(20):
        return await reader.next()


def ids(entries: list[Entry]) -> list[int]:
    return [entry.id.entry_id for entry in entries]


def test_a_range_is_returned_completely(client: Client, inline: InlineClient, topic: str) -> None:
    stored = publish(client, topic, 20, batch=3)
    entries = read(inline, topic, EARLIEST, LATEST)
    assert [entry.id.position for entry in entries] == [message_id.position for message_id in stored]
    decoder = EntryDecoder()
    values = [message.value for entry in entries for message in decoder.decode(entry)[0]]
    assert values == [b"%d" % n + bytes(10) for n in range(60)]
    assert entries[0].topic == f"persistent://public/default/{topic}"
    assert entries[0].id.partition == -1


class TestBoundaries:
    def test_after_the_start_up_to_the_end(self, client: Client, inline: InlineClient, topic: str) -> None:
        stored = publish(client, topic, 10)
        assert ids(read(inline, topic, stored[2], stored[6])) == [3, 4, 5, 6]
        assert ids(read(inline, topic, stored[2], stored[6], start_inclusive=True)) == [2, 3, 4, 5, 6]
        assert ids(read(inline, topic, MessageId(stored[0].ledger_id, -1), stored[0])) == [0]

    def test_an_entry_that_may_contain_wanted_messages_is_included(
        self, client: Client, inline: InlineClient, topic: str
    ) -> None:
        stored = publish(client, topic, 4, batch=3)
        ledger_id = stored[0].ledger_id
        assert ids(read(inline, topic, MessageId(ledger_id, 1, -1, 0, 3), MessageId(ledger_id, 2, -1, 0))) == [1, 2]
        assert ids(read(inline, topic, MessageId(ledger_id, 1, -1, 2, 3), stored[2])) == [2]
        assert ids(read(inline, topic, MessageId(ledger_id, 1, -1, 2), stored[2])) == [1, 2]  # not known to be the last

    def test_nothing_between_start_and_end(self, client: Client, inline: InlineClient, topic: str) -> None:
        stored = publish(client, topic, 5)
        assert read(inline, topic, stored[3], stored[3]) == []
        assert read(inline, topic, stored[3], stored[1]) == []
        assert read(inline, topic, stored[4], LATEST) == []
        assert read(inline, topic, LATEST, LATEST) == []

    def test_an_end_beyond_the_last_entry_is_not_waited_for(
        self, client: Client, inline: InlineClient, topic: str
    ) -> None:
        stored = publish(client, topic, 5)
        ledger_id = stored[0].ledger_id
        for end in (MessageId(ledger_id, 1000), MessageId(ledger_id + 1, 0), LATEST):
            assert ids(read(inline, topic, EARLIEST, end)) == [0, 1, 2, 3, 4]
        assert read(inline, topic, MessageId(ledger_id, 7), MessageId(ledger_id, 9)) == []

    def test_positions_in_a_deleted_ledger(self, client: Client, inline: InlineClient, topic: str) -> None:
        ledger_id = publish(client, topic, 5)[0].ledger_id
        assert read(inline, topic, EARLIEST, MessageId(ledger_id - 1, 3)) == []
        assert ids(read(inline, topic, MessageId(ledger_id - 1, 3), LATEST)) == [0, 1, 2, 3, 4]

    def test_an_empty_topic(self, client: Client, inline: InlineClient, topic: str) -> None:
        client.producer(topic).close()
        assert read(inline, topic, EARLIEST, LATEST) == []
        assert read(inline, topic, EARLIEST, MessageId(10**9, 0)) == []


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_range_with_any_window(data: st.DataObject, filled: tuple[InlineClient, str, list[MessageId]]) -> None:
    inline, topic, stored = filled
    start = data.draw(st.integers(-1, len(stored)))
    end = data.draw(st.integers(-1, len(stored) + 2))
    ledger_id = stored[0].ledger_id
    entries = read(
        inline,
        topic,
        MessageId(ledger_id, start),
        MessageId(ledger_id, end),
        bytes_max=data.draw(st.sampled_from([1, 100, 5_000, 1 << 20])),
    )
    assert ids(entries) == list(range(start + 1, min(end + 1, len(stored))))


@pytest.fixture(scope="module")
def filled(running: TestBroker) -> Iterator[tuple[InlineClient, str, list[MessageId]]]:
    with Client(running.service_url) as client, InlineClient(running.service_url) as inline:
        stored = publish(client, "filled", 150, size=100, batch=2) + publish(client, "filled", 150, size=1000)
        yield inline, "filled", stored


class Ledgers:
    """A broker with several ledgers that never sends some entries: a factory and its consumer in one."""

    topic = TopicName.parse("t")
    timeout_s = reconnect_timeout_s = 1.0

    def __init__(self, stored: list[tuple[int, int]], kept_back: set[tuple[int, int]]) -> None:
        self._stored = stored
        self._kept_back = kept_back
        self._unsent: list[tuple[int, int]] = []
        self._end: AsyncEntryReader | None = None
        self._permits = 0
        self._mark = (-1, -1)

    async def open(self, end: AsyncEntryReader, after: tuple[int, int], *, was_there: bool) -> Ledgers:
        self._end = end
        self._unsent = [position for position in self._stored if position > after]
        self._mark = after
        return self

    def flow(self, permits: int) -> None:
        asyncio.get_running_loop().call_soon(self._send, permits)

    def _send(self, permits: int) -> None:
        self._permits += permits
        while self._permits > 0 and self._unsent and self._end is not None:
            position = self._unsent.pop(0)
            if position not in self._kept_back:
                self._permits -= 1
                self._end.on_delivery(Delivery(1, *position, 0, (), [BLOB]))

    def acknowledge_up_to(self, position: tuple[int, int]) -> None:
        self._mark = max(self._mark, position)

    async def last(self) -> tuple[MessageId, MessageId]:
        """A broker acknowledges the entries that it does not send."""
        for position in self._stored[: len(self._stored) - len(self._unsent)]:
            if position > self._mark and position not in self._kept_back:
                break
            self._mark = max(self._mark, position)
        last = self._stored[-1] if self._stored else (-1, -1)
        return MessageId(*last), MessageId(*self._mark)

    @property
    def is_open(self) -> bool:
        return self._end is not None

    def close(self) -> None:
        self._end = None


positions = st.tuples(st.integers(1, 4), st.integers(0, 4))


@settings(deadline=None)
@given(
    st.lists(positions, unique=True).map(sorted),
    st.one_of(st.just((-1, -1)), positions),
    positions,
    st.integers(1, 1000),
)
def test_any_range_over_several_ledgers(
    stored: list[tuple[int, int]], start: tuple[int, int], end: tuple[int, int], bytes_max: int
) -> None:
    """Ledgers end anywhere, and positions need not be entries."""
    assert asyncio.run(read_ledgers(stored, set(), start, end, bytes_max)) == [p for p in stored if start < p <= end]


def test_entries_that_the_broker_never_sends_are_not_waited_for() -> None:
    """Apache Pulsar's markers, or messages of aborted transactions."""
    stored = [(1, number) for number in range(10)]
    assert asyncio.run(read_ledgers(stored, {(1, 9), (1, 8)}, (1, 2), (1, 9), 100)) == stored[3:8]
    assert asyncio.run(read_ledgers(stored, set(stored), (-1, -1), (1, 9), 100)) == []


async def read_ledgers(
    stored: list[tuple[int, int]],
    kept_back: set[tuple[int, int]],
    start: tuple[int, int],
    end: tuple[int, int],
    bytes_max: int,
) -> list[tuple[int, int]]:
    ledgers: Any = Ledgers(stored, kept_back)
    reader = AsyncEntryReader(ledgers, MessageId(*start), MessageId(*end), start_inclusive=False, bytes_max=bytes_max)
    await reader.open()
    got: list[tuple[int, int]] = []
    while entries := await within_seconds(reader):
        got += [entry.id.position for entry in entries]
    return got


def test_one_call_returns_the_available_entries(client: Client, inline: InlineClient, topic: str) -> None:
    publish(client, topic, 2000, size=100)
    reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST))
    calls = 0
    while inline.run(reader.next()):
        calls += 1
    assert calls <= 40


def test_outstanding_entries_are_bounded(running: TestBroker, client: Client, inline: InlineClient, topic: str) -> None:
    publish(client, topic, 300, size=10_000)
    reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST, bytes_max=200_000))
    held_max = received = 0
    while entries := inline.run(reader.next()):
        received += len(entries)
        sent = running.run(lambda: [s.places.read_id for s in _topic(running, topic).subscriptions.values()])
        held_max = max([held_max, *(count - received for count in sent)])
    assert received == 300
    assert held_max <= 2 * 200_000 // 10_000 + 32


def _topic(running: TestBroker, topic: str) -> Any:
    return running.server.broker.topics[f"persistent://public/default/{topic}"]


class TestErrors:
    def test_a_missing_topic_is_not_created(self, client: Client, inline: InlineClient, topic: str) -> None:
        with pytest.raises(NotFound, match=topic):
            inline.run(inline.client.entries(topic, EARLIEST, LATEST))
        with pytest.raises(NotFound):
            client.get_partitions_for_topic(topic, create_if_auto_creation_enabled=False)
        with pytest.raises(NotFound):
            inline.run(inline.client.entries(f"{topic}-partition-0", EARLIEST, LATEST))

    def test_an_unused_partition_is_empty(self, running: TestBroker, inline: InlineClient, topic: str) -> None:
        httpx.put(f"{running.http_url}/admin/v2/persistent/public/default/{topic}/partitions", json=2)
        assert read(inline, f"{topic}-partition-1", EARLIEST, LATEST) == []
        with pytest.raises(NotFound):
            inline.run(inline.client.entries(f"{topic}-partition-2", EARLIEST, LATEST))

    def test_a_non_persistent_topic(self, inline: InlineClient) -> None:
        with pytest.raises(InvalidArgument, match="not persistent"):
            inline.run(inline.client.entries("non-persistent://public/default/n", EARLIEST, LATEST))

    @pytest.mark.parametrize("value", [0, -1, float("nan")])
    def test_an_invalid_window(self, inline: InlineClient, value: float) -> None:
        with pytest.raises(InvalidArgument, match="bytes_max"):
            inline.run(inline.client.entries("t", EARLIEST, LATEST, bytes_max=value))  # type: ignore[arg-type]

    def test_a_terminated_topic_is_read_to_its_end(
        self, running: TestBroker, client: Client, inline: InlineClient, topic: str
    ) -> None:
        ledger_id = publish(client, topic, 5)[0].ledger_id
        httpx.post(f"{running.http_url}/admin/v2/persistent/public/default/{topic}/terminate")
        assert ids(read(inline, topic, EARLIEST, LATEST)) == [0, 1, 2, 3, 4]
        assert ids(read(inline, topic, EARLIEST, MessageId(ledger_id, 99))) == [0, 1, 2, 3, 4]

    def test_a_topic_deleted_meanwhile_is_an_error(
        self, running: TestBroker, client: Client, inline: InlineClient, topic: str
    ) -> None:
        publish(client, topic, 300, size=10_000)
        reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST, bytes_max=50_000))
        assert inline.run(reader.next())
        answer = httpx.delete(
            f"{running.http_url}/admin/v2/persistent/public/default/{topic}", params={"force": "true"}
        )
        assert answer.status_code == 204
        with pytest.raises(NotFound, match=topic):
            while inline.run(within_seconds(reader)):
                pass

    def test_a_range_deleted_meanwhile_ends(
        self, running: TestBroker, client: Client, inline: InlineClient, topic: str
    ) -> None:
        publish(client, topic, 300, size=10_000)
        reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST, bytes_max=50_000))
        assert inline.run(reader.next())
        running.run(lambda: _topic(running, topic).truncate())
        count = 0
        while entries := inline.run(within_seconds(reader)):
            count += len(entries)
        assert count < 250

    def test_a_trimmed_end_is_passed(
        self, running: TestBroker, client: Client, inline: InlineClient, topic: str
    ) -> None:
        stored = publish(client, topic, 10)
        running.run(lambda: _topic(running, topic).truncate())
        assert read(inline, topic, EARLIEST, stored[5]) == []
        later = publish(client, topic, 3)
        assert read(inline, topic, EARLIEST, stored[5]) == []
        assert [entry.id.position for entry in read(inline, topic, stored[5], later[1])] == [
            message_id.position for message_id in later[:2]
        ]

    def test_a_lost_connection_causes_no_loss_and_no_duplicates(
        self, running: TestBroker, client: Client, inline: InlineClient, topic: str
    ) -> None:
        publish(client, topic, 300, size=10_000)
        reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST, bytes_max=200_000))
        entries: list[Entry] = []
        drops = 0
        while more := inline.run(within_seconds(reader)):
            entries += more
            if len(entries) > 60 * (drops + 1):
                drop_connections(running)
                drops += 1
        assert drops > 1
        assert ids(entries) == list(range(300))

    def test_closing_a_reader_or_the_client_ends_it(self, client: Client, running: TestBroker, topic: str) -> None:
        publish(client, topic, 5)
        with InlineClient(running.service_url) as inline:
            reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST))
            inline.run(reader.close())
            inline.run(reader.close())
            with pytest.raises(Closed):
                inline.run(reader.next())
        assert list(running.run(lambda: _topic(running, topic).subscriptions)) == []


def test_after_a_restart_of_the_broker_the_next_entry_follows(tmp_path: Path) -> None:
    killable = KillableBroker(tmp_path)
    killable.start()
    try:
        with Client(killable.service_url) as client, InlineClient(killable.service_url) as inline:
            publish(client, "t", 300, size=10_000)
            reader = inline.run(inline.client.entries("t", EARLIEST, LATEST, bytes_max=100_000))
            entries = inline.run(reader.next())
            killable.kill()
            killable.start()
            while more := inline.run(within_seconds(reader)):
                entries += more
            assert ids(entries) == list(range(300))
    finally:
        killable.kill()


# -- without an end


async def next_ids(reader: AsyncEntryReader, seconds: float) -> list[int]:
    return [entry.id.entry_id for run in await reader.runs_within(seconds) for entry in run.entries()]


def test_entries_published_meanwhile_are_returned_too(client: Client, inline: InlineClient, topic: str) -> None:
    first = publish(client, topic, 3)[0]
    reader = inline.run(inline.client.entries_after(topic, first))
    assert inline.run(next_ids(reader, 10)) == [1, 2]
    assert inline.run(next_ids(reader, 0.05)) == []
    publish(client, topic, 2)
    assert inline.run(next_ids(reader, 10)) + inline.run(next_ids(reader, 0.05)) == [3, 4]
    last, received = inline.run(reader.progress())
    assert last.position == received.position == (first.ledger_id, 4)
    inline.run(reader.close())


def test_runs_equal_the_entries(client: Client, inline: InlineClient, topic: str) -> None:
    publish(client, topic, 100)
    reader = inline.run(inline.client.entries_after(topic, EARLIEST))
    runs = inline.run(reader.runs_within(10))
    entries = read(inline, topic, EARLIEST, LATEST)
    handed_out = [entry for run in runs for entry in run.entries()]
    assert handed_out == entries[: len(handed_out)]
    assert [run.entry(len(run.blobs) - 1) for run in runs] == [run.entries()[-1] for run in runs]
    inline.run(reader.close())


def test_an_unused_reader_is_drained(client: Client, inline: InlineClient, topic: str) -> None:
    publish(client, topic, 500, size=1000)
    reader = inline.run(inline.client.entries_after(topic, EARLIEST, bytes_max=100_000))
    received = inline.run(next_ids(reader, 10))
    assert not reader.is_drained
    reader.stop_requesting()
    while not reader.is_drained:
        more = inline.run(next_ids(reader, 10))
        assert more
        received += more
    assert received == list(range(len(received)))
    assert len(received) < 500
    assert inline.run(next_ids(reader, 0.05)) == []
    inline.run(reader.close())


def test_reading_continues_after_a_lost_connection(
    running: TestBroker, client: Client, inline: InlineClient, topic: str
) -> None:
    publish(client, topic, 2)
    reader = inline.run(inline.client.entries_after(topic, EARLIEST))
    assert inline.run(next_ids(reader, 10)) == [0, 1]
    drop_connections(running)
    publish(client, topic, 2)
    assert inline.run(next_ids(reader, 10)) == [2, 3]
    inline.run(reader.close())


def test_nothing_follows_a_terminated_topic(
    running: TestBroker, client: Client, inline: InlineClient, topic: str
) -> None:
    [only] = publish(client, topic, 1)
    path = f"persistent/public/default/{topic}/terminate"
    httpx.post(f"{running.http_url}/admin/v2/{path}", trust_env=False).raise_for_status()
    reader = inline.run(inline.client.entries_after(topic, EARLIEST))
    assert inline.run(next_ids(reader, 10)) == [0]
    assert inline.run(next_ids(reader, 0.05)) == []
    assert [one.position for one in inline.run(reader.progress())] == [only.position] * 2
    inline.run(reader.close())
