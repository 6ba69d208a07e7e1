"""Messages between our client and the official one, and from our producer to our reader."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future

import httpx
import pulsar
import pytest

from magnetar.client import EARLIEST, LATEST, AsyncClient, Client, Message, MessageId
from magnetar.client.errors import (
    Closed,
    EndOfTopic,
    InvalidArgument,
    InvalidName,
    MessageTooLarge,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    Timeout,
    TopicTerminated,
    UnreadableMessage,
)
from magnetar.client.produce.routing import HASHES
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.client.fake_broker import Command, FakeBroker, fake_broker
from tests.compat.stage import PATIENCE_MS, numbered, send_batch
from tests.server.raw_client import RawClient

PATIENCE_S = PATIENCE_MS / 1000
COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


def read_all(client: Client, topic: str, start: MessageId = EARLIEST, **options: bool) -> list[Message]:
    messages = []
    with client.reader(topic, start, **options) as reader:  # type: ignore[arg-type]
        while reader.has_next():
            messages.append(reader.read(PATIENCE_S))
    return messages


def values(messages: list[Message]) -> list[bytes]:
    return [message.value for message in messages]


def partitioned(running: TestBroker, topic: str, count: int) -> None:
    path = f"{running.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
    httpx.put(path, json=count).raise_for_status()


# -- both directions, with the official client


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_official_client_reads_our_messages(
    client: Client, official: pulsar.Client, topic: str, compression: str, batching: bool
) -> None:
    payloads = [payload * 50 for payload in numbered(20)]
    with client.producer(topic, compression=compression, batching=batching) as producer:  # type: ignore[arg-type]
        ids = [
            producer.send_async(payload, key="k", properties={"n": "1"}, event_time_ms=123, ordering_key=b"o")
            for payload in payloads
        ]
        producer.flush()
    reader = official.create_reader(topic, pulsar.MessageId.earliest)
    for payload, future in zip(payloads, ids, strict=True):
        message = reader.read_next(PATIENCE_MS)
        assert (message.data(), message.partition_key(), message.properties()) == (payload, "k", {"n": "1"})
        assert (message.event_timestamp(), message.ordering_key()) == (123, "o")
        sent = future.result()
        assert (message.message_id().entry_id(), message.message_id().batch_index()) == (
            sent.entry_id,
            sent.batch_index,
        )


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_our_client_reads_messages_of_the_official_one(
    client: Client, official: pulsar.Client, topic: str, compression: str, batching: bool
) -> None:
    payloads = [payload * 50 for payload in numbered(20)]
    producer = official.create_producer(
        topic, "writer", compression_type=COMPRESSIONS[compression], batching_enabled=batching
    )
    send_batch(producer, payloads, partition_key="k", properties={"n": "1"}, event_timestamp=123, ordering_key="o")
    messages = read_all(client, topic)
    assert values(messages) == payloads
    for index, message in enumerate(messages):
        assert (message.key, message.properties, message.event_time_ms) == ("k", {"n": "1"}, 123)
        assert (message.producer_name, message.sequence_id, message.ordering_key) == ("writer", index, b"o")
        assert message.topic == f"persistent://public/default/{topic}"
        assert abs(message.publish_time_ms / 1000 - time.time()) < 60
        assert (message.redelivery_count, message.schema_version, message.is_null) == (0, None, False)
        assert (message.id.batch_index >= 0) is batching


def test_chunks_of_the_official_client_are_reassembled(client: Client, official: pulsar.Client, topic: str) -> None:
    large = bytes(range(256)) * 48_000  # 12 MB, against entries of 5
    producer = official.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    for payload in (b"before", large, b"after"):
        producer.send(payload)
    messages = read_all(client, topic)
    assert values(messages) == [b"before", large, b"after"]
    assert len(messages[1].chunk_ids) == 3 and messages[1].chunk_ids[-1] == messages[1].id


def test_a_reader_that_starts_amid_chunks_reports_it(client: Client, official: pulsar.Client, topic: str) -> None:
    producer = official.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(b"x" * 12_000_000)
    producer.send(b"after")
    [whole, after] = read_all(client, topic)
    with client.reader(topic, whole.chunk_ids[0]) as reader:
        with pytest.raises(UnreadableMessage, match="last of 3 chunks, and the first were not read"):
            reader.read(PATIENCE_S)
        assert reader.read(PATIENCE_S) == after


@pytest.mark.parametrize("scheme", HASHES)
def test_a_key_is_routed_to_its_partition(running: TestBroker, client: Client, topic: str, scheme: str) -> None:
    partitioned(running, topic, 5)
    keys = [f"key-{index}" for index in range(20)]
    with client.producer(topic, hashing_scheme=scheme) as producer:  # type: ignore[arg-type]
        for key in keys * 2:
            assert producer.send(b"x", key=key).partition == HASHES[scheme](key) % 5
    places = {(message.key, message.topic) for message in read_all(client, topic)}
    assert len(places) == len(keys)


# -- fields of a message


def test_all_fields_of_a_message(client: Client, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    with client.producer(topic, name="me") as producer:
        assert producer.name == "me"
        sent = producer.send(
            b"v",
            key=b"\xff\x00",
            properties={"a": "1", "b": ""},
            event_time_ms=5,
            deliver_at_ms=now_ms - 10,
            ordering_key=b"\xfe",
            sequence_id=77,
        )
        producer.send(None, key="gone")
        producer.send(b"")
    first, second, third = read_all(client, topic)
    assert first.id == sent
    assert (first.value, first.key, first.key_is_base64) == (b"v", "/wA=", True)
    assert (first.properties, first.event_time_ms, first.deliver_at_ms) == ({"a": "1", "b": ""}, 5, now_ms - 10)
    assert (first.ordering_key, first.sequence_id, first.producer_name) == (b"\xfe", 77, "me")
    assert (second.value, second.key, second.is_null, second.sequence_id) == (b"", "gone", True, 78)
    assert (third.value, third.key, third.is_null, third.event_time_ms) == (b"", None, False, None)


def test_null_values_in_a_batch(client: Client, topic: str) -> None:
    with client.producer(topic, batch_delay_s=1) as producer:
        for value in (b"a", None, b""):
            producer.send_async(value)
    messages = read_all(client, topic)
    assert [(message.value, message.is_null) for message in messages] == [(b"a", False), (b"", True), (b"", False)]
    assert [message.id.batch_size for message in messages] == [3, 3, 3]


# -- producers


def test_order_is_kept_in_any_mix(client: Client, topic: str) -> None:
    """Batched and unbatched messages of one producer, some too large for the open batch."""
    with client.producer(topic, batch_messages_max=7, batch_bytes_max=300) as producer:
        for index in range(200):
            delayed = {"deliver_at_ms": 1} if index % 11 == 0 else {}
            producer.send_async(b"%d" % index + b"x" * (400 if index % 13 == 0 else 1), **delayed)  # type: ignore[arg-type]
    messages = read_all(client, topic)
    assert [int(message.value.rstrip(b"x")) for message in messages] == list(range(200))
    assert [message.sequence_id for message in messages] == list(range(200))
    assert max(message.id.batch_size for message in messages) == 7


def test_many_messages_are_pipelined_and_bounded(client: Client, topic: str) -> None:
    futures: list[Future[MessageId]] = []
    with client.producer(topic, pending_max=50) as producer:
        for payload in numbered(3000):
            futures.append(producer.send_async(payload))
            assert sum(not future.done() for future in futures[-200:]) <= 50
        producer.flush()
        assert all(future.done() for future in futures)
    assert values(read_all(client, topic)) == numbered(3000)


def test_sending_waits_for_the_limit_only_until_the_timeout(topic: str) -> None:
    def deaf(broker: FakeBroker, command: Command) -> bytes | None:
        return b"" if command.type == Command.SEND else None

    with fake_broker(deaf) as fake, Client(fake.url) as client:
        producer = client.producer(topic, pending_max=2, send_timeout_s=0.3)
        first = [producer.send_async(b"x") for _ in range(2)]
        with pytest.raises(Timeout, match=rf"(storing a message in|one of 2 .* of) persistent://.*/{topic} took"):
            producer.send(b"y")
        for future in first:
            with pytest.raises(Timeout, match=r"longer than 0\.3 s"):
                future.result()
        with pytest.raises(Timeout):
            producer.flush()
        producer.flush()  # an error is reported once


def test_a_producer_continues_the_sequence_of_its_name(client: Client, topic: str) -> None:
    with client.producer(topic, name="me") as producer:
        producer.send(b"a", sequence_id=10)
    with client.producer(topic, name="me") as producer:
        producer.send(b"b")
    sequence_ids = [message.sequence_id for message in read_all(client, topic)]
    assert sequence_ids[0] == 10


def test_a_dropped_duplicate_has_no_position(topic: str) -> None:
    with broker(brokerDeduplicationEnabled=True) as running, Client(running.service_url) as client:
        with client.producer(topic, name="me") as producer:
            assert producer.send(b"a", sequence_id=3).entry_id == 0
            assert producer.send(b"a again", sequence_id=3).position == (-1, -1)
            assert producer.send(b"b").entry_id == 1
        assert values(read_all(client, topic)) == [b"a", b"b"]


def test_an_oversized_message_is_rejected_and_the_next_is_not(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        with pytest.raises(MessageTooLarge, match="message of 5242881 bytes exceeds the broker's limit of 5242880"):
            producer.send(b"x" * (5 * 1024 * 1024 + 1))
        assert producer.send(b"small").entry_id == 0
        producer.flush()  # `send` has raised the error
        producer.send_async(b"x" * (5 * 1024 * 1024 + 1))
        with pytest.raises(MessageTooLarge):
            producer.flush()


def test_the_limit_applies_to_compressed_messages(client: Client, topic: str) -> None:
    large = b"x" * (20 << 20)
    with client.producer(topic, compression="zstd") as producer:
        producer.send(large)
    assert values(read_all(client, topic)) == [large]


def test_access_modes(client: Client, topic: str) -> None:
    first = client.producer(topic, access_mode="Exclusive")
    with pytest.raises(ProducerFenced, match="has other producers"):
        client.producer(topic, access_mode="Exclusive")
    second = client.producer(topic, access_mode="ExclusiveWithFencing")
    second.send(b"second")
    with pytest.raises(ProducerFenced):
        first.send(b"first")
    waiting: list[MessageId] = []
    thread = threading.Thread(
        target=lambda: waiting.append(client.producer(topic, access_mode="WaitForExclusive").send(b"third"))
    )
    thread.start()
    thread.join(0.1)
    assert not waiting
    second.close()
    thread.join(PATIENCE_S)
    assert values(read_all(client, topic)) == [b"second", b"third"]


def test_waiting_for_exclusive_access_times_out(running: TestBroker, topic: str) -> None:
    with Client(running.service_url, operation_timeout_s=0.3) as client:
        client.producer(topic, access_mode="Exclusive")
        with pytest.raises(Timeout, match=f"opening the producer of persistent://public/default/{topic}"):
            client.producer(topic, access_mode="WaitForExclusive")


def test_a_name_in_use(client: Client, topic: str) -> None:
    client.producer(topic, name="me")
    with pytest.raises(ProducerBusy, match="me"):
        client.producer(topic, name="me")


def test_a_cancelled_message_is_not_sent(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        futures = [producer.send_async(b"%d" % index) for index in range(100)]
        cancelled = [index for index, future in enumerate(futures) if future.cancel()]
    sent = [b"%d" % index for index in range(100) if index not in cancelled]
    assert values(read_all(client, topic)) == sent


@pytest.mark.parametrize(
    ("value", "options", "text"),
    [
        ("text", {}, "value must be bytes or None, not str"),
        (b"", {"key": 5}, "key must be a string or bytes, not int"),
        (b"", {"properties": {"a": 1}}, "property 'a'=1 is not a pair of strings"),
        (b"", {"event_time_ms": -1}, "event_time_ms -1 is not a number between 0 and"),
        (b"", {"deliver_at_ms": 2**63}, "deliver_at_ms 9223372036854775808 is not"),
        (b"", {"sequence_id": "1"}, "sequence_id '1' is not"),
        (b"", {"ordering_key": "o"}, "ordering_key must be bytes, not str"),
    ],
)
def test_invalid_messages(client: Client, topic: str, value: bytes, options: dict[str, object], text: str) -> None:
    with client.producer(topic) as producer:
        for send in (producer.send, producer.send_async):
            with pytest.raises(InvalidArgument, match=text):
                send(value, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"compression": "gzip"}, "compression 'gzip' is not one of none, lz4, zlib, zstd, snappy"),
        ({"access_mode": "shared"}, "access_mode 'shared' is not one of Shared, Exclusive"),
        ({"hashing_scheme": "md5"}, "hashing_scheme 'md5' is not one of"),
        ({"pending_max": 0}, "pending_max must be a number above 0, not 0"),
        ({"batch_delay_s": "1"}, "batch_delay_s must be a number above 0, not '1'"),
    ],
)
def test_invalid_producer_options(client: Client, topic: str, options: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        client.producer(topic, **options)  # type: ignore[arg-type]


# -- readers


def test_start_positions_of_a_reader(client: Client, topic: str) -> None:
    with client.producer(topic, batch_delay_s=1) as producer:
        futures = [producer.send_async(payload) for payload in numbered(4)]
        producer.flush()
        ids = [future.result() for future in futures]
        ids.append(producer.send(b"single"))
        ids.append(producer.send(b"last"))
    everything = [*numbered(4), b"single", b"last"]
    assert [position.batch_index for position in ids] == [0, 1, 2, 3, -1, -1]
    assert values(read_all(client, topic, EARLIEST)) == everything
    assert values(read_all(client, topic, LATEST)) == []
    for index, position in enumerate(ids):
        assert values(read_all(client, topic, position)) == everything[index + 1 :]
        assert values(read_all(client, topic, position, start_inclusive=True)) == everything[index:]
        parsed = MessageId.parse(str(position))
        assert values(read_all(client, topic, parsed, start_inclusive=True)) == everything[index:]
    whole_entry = MessageId(*ids[0].position)
    assert values(read_all(client, topic, whole_entry)) == everything[4:]
    assert values(read_all(client, topic, whole_entry, start_inclusive=True)) == everything


def test_latest_is_the_moment_of_creation(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(b"old")
        with client.reader(topic) as reader:
            assert not reader.has_next()
            with pytest.raises(Timeout, match=f"waiting for a message of persistent://public/default/{topic}"):
                reader.read(0.05)
            producer.send(b"new")
            assert reader.has_next()
            assert reader.read(PATIENCE_S).value == b"new"
            assert not reader.has_next()


def test_an_empty_topic(client: Client, topic: str) -> None:
    with client.reader(topic, EARLIEST, create_topic=True) as reader:
        assert not reader.has_next()
        with pytest.raises(Timeout):
            reader.read(0)


def test_reading_creates_nothing_unless_requested(client: Client, topic: str) -> None:
    with pytest.raises(NotFound):
        client.reader(topic)
    with pytest.raises(NotFound):
        client.get_partitions_for_topic(topic, create_if_auto_creation_enabled=False)
    client.reader(topic, create_topic=True).close()
    assert client.get_partitions_for_topic(topic, create_if_auto_creation_enabled=False)


def test_a_small_queue_suffices(client: Client, topic: str) -> None:
    with client.producer(topic, batch_messages_max=10) as producer:
        for payload in numbered(500):
            producer.send_async(payload)
    with client.reader(topic, EARLIEST, queue_size=1) as reader:
        assert [reader.read(PATIENCE_S).value for _ in range(500)] == numbered(500)


def test_a_terminated_topic_ends(running: TestBroker, client: Client, topic: str) -> None:
    producer = client.producer(topic)
    for payload in numbered(3):
        producer.send(payload)
    path = f"{running.http_url}/admin/v2/persistent/public/default/{topic}/terminate"
    httpx.post(path).raise_for_status()
    with pytest.raises(TopicTerminated):
        producer.send(b"late")
    with client.reader(topic, EARLIEST) as reader:
        assert values(list(reader)) == numbered(3)
        with pytest.raises(EndOfTopic):
            reader.read(PATIENCE_S)
        assert not reader.has_next()


def test_all_partitions_are_read(running: TestBroker, client: Client, topic: str) -> None:
    partitioned(running, topic, 3)
    with client.producer(topic, batching=False) as producer:
        assert len(producer.partitions) == 3
        ids = [producer.send(payload) for payload in numbered(30)]
    assert [position.partition for position in ids] == [(ids[0].partition + index) % 3 for index in range(30)]
    messages = read_all(client, topic)
    assert sorted(values(messages)) == sorted(numbered(30))
    for partition in range(3):
        mine = [message for message in messages if message.id.partition == partition]
        assert values(mine) == numbered(30)[(partition - ids[0].partition) % 3 :: 3]
        assert {message.topic for message in mine} == {f"persistent://public/default/{topic}-partition-{partition}"}
    assert {message.producer_name for message in messages} == {producer.name}


def test_partitions_start_at_their_own_positions(running: TestBroker, client: Client, topic: str) -> None:
    partitioned(running, topic, 2)
    with client.producer(topic, batching=False) as producer:
        for payload in numbered(10):
            producer.send(payload)
    everything = read_all(client, topic)
    full = f"persistent://public/default/{topic}"
    last = {partition: [m for m in everything if m.id.partition == partition][-2].id for partition in range(2)}
    start = {f"{full}-partition-{partition}": position for partition, position in last.items()}
    with client.reader(topic, start) as reader:
        assert sorted(reader.read(PATIENCE_S).value for _ in range(2)) == sorted(numbered(10)[-2:])
        assert not reader.has_next()
    with pytest.raises(InvalidArgument, match=r"start 1:2:-1 is an id of one partition, but .* has 2"):
        client.reader(topic, MessageId(1, 2))
    with pytest.raises(InvalidArgument, match=r"no position for .*-partition-1"):
        client.reader(topic, {f"{full}-partition-0": EARLIEST})
    with pytest.raises(InvalidArgument, match="for persistent://public/default/other, which is not"):
        client.reader(topic, {**start, "other": EARLIEST})


def test_one_partition_can_be_read_alone(running: TestBroker, client: Client, topic: str) -> None:
    partitioned(running, topic, 2)
    with client.producer(f"{topic}-partition-1") as producer:
        assert producer.send(b"x").partition == 1
    assert values(read_all(client, f"{topic}-partition-1")) == [b"x"]
    assert values(read_all(client, f"{topic}-partition-0", create_topic=True)) == []


def test_non_persistent_topics(client: Client, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    with client.reader(name, create_topic=True) as reader, client.producer(name) as producer:
        producer.send(b"x")
        assert reader.read(PATIENCE_S).value == b"x"
        assert not reader.has_next()


# -- unreadable messages


def raw_send(running: TestBroker, topic: str, metadata: pb.MessageMetadata, payload: bytes, sequence_id: int) -> None:
    raw = RawClient(running)
    try:
        raw.produce_to(topic)
        send = pb.CommandSend(producer_id=1, sequence_id=sequence_id)
        blob = build_blob(metadata, payload)
        raw.send_bytes(encode_frame_with_blob(pb.BaseCommand(type=pb.BaseCommand.SEND, send=send), blob))
        assert raw.receive().type == pb.BaseCommand.SEND_RECEIPT
    finally:
        raw.close()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"compression": pb.ZSTD, "uncompressed_size": 100}, "ZSTD data of 7 bytes does not decompress to 100 bytes"),
        ({"compression": pb.LZ4, "uncompressed_size": 1 << 31}, "exceeds the limit"),
        ({"num_messages_in_batch": 3}, "metadata of"),
        ({"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]}, "it is encrypted"),
    ],
)
def test_an_unreadable_message_is_reported_and_reading_continues(
    running: TestBroker, client: Client, topic: str, fields: dict[str, object], text: str
) -> None:
    with client.producer(topic) as producer:
        producer.send(b"before")
        metadata = pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, **fields)  # type: ignore[arg-type]
        raw_send(running, topic, metadata, b"rubbish", 0)
        producer.send(b"after")
    with client.reader(topic, EARLIEST) as reader:
        before = reader.read(PATIENCE_S)
        with pytest.raises(UnreadableMessage, match=text) as raised:
            reader.read(PATIENCE_S)
        assert raised.value.message_id == MessageId(before.id.ledger_id, 1)
        assert f"message {raised.value.message_id} of persistent://public/default/{topic}" in str(raised.value)
        assert reader.read(PATIENCE_S).value == b"after"
        assert not reader.has_next()


def test_a_marker_of_the_broker_is_not_returned(running: TestBroker, client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        metadata = pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, marker_type=1)
        raw_send(running, topic, metadata, b"", 0)
        producer.send(b"shown")
    with client.reader(topic, EARLIEST) as reader:
        assert reader.read(PATIENCE_S).value == b"shown"


# -- asyncio


def test_the_same_with_asyncio(running: TestBroker, topic: str) -> None:
    async def run() -> list[Message]:
        async with AsyncClient(running.service_url) as client:
            async with await client.producer(topic, compression="lz4") as producer:
                await producer.send(b"first")
                futures = [await producer.send_async(payload) for payload in numbered(100)]
                await producer.flush()
                assert all(future.done() for future in futures)
            async with await client.reader(topic, EARLIEST) as reader:
                messages = []
                async for message in reader:
                    messages.append(message)
                    if not await reader.has_next():
                        break
                with pytest.raises(Timeout):
                    await reader.read(0.01)
                return messages

    assert values(asyncio.run(run())) == [b"first", *numbered(100)]


def test_concurrent_senders_share_batches(running: TestBroker, topic: str) -> None:
    async def run() -> list[MessageId]:
        async with AsyncClient(running.service_url) as client:
            producer = await client.producer(topic)
            return await asyncio.gather(*(producer.send(payload) for payload in numbered(500)))

    ids = asyncio.run(run())
    assert len({position.position for position in ids}) < 50
    assert ids == sorted(ids)


def test_close_wakes_a_waiting_reader(running: TestBroker, topic: str) -> None:
    async def run() -> None:
        async with AsyncClient(running.service_url) as client:
            reader = await client.reader(topic, create_topic=True)
            waiting = asyncio.create_task(reader.read())
            await asyncio.sleep(0.01)
            await reader.close()
            with pytest.raises(Closed):
                await waiting

    asyncio.run(run())


# -- over http://, and closing


def test_messages_with_an_http_address(running: TestBroker, topic: str) -> None:
    with Client(running.http_url) as client:
        with client.producer(topic) as producer:
            producer.send(b"x")
        assert values(read_all(client, topic)) == [b"x"]


def test_closing_the_client_sends_pending_messages(running: TestBroker, client: Client, topic: str) -> None:
    with Client(running.service_url) as other:
        producer = other.producer(topic, batch_delay_s=60)
        for payload in numbered(10):
            producer.send_async(payload)
    assert values(read_all(client, topic)) == numbered(10)


def test_after_close_every_call_raises(running: TestBroker, topic: str) -> None:
    before = set(threading.enumerate())
    client = Client(running.service_url)
    producer = client.producer(topic)
    reader = client.reader(topic)
    client.close()
    client.close()
    producer.close()
    reader.close()
    for call in (
        lambda: client.get_partitions_for_topic(topic),
        lambda: client.producer(topic),
        lambda: producer.send(b"x"),
        lambda: producer.send_async(b"x"),
        lambda: producer.flush(),
        lambda: reader.read(1),
    ):
        with pytest.raises(Closed):
            call()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "magnetar-client"]


def test_a_closed_producer_or_reader_raises(client: Client, topic: str) -> None:
    producer, reader = client.producer(topic), client.reader(topic)
    producer.close()
    reader.close()
    with pytest.raises(Closed):
        producer.send(b"x")
    with pytest.raises(Closed):
        reader.read(1)


def test_invalid_arguments(client: Client) -> None:
    for call in (client.producer, client.reader):
        with pytest.raises(InvalidName, match="namespace name ''"):
            call("bad//name")
    with pytest.raises(InvalidArgument, match="queue_size must be a number above 0, not 0"):
        client.reader("t", queue_size=0)
    with pytest.raises(InvalidArgument, match="operation_timeout_s must be a number above 0, not -1"):
        Client("pulsar://localhost", operation_timeout_s=-1)
