"""Sending whole entries: pipelined, in order, resent after a lost connection, counted only with a receipt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.client import EARLIEST, AsyncClient, Client
from magnetar.client.errors import (
    ClientError,
    Conflict,
    ConnectionLost,
    InvalidArgument,
    MessageTooLarge,
    ProducerBusy,
    Timeout,
    TopicTerminated,
)
from magnetar.client.produce.entry_producer import AsyncEntryProducer
from magnetar.client.produce.entry_producers import EntryProducers, ProducerKey
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.metadata import build_blob
from magnetar.wire.moves import MOVE_SUBSCRIPTION, MOVE_TOPIC, MOVED
from tests.client.connection.test_reconnect import drop_connections
from tests.client.fake_broker import Command, FakeBroker, fake_broker
from tests.crash.killable import KillableBroker

Do = Callable[[AsyncClient], Coroutine[Any, Any, None]]


def run(url: str, do: Do, **options: Any) -> None:
    async def main() -> None:
        async with AsyncClient(url, **{"operation_timeout_s": 10, **options}) as client:
            await do(client)

    asyncio.run(main())


def entry(first: int, count: int = 1, name: str = "me") -> bytes:
    """A batch of messages with the values `first`, `first + 1` and so on; a single message is not in a batch."""
    metadata = pb.MessageMetadata(producer_name=name, sequence_id=first, publish_time=1)
    if count == 1:
        return build_blob(metadata, b"%d" % first)
    metadata.num_messages_in_batch, metadata.highest_sequence_id = count, first + count - 1
    singles = [
        (pb.SingleMessageMetadata(payload_size=0, sequence_id=number), b"%d" % number) for number in _of(first, count)
    ]
    return build_blob(metadata, build_batch(singles))


def _of(first: int, count: int) -> range:
    return range(first, first + count)


async def send(producer: AsyncEntryProducer, first: int, count: int = 1) -> None:
    await producer.send(entry(first, count), sequence_id=first, highest_sequence_id=first + count - 1, messages=count)


def stored(url: str, topic: str) -> list[int]:
    values = []
    with Client(url) as client, client.reader(topic, EARLIEST) as reader:
        while reader.has_next():
            values.append(int(reader.read(10).value))
    return values


@pytest.fixture(scope="module")
def deduplicating() -> Iterator[TestBroker]:
    with broker(brokerDeduplicationEnabled=True) as running:
        yield running


def test_entries_are_stored_unchanged_and_in_order(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic, name="me", deduplicated=True) as producer:
            assert producer.last_sequence_id == -1
            for first in range(0, 1000, 10):
                await send(producer, first, 10)
            await send(producer, 1000)
            await producer.flush()
            assert producer.messages_stored == 1001

    run(deduplicating.service_url, do)
    assert stored(deduplicating.service_url, topic) == list(range(1001))


def test_single_message_entries_may_be_sent_together(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic, name="me", deduplicated=True, pending_max=10) as producer:
            await producer.send_each([], 0)
            await producer.send_each([entry(number) for number in range(100)], 0)
            assert not producer.is_settled
            await producer.flush()
            assert producer.is_settled
            assert (producer.messages_stored, producer.last_stored_id, producer.refused_id) == (100, 99, None)
            with pytest.raises(InvalidArgument, match="sequence id 99 is not above 99"):
                await producer.send_each([entry(99)], 99)
            too_large = entry(100) + bytes(producer.message_size_max + 20_000)
            with pytest.raises(MessageTooLarge):
                await producer.send_each([entry(100), too_large], 100)
            await producer.send_each([entry(100)], 100)
            await producer.flush()

    run(deduplicating.service_url, do)
    assert stored(deduplicating.service_url, topic) == list(range(101))


def test_a_rejection_is_reported(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic) as producer:
            await send(producer, 7)
            await producer.send(b"no entry", sequence_id=8, highest_sequence_id=8, messages=1)
            with pytest.raises(ClientError, match="rejected sequence id 8"):
                await producer.flush()
            assert producer.refused_id == 8

    run(deduplicating.service_url, do)


def test_the_official_client_can_read_them(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic) as producer:
            await send(producer, 0, 3)
            await send(producer, 3)
            await producer.flush()

    run(deduplicating.service_url, do)
    with contextlib.closing(pulsar.Client(deduplicating.service_url)) as official:
        reader = official.create_reader(topic, pulsar.MessageId.earliest)
        assert [int(reader.read_next(10_000).data()) for _ in range(4)] == [0, 1, 2, 3]


def test_the_next_producer_of_the_name_receives_the_last_sequence_id(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic, name="me") as producer:
            await send(producer, 5, 10)
            await producer.flush()
        async with await client.entry_producer(topic, name="me") as producer:
            assert producer.last_sequence_id == 14
            with pytest.raises(InvalidArgument, match="sequence id 14 is not above 14, the last of producer 'me'"):
                await send(producer, 14)

    run(deduplicating.service_url, do)


def test_outstanding_entries_are_bounded() -> None:
    def hold_back(fake: FakeBroker, command: Command) -> bytes | None:
        return b"" if command.type == Command.SEND else None

    async def do(client: AsyncClient) -> None:
        by_number = await client.entry_producer("t", pending_max=2)
        await send(by_number, 0)
        await send(by_number, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(by_number, 2), 0.1)
        by_size = await client.entry_producer("t", pending_bytes_max=100)
        await send(by_size, 0, 20)  # an entry larger than the limit is sent alone
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(by_size, 20), 0.1)

    with fake_broker(hold_back) as fake:
        run(fake.url, do)


def test_everything_is_stored_once_despite_lost_connections(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic, name="me", deduplicated=True) as producer:
            for first in range(0, 20_000, 10):
                await send(producer, first, 10)
                if first % 5000 == 2500:
                    await asyncio.to_thread(drop_connections, deduplicating)
            await producer.flush()
            assert producer.messages_stored == 20_000

    run(deduplicating.service_url, do)
    assert stored(deduplicating.service_url, topic) == list(range(20_000))


def test_a_killed_and_restarted_broker(tmp_path: Path, topic: str) -> None:
    killable = KillableBroker(tmp_path, ("brokerDeduplicationEnabled=true",))
    killable.start()

    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic, name="me", deduplicated=True) as producer:
            for first in range(0, 5000, 10):
                await send(producer, first, 10)
                if first == 2500:
                    await asyncio.sleep(0)
                    await asyncio.to_thread(killable.kill)
                    await asyncio.to_thread(killable.start)
            await producer.flush()

    try:
        run(killable.service_url, do)
        assert stored(killable.service_url, topic) == list(range(5000))
    finally:
        killable.kill()


def remembering(*last_sequence_ids: int) -> Callable[[FakeBroker, Command], Command | bytes | None]:
    """A broker that returns these sequence ids on each opening, and disconnects on the second SEND."""
    openings = iter(last_sequence_ids)

    def answer(fake: FakeBroker, command: Command) -> Command | bytes | None:
        if command.type == Command.PRODUCER:
            success = pb.CommandProducerSuccess(
                request_id=command.producer.request_id, producer_name="me", last_sequence_id=next(openings)
            )
            return Command(type=Command.PRODUCER_SUCCESS, producer_success=success)
        if command.type == Command.SEND and fake.types().count("SEND") == 2:
            fake.drop()
            return b""
        return None

    return answer


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (22, "the broker knows sequence id 22, which is inside a pending entry from 20 to 29"),
        (3, "the broker knows sequence id 3 only, but had confirmed 19: the topic does not deduplicate"),
    ],
)
def test_an_inconsistent_last_sequence_id_is_an_error(known: int, text: str) -> None:
    async def do(client: AsyncClient) -> None:
        producer = await client.entry_producer("t", name="me", deduplicated=True)
        await send(producer, 10, 10)
        await producer.flush()
        await send(producer, 20, 10)
        with pytest.raises(Conflict, match=text):
            await producer.flush()
        with pytest.raises(Conflict, match=text):
            await send(producer, 30)

    with fake_broker(remembering(5, known)) as fake:
        run(fake.url, do)
        assert fake.has_received("CLOSE_PRODUCER")


def test_a_name_used_by_two_producers_is_detected() -> None:
    """The broker reports a duplicate for an entry that was sent once."""

    def drop_all(fake: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.SEND:
            return None
        nowhere = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
        receipt = pb.CommandSendReceipt(
            producer_id=command.send.producer_id, sequence_id=command.send.sequence_id, message_id=nowhere
        )
        return Command(type=Command.SEND_RECEIPT, send_receipt=receipt)

    async def do(client: AsyncClient) -> None:
        producer = await client.entry_producer("t", name="me", deduplicated=True)
        await send(producer, 7, 3)
        with pytest.raises(Conflict, match="as a duplicate although it was sent once, sequence ids 7 to 9"):
            await producer.flush()
        assert producer.messages_stored == 0
        await (plain := await client.entry_producer("t", name="me")).send(
            entry(1), sequence_id=1, highest_sequence_id=1, messages=1
        )
        await plain.flush()

    with fake_broker(drop_all) as fake:
        run(fake.url, do)


def test_a_name_in_use_is_waited_for(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        first = await client.entry_producer(topic, name="me")
        with pytest.raises(ProducerBusy, match=rf"producer 'me' of persistent://public/default/{topic} was given up"):
            await client.entry_producer(topic, name="me", open_timeout_s=0.2)
        second = asyncio.create_task(client.entry_producer(topic, name="me"))
        await asyncio.sleep(0.1)
        assert not second.done()
        await first.close()
        await (await second).close()

    run(deduplicating.service_url, do)


def test_an_unreachable_broker_is_named() -> None:
    with fake_broker(lambda fake, command: None) as fake:
        address = fake.address

    async def do(client: AsyncClient) -> None:
        with pytest.raises(
            ConnectionLost, match=rf"'me' of .*/t was given up after 0.2 s: cannot connect to {address}"
        ):
            await client.entry_producer("t", name="me", open_timeout_s=0.2)

    run(f"pulsar://{address}", do)


def test_a_rejection_ends_the_producer(deduplicating: TestBroker, topic: str) -> None:
    def refuse(fake: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.SEND:
            return None
        error = pb.CommandSendError(
            producer_id=command.send.producer_id, sequence_id=4, error=pb.TopicTerminatedError, message="it ended"
        )
        return Command(type=Command.SEND_ERROR, send_error=error)

    async def do(client: AsyncClient) -> None:
        producer = await client.entry_producer("t", name="fake")
        await send(producer, 4)
        with pytest.raises(TopicTerminated, match="rejected sequence id 4: it ended"):
            await producer.flush()

    with fake_broker(refuse) as fake:
        run(fake.url, do)


def test_a_broker_that_stores_nothing_is_given_up_with_its_reason() -> None:
    def fail(fake: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.SEND:
            return None
        error = pb.CommandSendError(
            producer_id=command.send.producer_id, sequence_id=0, error=pb.PersistenceError, message="disk is full"
        )
        return Command(type=Command.SEND_ERROR, send_error=error)

    async def do(client: AsyncClient) -> None:
        producer = await client.entry_producer("t", send_timeout_s=0.5)
        await send(producer, 0)
        with pytest.raises(Timeout, match=r"nothing was stored for 0\.5 s: disk is full"):
            await producer.flush()

    with fake_broker(fail) as fake:
        run(fake.url, do)


def test_an_unsendable_entry_is_rejected_at_once(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        producer = await client.entry_producer(topic)
        limit = producer.message_size_max
        with pytest.raises(MessageTooLarge, match=rf"exceeds the broker's limit of {limit}"):
            await producer.send(bytes(limit + 20_000), sequence_id=0, highest_sequence_id=0, messages=1)
        with pytest.raises(InvalidArgument, match="highest_sequence_id 1 is below sequence_id 2"):
            await producer.send(b"", sequence_id=2, highest_sequence_id=1, messages=1)
        for wrong in ({"pending_max": 0}, {"open_timeout_s": -1}):
            with pytest.raises(InvalidArgument, match=next(iter(wrong))):
                await client.entry_producer(topic, **wrong)  # type: ignore[arg-type]
        await producer.close()
        with pytest.raises(ClientError, match="is closed"):
            await send(producer, 0)

    run(deduplicating.service_url, do)


def test_several_are_opened_and_flushed_together(deduplicating: TestBroker, topic: str) -> None:
    async def do(client: AsyncClient) -> None:
        producers = EntryProducers(client, deduplicated=True, pending_bytes_max=2000)
        senders = [ProducerKey(f"{topic}-{number}", "me") for number in range(5)]
        await producers.open(senders)
        await producers.open(senders)  # nothing new
        assert producers.keys == tuple(senders)
        for first in range(0, 1000, 10):
            for sender in senders:
                await send(producers[sender], first, 10)
        await producers.flush()
        await producers.close()
        await (await client.entry_producer(senders[0].topic, name="me", open_timeout_s=0.1)).close()  # it is free

    run(deduplicating.service_url, do)
    for number in range(5):
        assert stored(deduplicating.service_url, f"{topic}-{number}") == list(range(1000))


def test_sp2_an_entry_that_moves_is_stored_once_whoever_sends_it(deduplicating: TestBroker, topic: str) -> None:
    """Duplicates of a move count as stored, and sequence ids begin anew with each producer."""

    def moving(positions: str, number: int) -> bytes:
        metadata = pb.MessageMetadata(producer_name="m", sequence_id=number, publish_time=1)
        metadata.properties.append(pb.KeyValue(key=MOVED, value=positions))
        return build_blob(metadata, b"%d" % number)

    async def do(client: AsyncClient) -> None:
        async with await client.entry_producer(topic, name="me") as producer:
            for number in range(4):
                await send(producer, number)
            await producer.flush()
        await (await client.cursor(topic, "s", initial_position=EARLIEST)).position()
        ledger_id = (await (await client.tail(topic)).last()).ledger_id
        key = ProducerKey(f"{topic}-out", "mover", ((MOVE_TOPIC, topic), (MOVE_SUBSCRIPTION, "s")))
        for dropped in (0, 3):
            producers = EntryProducers(client, deduplicated=False)
            await producers.open([key])
            assert producers[key].last_sequence_id == -1
            blobs = [moving(f"{ledger_id}:{number}", number) for number in range(3)]
            await producers[key].send_each(blobs, 0)
            await producers.flush()
            assert (producers[key].messages_stored, producers[key].messages_dropped) == (3, dropped)
            await producers.close()
        producers = EntryProducers(client, deduplicated=False)
        await producers.open([key])
        await producers[key].send_each([moving(f"{ledger_id}:2-3", 0)], 0)
        with pytest.raises(ClientError, match="1 of 2 positions"):
            await producers.flush()
        await producers.close()

    run(deduplicating.service_url, do)
    assert stored(deduplicating.service_url, f"{topic}-out") == [0, 1, 2]
