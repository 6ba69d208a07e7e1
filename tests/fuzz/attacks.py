"""Known attacks, each a conversation that once cost other clients something: `python -m tests.fuzz.attacks` writes them
into the corpus.

A name says what it does; the folder is the command that does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.frames import encode_frame
from magnetar.wire.metadata import build_blob

from . import corpus
from .vandal import CONNECT, RECORD, Command, flow, good_send, produce, redeliver_all, send, subscribe, with_checksum

_BAD = b"\xff\xfe"
_MARK = "@@"  # written as text, then replaced by bytes of the same size that are not UTF-8
_FAILOVER, _KEY_SHARED = 2, 3
Attack = Callable[[], list[bytes]]
ATTACKS: dict[str, Attack] = {}


def _attack(name: str) -> Callable[[Attack], Attack]:
    def add(attack: Attack) -> Attack:
        ATTACKS[name] = attack
        return attack

    return add


def _bad(frame: bytes) -> bytes:
    return frame.replace(_MARK.encode(), _BAD)


def _metadata(**fields: Any) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1_800_000_000_000, **fields)


# -- text that is not UTF-8


@_attack("subscribe/property-not-utf8")
def _() -> list[bytes]:
    properties = [pb.KeyValue(key="a", value=_MARK)]
    return [CONNECT, _bad(subscribe("t", "new", subscription_properties=properties))]


@_attack("producer/schema-property-not-utf8")
def _() -> list[bytes]:
    schema = pb.Schema(name="R", schema_data=RECORD, type=pb.Schema.Avro)
    schema.properties.add(key="a", value=_MARK)
    return [CONNECT, _bad(produce("new", schema=schema))]


@_attack("subscribe/failover-name-not-utf8")
def _() -> list[bytes]:
    bad = _bad(subscribe("t", "f", 2, sub_type=_FAILOVER, consumer_name=_MARK))
    return [CONNECT, subscribe("t", "f", 1, sub_type=_FAILOVER), bad, subscribe("t", "f", 3, sub_type=_FAILOVER)]


@_attack("send/key-not-utf8")
def _() -> list[bytes]:
    bad = build_blob(_metadata(partition_key=_MARK), b"x").replace(_MARK.encode(), _BAD)
    sends = [good_send(number) if number != 3 else send(number, _with_checksum(bad)) for number in range(40)]
    return [CONNECT, subscribe("t", "k", sub_type=_KEY_SHARED), flow(1, 1000), produce("t"), *sends]


@_attack("send/key-in-batch-not-utf8")
def _() -> list[bytes]:
    batch = build_batch([(pb.SingleMessageMetadata(partition_key=_MARK), b"m"), (pb.SingleMessageMetadata(), b"m")])
    blob = build_blob(_metadata(num_messages_in_batch=2), batch).replace(_MARK.encode(), _BAD)
    frames = [CONNECT, produce("t"), send(0, _with_checksum(blob), messages=2)]
    frames += [subscribe("t", "s", dead_letters=True), subscribe("t", "other", 2), flow(1, 1000)]
    return [*frames, redeliver_all(), flow(1, 1000), redeliver_all(), flow(1, 1000), redeliver_all()]


def _with_checksum(blob: bytes) -> bytes:
    return with_checksum(blob[6:])


# -- small input, much work


@_attack("send/dead-letter-of-a-million-messages")
def _() -> list[bytes]:
    count = 1_000_000
    single = pb.SingleMessageMetadata(payload_size=0).SerializeToString()
    payload = (len(single).to_bytes(4, "big") + single) * count
    metadata = _metadata(num_messages_in_batch=count, compression=pb.ZLIB, uncompressed_size=len(payload))
    blob = build_blob(metadata, compress(pb.ZLIB, payload))
    return [CONNECT, subscribe("t", "s"), produce("t-s-DLQ"), send(0, blob)]


@_attack("redeliver_unacknowledged_messages/indexes-of-entries-not-held")
def _() -> list[bytes]:
    again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
    for entry_id in range(40_000):
        again.message_ids.add(ledgerId=_LEDGER_OF_T, entryId=entry_id, batch_index=99_999)
    command = Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=again)
    return [CONNECT, subscribe("t", "s"), encode_frame(command)]


_LEDGER_OF_T = 4  # of the prepared broker


@_attack("send/five-million-messages-in-a-byte")
def _() -> list[bytes]:
    blob = build_blob(_metadata(num_messages_in_batch=5_242_880), b"x")
    frames = [CONNECT, produce("t"), send(0, blob, messages=5_242_880)]
    frames += [subscribe("t", "s", dead_letters=True), flow(1, 1 << 30)]
    again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
    again.message_ids.add(ledgerId=_LEDGER_OF_T, entryId=5, batch_index=99_999)
    command = Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=again)
    return [*frames, *([encode_frame(command), flow(1, 1 << 30), redeliver_all(), flow(1, 1 << 30)] * 3)]


@_attack("subscribe/many-sticky-ranges")
def _() -> list[bytes]:
    meta = pb.KeySharedMeta(keySharedMode=pb.STICKY)
    for start in range(0, 65_536, 4):
        meta.hashRanges.add(start=start, end=start)
    return [CONNECT, subscribe("t", "k", sub_type=_KEY_SHARED, keySharedMeta=meta)]


@_attack("subscribe/many-failover-consumers")
def _() -> list[bytes]:
    return [CONNECT, *(subscribe("t", "f", number, sub_type=_FAILOVER) for number in range(1, 501))]


@_attack("get_or_create_schema/slow-to-compare")
def _() -> list[bytes]:
    def definition(kind: str) -> bytes:
        field = '{"name":"f%d","type":["null",{"type":"record","name":"R%d","fields":[{"name":"a","type":"%s"}]}]}'
        fields = ",".join(field % (number, number, kind) for number in range(1600))
        return f'{{"type":"record","name":"R","fields":[{fields}]}}'.encode()

    frames = [CONNECT]
    for number, kind in enumerate(("int", "long", "int")):
        schema = pb.Schema(name="R", schema_data=definition(kind), type=pb.Schema.Avro)
        create = pb.CommandGetOrCreateSchema(request_id=number, topic="new", schema=schema)
        frames.append(encode_frame(Command(type=Command.GET_OR_CREATE_SCHEMA, getOrCreateSchema=create)))
    return [CONNECT, produce("new"), *frames[1:]]


@_attack("get_schema/answers-that-are-not-read")
def _() -> list[bytes]:
    fields = ",".join(f'{{"name":"f{number}","type":"int","doc":"{"x" * 1000}"}}' for number in range(1000))
    definition = f'{{"type":"record","name":"R","fields":[{fields}]}}'.encode()
    schema = pb.Schema(name="R", schema_data=definition, type=pb.Schema.Avro)
    get = pb.CommandGetSchema(request_id=7, topic="new")
    asked = encode_frame(Command(type=Command.GET_SCHEMA, getSchema=get))
    return [CONNECT, produce("new", schema=schema), *([asked] * 1000)]


# -- numbers and sizes


@_attack("producer/largest-topic-epoch")
def _() -> list[bytes]:
    close = pb.CommandCloseProducer(producer_id=1, request_id=9)
    closing = encode_frame(Command(type=Command.CLOSE_PRODUCER, close_producer=close))
    first = produce("t", producer_access_mode=pb.ProducerAccessMode.Exclusive, topic_epoch=(1 << 64) - 1)
    return [CONNECT, first, closing, produce("t", producer_access_mode=pb.ProducerAccessMode.Exclusive)]


@_attack("send/sequence-id-beyond-63-bits")
def _() -> list[bytes]:
    blob = build_blob(_metadata(), b"x")
    return [CONNECT, produce("t", producer_name="p"), send(1 << 63, blob), produce("t", 2, producer_name="q")]


@_attack("producer/names-of-four-megabytes")
def _() -> list[bytes]:
    long = "x" * (4 << 20)
    named = produce("t", 2, producer_name=long)
    return [CONNECT, produce("t", 1, initial_subscription_name=long), named, good_send(0, producer_id=2)]


@_attack("subscribe/properties-of-four-megabytes")
def _() -> list[bytes]:
    properties = [pb.KeyValue(key="a", value="x" * (4 << 20))]
    return [CONNECT, subscribe("t", "new", subscription_properties=properties)]


@_attack("ack/empty-ids")
def _() -> list[bytes]:
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=7)
    for _ in range(800_000):
        ack.message_id.add(ledgerId=0, entryId=0)
    return [CONNECT, subscribe("t", "s"), encode_frame(Command(type=Command.ACK, ack=ack))]


def written() -> Iterator[str]:
    for name, attack in ATTACKS.items():
        folder, _, file = name.partition("/")
        yield str(corpus.add(folder, b"".join(attack()), file))


if __name__ == "__main__":
    for path in written():
        print(path)
