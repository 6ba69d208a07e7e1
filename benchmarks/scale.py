"""Rows for Magnetar alone: many topics, and a long backlog.

The load is raw frames, many outstanding at a time, so that it takes seconds and the broker dominates. A row returns one
value per size, under the key "row size". Does not know pulsar-perf or how the values are judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from contestant import Contestant, Running
from raw_connection import RawConnection

from magnetar.wire.batch import build_batch
from magnetar.wire.entry import messages_of
from magnetar.wire.frames import Frame, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob, split_blob
from magnetar.wire.schema_pb2 import (
    BaseCommand,
    CommandAck,
    CommandFlow,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)

SUBSCRIPTION = "bench"
KB_PER_MB = 1024

_TOPICS_AT_A_TIME = 500
_BATCH_MESSAGES = 10
_BATCH_MESSAGE_SIZE = 100
_ENTRIES_AT_A_TIME = 250
_ENTRIES_UNDER_WAY_MAX = 1000
_DIFFERENT_ENTRIES = 256  # above LZ4's window, so that a repeated entry does not compress
_LOOKED_AT_MESSAGES = 500_000  # 55 MB of entries: about one cycle of the storage's buffers
_LOOKS = 10
_FIRST_MESSAGES = 100

Values = dict[str, float]
Log = Callable[[str], None]


class ScaleFailed(Exception):
    """The broker sent an unexpected response."""


@dataclass(frozen=True, slots=True)
class SparkScale:
    """Sizes of the Spark rows."""

    read_1kb: int  # messages
    read_100b: int
    client_messages: int  # of these, read by the Python client, whose rate is constant
    written: int  # rows
    sent_async: int
    send_s: float
    latency_warmup_s: float
    latency_s: float
    idle_used_s: float
    idle_settle_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class FailedMessagesScale:
    """Messages of the rows for failed messages."""

    processed: int
    redriven: int
    queried: int
    archived: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the loads, and precision of the samples."""

    topics: tuple[int, ...]
    backlogs: tuple[int, ...]  # messages
    failed: tuple[int, ...]  # messages awaiting redelivery
    backoff_s: int  # back-off, longer than the time until all have failed
    dead_letters: int
    settle_s: float
    starts: int
    overview_turns: int
    overview_turn_s: float
    spark: SparkScale
    failed_messages: FailedMessagesScale


FULL = Scale(
    topics=(1_000, 5_000, 10_000),
    backlogs=(1_000_000, 5_000_000, 10_000_000),
    failed=(200_000, 600_000, 1_000_000),
    backoff_s=90,
    dead_letters=50_000,
    settle_s=3.0,
    starts=5,
    overview_turns=5,
    overview_turn_s=12.0,
    spark=SparkScale(
        read_1kb=4_000_000,
        read_100b=10_000_000,
        client_messages=1_000_000,
        written=2_000_000,
        sent_async=1_000_000,
        send_s=10.0,
        latency_warmup_s=20.0,
        latency_s=60.0,
        idle_used_s=10.0,
        idle_settle_s=20.0,
        idle_s=30.0,
    ),
    failed_messages=FailedMessagesScale(processed=2_000_000, redriven=300_000, queried=1_000_000, archived=1_000_000),
)
QUICK = Scale(
    topics=(1_000, 2_000, 4_000),
    backlogs=(1_000_000, 2_000_000, 3_000_000),
    failed=(100_000, 200_000),
    backoff_s=20,
    dead_letters=20_000,
    settle_s=1.0,
    starts=3,
    overview_turns=3,
    overview_turn_s=6.0,
    spark=SparkScale(
        read_1kb=1_000_000,
        read_100b=2_000_000,
        client_messages=200_000,
        written=500_000,
        sent_async=200_000,
        send_s=3.0,
        latency_warmup_s=5.0,
        latency_s=15.0,
        idle_used_s=5.0,
        idle_settle_s=5.0,
        idle_s=10.0,
    ),
    failed_messages=FailedMessagesScale(processed=600_000, redriven=100_000, queried=200_000, archived=300_000),
)


