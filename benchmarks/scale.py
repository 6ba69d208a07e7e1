"""What is measured on Magnetar alone: many topics, and a long backlog.

The load is raw frames, many under way at a time, so that it takes seconds and the broker is what is seen. A row returns
one value per size, under the key "row size". Does not know pulsar-perf or how the values are judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from contestant import Contestant, Running
from conversation import Conversation

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
_DIFFERENT_ENTRIES = 256  # more than the window of LZ4 holds: a repeated entry must not become a small one
_LOOKED_AT_MESSAGES = 500_000  # 55 MB of entries: about once round the buffers of storage
_LOOKS = 10
_FIRST_MESSAGES = 100

Values = dict[str, float]
Say = Callable[[str], None]


class ScaleFailed(Exception):
    """The broker answered otherwise than it should."""


@dataclass(frozen=True, slots=True)
class SparkScale:
    """The same for the rows of Spark."""

    read_1kb: int  # messages
    read_100b: int
    client_messages: int  # of these, that the Python client reads: it goes on at the same rate
    written: int  # rows
    sent_async: int
    send_s: float
    latency_warmup_s: float
    latency_s: float
    idle_used_s: float
    idle_settle_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class Scale:
    """How large it gets, and how exactly it is looked at."""

    topics: tuple[int, ...]
    backlogs: tuple[int, ...]  # messages
    failed: tuple[int, ...]  # messages that wait for their redelivery
    rest_s: int  # how long those wait: longer than it takes until all have failed
    letters: int
    settle_s: float
    starts: int
    spark: SparkScale


FULL = Scale(
    topics=(1_000, 5_000, 10_000),
    backlogs=(1_000_000, 5_000_000, 10_000_000),
    failed=(200_000, 600_000, 1_000_000),
    rest_s=90,
    letters=50_000,
    settle_s=3.0,
    starts=5,
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
)
QUICK = Scale(
    topics=(1_000, 2_000, 4_000),
    backlogs=(1_000_000, 2_000_000, 3_000_000),
    failed=(100_000, 200_000),
    rest_s=20,
    letters=20_000,
    settle_s=1.0,
    starts=3,
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
)


def topics(contestant: Contestant, scale: Scale, say: Say) -> Values:
    """For each size an empty broker: memory while all are connected, then the start with what it kept."""
    values: Values = {}
    for count in scale.topics:
        memory_kb, used_s = _memory_per_topic(contestant, count, scale)
        start_s, again_s = _start_with_topics(contestant, count, scale)
        values |= {f"topics-memory {count}": memory_kb, f"topics-start {count}": start_s}
        say(
            f"{contestant.name}: {count:,} topics made and used in {used_s:.1f} s, {memory_kb:.2f} KB each, "
            f"start {start_s:.2f} s, all used again in {again_s:.1f} s"
        )
    return values


def _memory_per_topic(contestant: Contestant, count: int, scale: Scale) -> tuple[float, float]:
    """KB per topic, above the memory of the same process when it was empty; and how long it took to use all."""
    with contestant.started() as broker:
        time.sleep(scale.settle_s)
        empty_mb = broker.memory_mb()
        with Conversation(broker.port) as conversation:
            used_s = use_topics(conversation, count)
            time.sleep(scale.settle_s)
            return (broker.memory_mb() - empty_mb) * KB_PER_MB / count, used_s


def _start_with_topics(contestant: Contestant, count: int, scale: Scale) -> tuple[float, float]:
    """The best of some starts until the binary port serves, as noise only adds; and the time to use all again."""
    starts_s = []
    again_s = 0.0
    for _ in range(scale.starts):
        with contestant.started(keep_data=True) as broker:
            starts_s.append(broker.binary_s)
            if len(starts_s) == scale.starts:
                with Conversation(broker.port) as conversation:
                    again_s = use_topics(conversation, count)
    return min(starts_s), again_s


def use_topics(conversation: Conversation, count: int) -> float:
    """A producer and a subscription on every topic, and one message through each, acknowledged. All stay connected."""
    began = time.monotonic()
    answers = conversation.answers()
    blob = build_blob(MessageMetadata(producer_name="bench", sequence_id=0, publish_time=0), b"a message")
    for start in range(0, count, _TOPICS_AT_A_TIME):
        ids = range(start, min(start + _TOPICS_AT_A_TIME, count))
        conversation.send(
            b"".join(open_producer(each, f"many-{each}") + subscribe(each, f"many-{each}") for each in ids)
        )
        expect(answers, {BaseCommand.PRODUCER_SUCCESS: len(ids), BaseCommand.SUCCESS: len(ids)})
        conversation.send(b"".join(grant(each, 10) + send_entry(each, 0, 1, blob) for each in ids))
        came = expect(answers, {BaseCommand.SEND_RECEIPT: len(ids), BaseCommand.MESSAGE: len(ids)})
        messages = [command.message for command, _ in came if command.type == BaseCommand.MESSAGE]
        conversation.send(b"".join(_ack(each.consumer_id, each.message_id) for each in messages))
        expect(answers, {BaseCommand.ACK_RESPONSE: len(ids)})
    return time.monotonic() - began


def backlog(contestant: Contestant, scale: Scale, say: Say) -> Values:
    """Memory while a subscription that nobody reads grows, then the first messages of it."""
    values: Values = {}
    with contestant.started() as broker:
        writer = _BacklogWriter(broker)
        for count in scale.backlogs:
            began = time.monotonic()
            writer.publish_until(count - _LOOKED_AT_MESSAGES)
            values[f"backlog-memory {count}"] = memory_mb = _mean_memory_mb(writer, count)
            took_s = time.monotonic() - began
            say(f"{contestant.name}: backlog of {count:,} messages after {took_s:.1f} s more, {memory_mb:.1f} MB")
        values["backlog-first"] = first_ms = _read_first(broker)
        say(f"{contestant.name}: its first {_FIRST_MESSAGES} messages read in {first_ms:.1f} ms")
    return values


def _mean_memory_mb(writer: _BacklogWriter, count: int) -> float:
    """The mean over the last messages: storage fills a buffer and empties it, a single look depends on the moment."""
    step = _LOOKED_AT_MESSAGES // _LOOKS
    samples_mb = []
    for number in range(count - _LOOKED_AT_MESSAGES + step, count + 1, step):
        writer.publish_until(number)
        samples_mb.append(writer.broker.memory_mb())
    return sum(samples_mb) / len(samples_mb)


class _BacklogWriter:
    """Publishes batches to one topic, whose subscription it makes before the first."""

    def __init__(self, broker: Running) -> None:
        self.broker = broker
        self._entries = 0
        self._blobs = [_batch_blob() for _ in range(_DIFFERENT_ENTRIES)]

    def publish_until(self, messages: int) -> None:
        """Returns when all of them are acknowledged, and with nobody connected."""
        end = messages // _BATCH_MESSAGES
        with Conversation(self.broker.port) as conversation:
            answers = conversation.answers()
            conversation.send(subscribe(0, "long") + open_producer(0, "long"))
            expect(answers, {BaseCommand.SUCCESS: 1, BaseCommand.PRODUCER_SUCCESS: 1})
            under_way = 0
            while self._entries < end:
                numbers = range(self._entries, min(self._entries + _ENTRIES_AT_A_TIME, end))
                conversation.send(b"".join(self._send(each) for each in numbers))
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
    """Milliseconds from SUBSCRIBE to the first messages, which have to be the oldest."""
    entries = _FIRST_MESSAGES // _BATCH_MESSAGES
    with Conversation(broker.port) as conversation:
        answers = conversation.answers()
        began = time.monotonic()
        conversation.send(subscribe(0, "long"))
        expect(answers, {BaseCommand.SUCCESS: 1})
        conversation.send(grant(0, _FIRST_MESSAGES))
        came = expect(answers, {BaseCommand.MESSAGE: entries})
        took_ms = (time.monotonic() - began) * 1000
    numbers = [command.message.message_id.entryId for command, _ in came]
    messages = sum(len(messages_of(*split_blob(blob))) for _, blob in came if blob is not None)
    if numbers != list(range(entries)) or messages != _FIRST_MESSAGES:
        raise ScaleFailed(
            f"the backlog begins with entries {numbers} of {messages} messages, wanted the first {entries}"
        )
    return took_ms


def expect(answers: Iterator[Frame], wanted: dict[int, int]) -> Sequence[Frame]:
    """That many frames of each type, in any order; anything else is an error."""
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


Measure = Callable[[Contestant, Scale, Say], Values]

OURS_ONLY: dict[str, Measure] = {"topics": topics, "backlog": backlog}
