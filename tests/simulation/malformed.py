"""Malformed input: the broker rejects it or disconnects its sender, without effect on other clients."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import google_crc32c

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob

Command = pb.BaseCommand
_PRODUCER_ID = 7


def malformed_input(rng: Random, topics: Sequence[str], is_new: bool) -> tuple[str, bytes]:
    """A description, and the bytes."""
    if is_new and rng.random() < 0.8:
        connect = pb.CommandConnect(client_version="faulty", protocol_version=21)
        return "a CONNECT", encode_frame(Command(type=Command.CONNECT, connect=connect))
    kind = rng.randint(0, 7)
    if kind == 0:
        return "noise", rng.randbytes(rng.randint(1, 40))
    if kind == 1:
        return "an ACK for an unknown consumer", encode_frame(_ack(rng.randint(0, 3)))
    if kind == 2:
        flow = pb.CommandFlow(consumer_id=rng.randint(0, 3), messagePermits=rng.choice((0, 1, (1 << 32) - 1)))
        return "a FLOW for an unknown consumer", encode_frame(Command(type=Command.FLOW, flow=flow))
    if kind == 3:
        seek = pb.CommandSeek(consumer_id=9, request_id=1)
        return "a SEEK for an unknown consumer", encode_frame(Command(type=Command.SEEK, seek=seek))
    producer = pb.CommandProducer(topic=rng.choice(topics), producer_id=_PRODUCER_ID, request_id=1)
    opening = encode_frame(Command(type=Command.PRODUCER, producer=producer))
    send = pb.CommandSend(producer_id=_PRODUCER_ID, sequence_id=rng.randint(0, 9), num_messages=1)
    blob = _bad_blob(rng)
    return f"SEND with {blob!r}", opening + encode_frame_with_blob(Command(type=Command.SEND, send=send), blob)


def _ack(consumer_id: int) -> Command:
    ack = pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Individual, request_id=5)
    ack.message_id.add(ledgerId=1, entryId=(1 << 64) - 1)
    return Command(type=Command.ACK, ack=ack)


def _bad_blob(rng: Random) -> bytes:
    """A wrong checksum, invalid metadata or wrong sizes, some with a valid checksum."""
    kind = rng.randint(0, 3)
    good = build_blob(pb.MessageMetadata(producer_name="", sequence_id=1, publish_time=1), b"payload")
    if kind == 0:
        return good[:-1] + b"?"
    if kind == 1:
        return rng.randbytes(rng.randint(1, 30))
    if kind == 2:
        return _with_checksum((4).to_bytes(4, "big") + b"\xff\xff\xff\xff" + b"payload")
    return _with_checksum((1000).to_bytes(4, "big") + b"payload")


def _with_checksum(rest: bytes) -> bytes:
    checksum: int = google_crc32c.value(rest)
    return b"\x0e\x01" + checksum.to_bytes(4, "big") + rest
