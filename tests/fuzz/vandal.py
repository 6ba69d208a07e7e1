"""A vandal: frames and whole conversations of a hostile client, by command, from a seeded source.

Most of a conversation is right, so that it gets somewhere: ids exist, topics are there, messages were delivered. Knows
no broker; `known` has the names and ids that the broker's side prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import google_crc32c

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.frames import encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob

from .wire_message import MessageMaker, Value, delimited, varint

Command = pb.BaseCommand
CommandType = Command.Type.ValueType
COMMANDS: tuple[CommandType, ...] = tuple(Command.Type.values())
SIZE_MAX = 200_000  # of a hostile frame: larger ones cost time and show nothing new
_FIELD = {field.number: field for field in Command.DESCRIPTOR.fields}
RECORD = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'

# What a field of this name may hold in a right request.
PLAUSIBLE: dict[str, tuple[Value, ...]] = {
    "topic": (b"persistent://public/default/t", b"t", b"t", b"t", b"t-s-DLQ", b"t-s-RETRY", b"p-partition-0", b"new"),
    "namespace": (b"public/default", b"public"),
    "subscription": (b"s", b"f", b"k", b"new", b"new"),
    "initial_subscription_name": (b"s", b"new"),
    "request_id": (11, 12, 13),
    "producer_id": (1,),
    "consumer_id": (1,),
    "ledgerId": (1, 2, 3, 4, 5, 6, 7, 8),
    "entryId": (0, 1, 2, 3, (1 << 63) - 1, (1 << 64) - 1),
    "partition": (-1, 0),
    "batch_index": (-1, 0, 1, 2, 99_999),
    "batch_size": (0, 3),
    "ack_set": (0, 1, 5, -1),
    "messagePermits": (1, 10, 1000),
    "protocol_version": (21, 15),
    "client_version": (b"vandal",),
    "producer_name": (b"p", b"q", b"magnetar.repl.x/t/1", b"pulsar.repl.west-->standalone"),
    "consumer_name": (b"a", b"b", b"c"),
    "sequence_id": (0, 1, 2, 3),
    "highest_sequence_id": (0, 3),
    "num_messages": (1, 1, 3),
    "num_messages_in_batch": (1, 3),
    "publish_time": (1_800_000_000_000,),
    "deliver_at_time": (1_800_000_000_500, 1, -1),
    "uncompressed_size": (3, 100),
    "topic_epoch": (0, 1),
    "epoch": (0, 1),
    "consumer_epoch": (0, 1),
    "schema_data": (RECORD, b"", b'"string"', b"{"),
    "schema_version": (bytes(8), bytes(7) + b"\1"),
    "key": (b"a", b"b", b"c", b"d", b"magnetar.way", b"deadLetterPolicy.maxRedeliverCount"),
    "value": (b"1", b"2"),
    "type": (0, 1, 2, 4, 4, 4),
    "partition_key": (b"k1", b"k2", b"azE="),
    "ordering_key": (b"k1", b"k3"),
    "start": (0, 100, 40_000),
    "end": (99, 200, 65_535),
    "payload_size": (0, 1, 3),
    "topics_pattern": (b".*", b"public/default/t.*"),
}
# A prelude has used the first ones: new producers and consumers need others.
_NEW_IDS: dict[CommandType, dict[str, tuple[Value, ...]]] = {
    Command.PRODUCER: {"producer_id": (2, 3, 4, 5)},
    Command.SUBSCRIBE: {"consumer_id": (2, 3, 4, 5), "subType": (1, 1, 2, 2, 3, 3, 0)},
}


def frame_of(body: bytes, blob: bytes = b"") -> bytes:
    return (4 + len(body) + len(blob)).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body + blob


def with_checksum(rest: bytes) -> bytes:
    checksum: int = google_crc32c.value(rest)
    return b"\x0e\x01" + checksum.to_bytes(4, "big") + rest


class Vandal:
    """`known` replaces plausible values by field name."""

    def __init__(self, rng: Random, known: Mapping[str, Sequence[Value]] | None = None) -> None:
        self.rng = rng
        self._known = {**PLAUSIBLE, **(known or {})}

    # -- hostile frames

    def frame(self, kind: CommandType) -> bytes:
        """A frame of this command, with some or many fields wrong."""
        rng = self.rng
        maker = self._maker(_NEW_IDS.get(kind, {}))
        field = _FIELD.get(kind)
        if field is None or field.message_type is None:
            return frame_of(varint(1, kind))
        content = maker.message(field.message_type)
        body = varint(1, kind) + delimited(field.number, content)
        if rng.random() < 0.02:
            body = rng.choice((varint(1, kind), delimited(field.number, content), body[:-1], varint(1, 99) + body))
        blob = self.blob() if kind in (Command.SEND, Command.MESSAGE) or rng.random() < 0.02 else b""
        made = frame_of(body, blob)
        if rng.random() < 0.02:  # sizes that are not those of the frame
            at = rng.choice((0, 4))
            made = made[:at] + rng.choice((0, 3, len(made), 1 << 31, (1 << 32) - 1)).to_bytes(4, "big") + made[at + 4 :]
        return made

    def any_frame(self) -> bytes:
        return self.frame(self.rng.choice(COMMANDS))

    def blob(self) -> bytes:
        """The blob of a SEND: hostile metadata, a hostile batch, or neither."""
        rng = self.rng
        if rng.random() < 0.1:
            return rng.randbytes(rng.choice((0, 1, 5, 40)))
        payload, messages = self._payload()
        given: dict[str, Any] = {} if messages is None else {"num_messages_in_batch": messages}
        compression = rng.choice((pb.NONE, pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY))
        if compression != pb.NONE and rng.random() < 0.8:
            given |= {"compression": compression, "uncompressed_size": len(payload)}
            payload = compress(compression, payload)
        metadata = self._maker().message(pb.MessageMetadata.DESCRIPTOR, **given)
        size = len(metadata) if rng.random() < 0.97 else rng.choice((0, len(metadata) + 9, (1 << 32) - 1))
        made = with_checksum(size.to_bytes(4, "big") + metadata + payload)
        if rng.random() < 0.05:
            broker_entry = self._maker().message(pb.BrokerEntryMetadata.DESCRIPTOR)
            made = b"\x0e\x02" + len(broker_entry).to_bytes(4, "big") + broker_entry + made
        return made if rng.random() < 0.97 else made[:-1]

    def _payload(self) -> tuple[bytes, int | None]:
        """The uncompressed payload, and the number of messages if it is a batch."""
        rng = self.rng
        if rng.random() < 0.5:
            return rng.randbytes(rng.choice((0, 1, 3, 100))), None
        count = rng.choice((1, 3, 3, 10, 1000))
        maker = self._maker()
        parts: list[bytes] = []
        for _ in range(count):
            content = rng.randbytes(rng.choice((0, 1, 3)))
            single = maker.message(pb.SingleMessageMetadata.DESCRIPTOR, payload_size=len(content))
            parts += (len(single).to_bytes(4, "big"), single, content)
            if sum(map(len, parts[-3:])) * count > SIZE_MAX:
                count = len(parts) // 3
                break
        announced = count if rng.random() < 0.9 else rng.choice((0, -1, count + 1, 100_000, (1 << 31) - 1))
        return b"".join(parts), announced

    def _maker(self, known: Mapping[str, Sequence[Value]] | None = None) -> MessageMaker:
        wrong = self.rng.choice((0, 0.02, 0.02, 0.05, 0.05, 0.1, 0.3, 1))
        return MessageMaker(self.rng, {**self._known, **(known or {})}, wrong=wrong, size_max=SIZE_MAX)

    # -- conversations

    def conversation(self, kind: CommandType) -> list[bytes]:
        """A client that connects, produces and consumes, and then sends hostile frames of one command."""
        rng = self.rng
        frames: list[bytes] = [] if kind == Command.CONNECT and rng.random() < 0.7 else [CONNECT]
        if rng.random() < 0.9:
            frames += self._prelude()
        frames += [self.frame(kind) for _ in range(rng.choice((1, 1, 2, 5)))]
        if rng.random() < 0.5:
            frames += self._epilogue()
        return frames

    def _topic(self) -> str:
        topic = self.rng.choice(self._known["topic"])
        assert isinstance(topic, bytes)
        return topic.decode()

    def _prelude(self) -> list[bytes]:
        rng = self.rng
        topic = self._topic()
        frames = [
            subscribe(topic, "s", sub_type=rng.randint(0, 3), dead_letters=rng.random() < 0.3),
            flow(1, rng.choice((1, 10, 1000))),
            produce(topic),
        ]
        frames += [good_send(number, batch=rng.choice((0, 0, 3))) for number in range(rng.randint(0, 4))]
        return frames

    def _epilogue(self) -> list[bytes]:
        rng = self.rng
        choices = (redeliver_all(), flow(1, 100), self.frame(Command.ACK), self.frame(Command.SEND), self.any_frame())
        return [rng.choice(choices) for _ in range(rng.randint(1, 4))]


# -- right frames

CONNECT = encode_frame(
    Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="vandal", protocol_version=21))
)


def produce(topic: str, producer_id: int = 1, **options: Any) -> bytes:
    producer = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=1, **options)
    return encode_frame(Command(type=Command.PRODUCER, producer=producer))


def subscribe(
    topic: str,
    subscription: str,
    consumer_id: int = 1,
    *,
    sub_type: int = 1,
    dead_letters: bool = False,
    **options: Any,
) -> bytes:
    request = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=sub_type,  # type: ignore[arg-type]
        consumer_id=consumer_id,
        request_id=2,
        initialPosition=pb.CommandSubscribe.Earliest,
        **options,
    )
    if dead_letters:
        request.metadata.add(key="deadLetterPolicy.maxRedeliverCount", value="1")
    return encode_frame(Command(type=Command.SUBSCRIBE, subscribe=request))


def flow(consumer_id: int, permits: int) -> bytes:
    return encode_frame(
        Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))
    )


def redeliver_all(consumer_id: int = 1) -> bytes:
    command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
    return encode_frame(
        Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)
    )


def send(sequence_id: int, blob: bytes, producer_id: int = 1, messages: int = 1) -> bytes:
    command = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=messages)
    return encode_frame_with_blob(Command(type=Command.SEND, send=command), blob)


def good_send(sequence_id: int, batch: int = 0, producer_id: int = 1) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_800_000_000_000)
    metadata.partition_key = f"k{sequence_id % 3}"
    payload = b"payload"
    if batch:
        metadata.num_messages_in_batch = batch
        payload = build_batch([(pb.SingleMessageMetadata(partition_key=f"k{n}"), b"m") for n in range(batch)])
    return send(sequence_id, build_blob(metadata, payload), producer_id, messages=batch or 1)