def topics(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """For each size, an empty broker: memory with all topics connected, then the restart with its data."""
    values: Values = {}
    for count in scale.topics:
        memory_kb, used_s = _memory_per_topic(contestant, count, scale)
        start_s, again_s = _start_with_topics(contestant, count, scale)
        values |= {f"topics-memory {count}": memory_kb, f"topics-start {count}": start_s}
        log(
            f"{contestant.name}: {count:,} topics created and used in {used_s:.1f} s, {memory_kb:.2f} KB each, "
            f"start {start_s:.2f} s, all used again in {again_s:.1f} s"
        )
    return values


def _memory_per_topic(contestant: Contestant, count: int, scale: Scale) -> tuple[float, float]:
    """KB per topic above the memory of the empty process, and the time to use all topics."""
    with contestant.started() as broker:
        time.sleep(scale.settle_s)
        empty_mb = broker.memory_mb()
        with RawConnection(broker.port) as connection:
            used_s = use_topics(connection, count)
            time.sleep(scale.settle_s)
            return (broker.memory_mb() - empty_mb) * KB_PER_MB / count, used_s


def _start_with_topics(contestant: Contestant, count: int, scale: Scale) -> tuple[float, float]:
    """The best of several starts until the binary port serves, since noise only adds; and the time to use all topics
    again.
    """
    starts_s = []
    again_s = 0.0
    for _ in range(scale.starts):
        with contestant.started(keep_data=True) as broker:
            starts_s.append(broker.binary_s)
            if len(starts_s) == scale.starts:
                with RawConnection(broker.port) as connection:
                    again_s = use_topics(connection, count)
    return min(starts_s), again_s


def use_topics(connection: RawConnection, count: int) -> float:
    """Creates a producer and a subscription per topic and sends one message through each. All stay connected."""
    began = time.monotonic()
    answers = connection.answers()
    blob = build_blob(MessageMetadata(producer_name="bench", sequence_id=0, publish_time=0), b"a message")
    for start in range(0, count, _TOPICS_AT_A_TIME):
        ids = range(start, min(start + _TOPICS_AT_A_TIME, count))
        connection.send(b"".join(open_producer(each, f"many-{each}") + subscribe(each, f"many-{each}") for each in ids))
        expect(answers, {BaseCommand.PRODUCER_SUCCESS: len(ids), BaseCommand.SUCCESS: len(ids)})
        connection.send(b"".join(grant(each, 10) + send_entry(each, 0, 1, blob) for each in ids))
        came = expect(answers, {BaseCommand.SEND_RECEIPT: len(ids), BaseCommand.MESSAGE: len(ids)})
        messages = [command.message for command, _ in came if command.type == BaseCommand.MESSAGE]
        connection.send(b"".join(_ack(each.consumer_id, each.message_id) for each in messages))
        expect(answers, {BaseCommand.ACK_RESPONSE: len(ids)})
    return time.monotonic() - began


def backlog(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Memory while an unread subscription grows, then the time to read its first messages."""
    values: Values = {}
    with contestant.started() as broker:
        writer = _BacklogWriter(broker)
        for count in scale.backlogs:
            began = time.monotonic()
            writer.publish_until(count - _LOOKED_AT_MESSAGES)
            values[f"backlog-memory {count}"] = memory_mb = _mean_memory_mb(writer, count)
            took_s = time.monotonic() - began
            log(f"{contestant.name}: backlog of {count:,} messages after another {took_s:.1f} s, {memory_mb:.1f} MB")
        values["backlog-first"] = first_ms = _read_first(broker)
        log(f"{contestant.name}: first {_FIRST_MESSAGES} messages read in {first_ms:.1f} ms")
    return values


def _mean_memory_mb(writer: _BacklogWriter, count: int) -> float:
    """Mean over the last messages: storage fills and empties a buffer, so a single sample depends on the moment."""
    step = _LOOKED_AT_MESSAGES // _LOOKS
    samples_mb = []
    for number in range(count - _LOOKED_AT_MESSAGES + step, count + 1, step):
        writer.publish_until(number)
        samples_mb.append(writer.broker.memory_mb())
    return sum(samples_mb) / len(samples_mb)


class _BacklogWriter:
    """Publishes batches to one topic, after creating its subscription."""

    def __init__(self, broker: Running) -> None:
        self.broker = broker
        self._entries = 0
        self._blobs = [_batch_blob() for _ in range(_DIFFERENT_ENTRIES)]

    def publish_until(self, messages: int) -> None:
        """Returns when all messages are acknowledged and all connections closed."""
        end = messages // _BATCH_MESSAGES
        with RawConnection(self.broker.port) as connection:
            answers = connection.answers()
            connection.send(subscribe(0, "long") + open_producer(0, "long"))
            expect(answers, {BaseCommand.SUCCESS: 1, BaseCommand.PRODUCER_SUCCESS: 1})
            under_way = 0
            while self._entries < end:
                numbers = range(self._entries, min(self._entries + _ENTRIES_AT_A_TIME, end))
                connection.send(b"".join(self._send(each) for each in numbers))
                self._entries = numbers.stop
                under_way += len(numbers)
                if under_way > _ENTRIES_UNDER_WAY_MAX:
                    expect(answers, {BaseCommand.SEND_RECEIPT: under_way - _ENTRIES_UNDER_WAY_MAX})
                    under_way = _ENTRIES_UNDER_WAY_MAX
            expect(answers, {BaseCommand.SEND_RECEIPT: under_way})

    def _send(self, number: int) -> bytes:
        return send_entry(0, number, _BATCH_MESSAGES, self._blobs[number % _DIFFERENT_ENTRIES])


def _batch_blob() -> bytes:
    messages = [(SingleMessageMetadata(), os.urandom(_BATCH_MESSAGE_SIZE)) for _ in range(_BATCH_MESSAGES)]
    metadata = MessageMetadata(
        producer_name="bench", sequence_id=0, publish_time=0, num_messages_in_batch=_BATCH_MESSAGES
    )
    return build_blob(metadata, build_batch(messages))


def _read_first(broker: Running) -> float:
    """Milliseconds from SUBSCRIBE to the first messages, which must be the oldest."""
    entries = _FIRST_MESSAGES // _BATCH_MESSAGES
    with RawConnection(broker.port) as connection:
        answers = connection.answers()
        began = time.monotonic()
        connection.send(subscribe(0, "long"))
        expect(answers, {BaseCommand.SUCCESS: 1})
        connection.send(grant(0, _FIRST_MESSAGES))
        came = expect(answers, {BaseCommand.MESSAGE: entries})
        took_ms = (time.monotonic() - began) * 1000
    numbers = [command.message.message_id.entryId for command, _ in came]
    messages = sum(1 for _, blob in came if blob is not None for _ in messages_of(*split_blob(blob)))
    if numbers != list(range(entries)) or messages != _FIRST_MESSAGES:
        raise ScaleFailed(
            f"the backlog begins with entries {numbers} of {messages} messages, expected the first {entries}"
        )
    return took_ms


def expect(answers: Iterator[Frame], wanted: dict[int, int]) -> Sequence[Frame]:
    """Reads this many frames of each type, in any order; any other frame is an error."""
    missing = dict(wanted)
    came = []
    while any(missing.values()):
        frame = next(answers)
        kind = frame[0].type
        if not missing.get(kind):
            raise ScaleFailed(f"unexpected {BaseCommand.Type.Name(kind)} from the broker: {frame[0]}".strip())
        missing[kind] -= 1
        came.append(frame)
    return came


def topic_name(name: str) -> str:
    return f"persistent://public/default/bench-{name}"


def open_producer(number: int, topic: str) -> bytes:
    command = CommandProducer(topic=topic_name(topic), producer_id=number, request_id=2 * number)
    return encode_frame(BaseCommand(type=BaseCommand.PRODUCER, producer=command))


def subscribe(number: int, topic: str, type: CommandSubscribe.SubType.ValueType = CommandSubscribe.Exclusive) -> bytes:
    command = CommandSubscribe(
        topic=topic_name(topic),
        subscription=SUBSCRIPTION,
        subType=type,
        consumer_id=number,
        request_id=2 * number + 1,
        initialPosition=CommandSubscribe.Earliest,
    )
    return encode_frame(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=command))


def grant(number: int, permits: int) -> bytes:
    command = CommandFlow(consumer_id=number, messagePermits=permits)
    return encode_frame(BaseCommand(type=BaseCommand.FLOW, flow=command))


def send_entry(number: int, sequence_id: int, messages: int, blob: bytes) -> bytes:
    command = CommandSend(producer_id=number, sequence_id=sequence_id, num_messages=messages)
    return encode_frame_with_blob(BaseCommand(type=BaseCommand.SEND, send=command), blob)


def _ack(number: int, message_id: MessageIdData) -> bytes:
    command = CommandAck(
        consumer_id=number, ack_type=CommandAck.Individual, message_id=[message_id], request_id=2 * number
    )
    return encode_frame(BaseCommand(type=BaseCommand.ACK, ack=command))


Measure = Callable[[Contestant, Scale, Log], Values]

OURS_ONLY: dict[str, Measure] = {"topics": topics, "backlog": backlog}
