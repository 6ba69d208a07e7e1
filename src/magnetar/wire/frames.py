"""Frames: bytes from a connection become commands, commands become bytes.

Owns the outer layout and the two commands that are encoded by hand because they go out once per message.
Knows nothing of sockets, of the state of a session, or of what is inside a blob (see `metadata`).

    ┌────────────┬──────────────┬─────────────┬───────────────────────────────────────────────┐
    │ total size │ command size │ BaseCommand │ blob: only after SEND and MESSAGE             │
    │ u32        │ u32          │ protobuf    │ [0x0e02 …] [0x0e01 crc32c] metadata, payload  │
    └────────────┴──────────────┴─────────────┴───────────────────────────────────────────────┘

The total counts everything after itself; integers are big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from google.protobuf.message import DecodeError

from magnetar.wire.schema_pb2 import BaseCommand, CommandPing, CommandPong

# A command and its blob. No command: the one before it of the kind that is followed (see `FrameDecoder`) once more,
# with the next sequence id or entry id and a blob of its own.
Frame = tuple[BaseCommand | None, bytes | None]

_U32 = Struct(">I")
_SIZES = Struct(">II")

_FIELD_OF_TYPE = {field.number: field.name for field in BaseCommand.DESCRIPTOR.fields}

# Not examined for missing fields: too frequent for a check that takes longer than the parsing itself
# (absent ids read as 0 and miss in the session's tables), or without any content.
_UNEXAMINED = frozenset(
    (
        BaseCommand.SEND,
        BaseCommand.SEND_RECEIPT,
        BaseCommand.MESSAGE,
        BaseCommand.ACK,
        BaseCommand.FLOW,
        BaseCommand.PING,
        BaseCommand.PONG,
    )
)


class FrameError(ValueError):
    """The bytes are not a frame of the protocol; nothing after them on the connection can be understood."""


class FrameDecoder:
    """Bytes in, frames out, whatever the pieces they arrive in.

    A bad frame does not hide the good ones before it: they are returned, `error` is set, and all later data is ignored.

    A producer that does not batch sends the same command again and again, with the next sequence id, and so does a
    broker that sends entries, with the next entry id: comparing it with what is expected takes a third of the time of
    parsing it and asking for its fields. `followed` is which of the two is expected.
    """

    __slots__ = ("_followed", "_frame_size_max", "_missing_size", "_next", "_pieces", "error")

    def __init__(self, frame_size_max: int, *, followed: BaseCommand.Type.ValueType = BaseCommand.SEND) -> None:
        self._frame_size_max = frame_size_max
        # The start of an unfinished frame. The pieces are joined when they are complete and not before:
        # a large frame is copied once, not once per read.
        self._pieces: list[bytes] = []
        self._missing_size = 0
        self._followed = followed
        self._next: _NextSend | _NextMessage = _NextMessage() if followed == BaseCommand.MESSAGE else _NextSend()
        self.error: FrameError | None = None

    def receive_data(self, data: bytes) -> list[Frame]:
        # The hottest loop of the program: one function, locals only, and no copy of the rest of the read.
        frames: list[Frame] = []
        if self.error is not None:
            return frames
        pieces = self._pieces
        if pieces:
            pieces.append(data)
            self._missing_size -= len(data)
            if self._missing_size > 0:
                return frames
            data = b"".join(pieces)
            pieces.clear()

        parse = BaseCommand.FromString
        unpack_sizes = _SIZES.unpack_from
        append = frames.append
        unexamined = _UNEXAMINED
        followed = self._followed
        expected = self._next
        frame_size_max = self._frame_size_max
        start = 0
        end = len(data)
        wanted = 8
        try:
            while end - start >= 8:
                total_size, command_size = unpack_sizes(data, start)
                if total_size > frame_size_max:
                    raise FrameError(f"frame of {total_size} bytes exceeds the limit of {frame_size_max} bytes")
                command_end = start + 8 + command_size
                frame_end = start + 4 + total_size
                if command_end > frame_end:
                    raise FrameError(_size_fault(total_size, command_size))
                if frame_end > end:
                    wanted = 4 + total_size
                    break
                body = data[start + 8 : command_end]
                if body == expected.body:
                    expected.advance()
                    append((None, data[command_end:frame_end] if frame_end > command_end else None))
                    start = frame_end
                    continue
                command = parse(body)
                if command.type not in unexamined:
                    fault = _command_fault(command)
                    if fault:
                        raise FrameError(fault)
                elif command.type == followed:
                    expected.follow(command, body)
                append((command, data[command_end:frame_end] if frame_end > command_end else None))
                start = frame_end
        except DecodeError:
            self.error = FrameError(f"command of {command_size} bytes is not a protobuf BaseCommand")
        except FrameError as error:
            self.error = error
        else:
            if start < end:
                pieces.append(data[start:])
                self._missing_size = wanted - (end - start)
        return frames


class _NextSend:
    """The bytes of the SEND that is expected next on a connection.

    None is expected unless the last two were of one producer and the last had no field but the two that differ.
    """

    __slots__ = ("_head", "_producer_id", "_sequence_id", "body")

    def __init__(self) -> None:
        self.body: bytes | None = None
        self._head = b""
        self._producer_id = -1
        self._sequence_id = 0

    def follow(self, command: BaseCommand, body: bytes) -> None:
        self.body = None
        send = command.send
        producer_id, sequence_id = send.producer_id, send.sequence_id
        if producer_id != self._producer_id:
            self._producer_id = producer_id
        elif sequence_id < _SEQUENCE_FOLLOWED_MAX:
            sequence = encode_varint(sequence_id)
            fields = b"".join((b"\x08", encode_varint(producer_id), b"\x10"))
            self._head = b"".join((_TYPE_SEND, _TAG_SEND, _LAST[len(fields) + len(sequence)], fields))
            if self._head + sequence == body:
                self._sequence_id = sequence_id
                self.advance()

    def advance(self) -> None:
        self._sequence_id += 1
        # The length of the sequence id is part of the head: where it grows, nothing matches and the command is parsed.
        self.body = self._head + encode_varint(self._sequence_id)


class _NextMessage:
    """The bytes of the MESSAGE that is expected next: those of the last with the next entry id.

    None is expected unless the last two were for one consumer.
    """

    __slots__ = ("_consumer_id", "_entry_id", "_entry_size", "_head", "_tail", "body")

    def __init__(self) -> None:
        self.body: bytes | None = None
        self._head = b""
        self._tail = b""
        self._consumer_id = -1
        self._entry_id = 0
        self._entry_size = 0

    def follow(self, command: BaseCommand, body: bytes) -> None:
        self.body = None
        message = command.message
        if message.consumer_id != self._consumer_id:
            self._consumer_id = message.consumer_id
            return
        self._entry_id = message.message_id.entryId
        if self._entry_id >= _SEQUENCE_FOLLOWED_MAX:
            return
        entry = encode_varint(self._entry_id)
        ledger = b"".join((b"\x08", encode_varint(message.message_id.ledgerId), b"\x10"))
        start = body.find(ledger + entry) + len(ledger)
        if start >= len(ledger):
            self._head, self._tail = body[:start], body[start + len(entry) :]
            self._entry_size = len(entry)
            following = self._following()
            # These bytes may have been something else by chance.
            self.body = following if following is not None and _is_next(command, following) else None

    def advance(self) -> None:
        self.body = self._following()

    def _following(self) -> bytes | None:
        self._entry_id += 1
        entry = encode_varint(self._entry_id)
        # Where it grows, the sizes in the head are others: nothing matches, and the command is parsed.
        return b"".join((self._head, entry, self._tail)) if len(entry) == self._entry_size else None


def _is_next(command: BaseCommand, body: bytes) -> bool:
    """Whether the body is that of the same MESSAGE with the next entry id."""
    try:
        parsed = BaseCommand.FromString(body)
    except DecodeError:
        return False
    parsed.message.message_id.entryId -= 1
    return parsed == command


def _size_fault(total_size: int, command_size: int) -> str:
    if total_size < 4:
        return f"frame of {total_size} bytes is below the 4 bytes of a command size"
    return f"command of {command_size} bytes exceeds its frame of {total_size} bytes"


def _command_fault(command: BaseCommand) -> str | None:
    """What is missing in a command that parsed: protobuf reports neither unknown types nor missing fields."""
    if not command.HasField("type"):
        return "command has no type or one that is unknown"
    field = _FIELD_OF_TYPE[command.type]
    if not command.HasField(field):  # type: ignore[arg-type]  # the stubs want a literal
        return f"command of type {BaseCommand.Type.Name(command.type)} has no {field}"
    if not command.IsInitialized():
        missing = ", ".join(command.FindInitializationErrors())  # type: ignore[attr-defined]  # the stubs lack it
        return f"command of type {BaseCommand.Type.Name(command.type)} lacks {missing}"
    return None


def encode_frame(command: BaseCommand) -> bytes:
    body = command.SerializeToString()
    size = len(body)
    return _SIZES.pack(size + 4, size) + body


def encode_frame_with_blob(command: BaseCommand, blob: bytes) -> bytes:
    body = command.SerializeToString()
    size = len(body)
    return b"".join((_SIZES.pack(size + 4 + len(blob), size), body, blob))


PING = encode_frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
PONG = encode_frame(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


# Varints, fourteen bits at a time: two lookups make any number below 2^28.
_MORE = [bytes((septet | 0x80,)) for septet in range(128)]
_LAST = [bytes((septet,)) for septet in range(128)]
_FOURTEEN_BITS_MORE = [low + high for high in _MORE for low in _MORE]
_FOURTEEN_BITS_LAST = _LAST + [low + high for high in _LAST[1:] for low in _MORE]


def encode_varint(value: int) -> bytes:
    """A protobuf varint of 64 bits: a negative number is encoded as its two's complement, -1 as 2^64-1."""
    high = value >> 14
    if not high:
        return _FOURTEEN_BITS_LAST[value]
    if 0 < high < 0x4000:
        return _FOURTEEN_BITS_MORE[value & 0x3FFF] + _FOURTEEN_BITS_LAST[high]
    return _encode_long_varint(value)


def _encode_long_varint(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"{value} does not fit in the 64 bits of a varint")
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = b""
    while value >= 0x4000:
        encoded += _FOURTEEN_BITS_MORE[value & 0x3FFF]
        value >>= 14
    return encoded + _FOURTEEN_BITS_LAST[value]


_SEQUENCE_FOLLOWED_MAX = 1 << 62  # nobody counts from here to the end of 64 bits
_TYPE_SEND = bytes((0x08, BaseCommand.SEND))
_TAG_SEND = bytes((BaseCommand.SEND << 3 | 2,))
_TYPE_SEND_RECEIPT = bytes((0x08, BaseCommand.SEND_RECEIPT))
_TYPE_MESSAGE = bytes((0x08, BaseCommand.MESSAGE))
_TAG_SEND_RECEIPT = bytes((BaseCommand.SEND_RECEIPT << 3 | 2,))
_TAG_MESSAGE = bytes((BaseCommand.MESSAGE << 3 | 2,))

# A receipt is at most 57 bytes long, a message id at most 33: their lengths are varints of one byte.
_RECEIPT_HEADS = [
    _SIZES.pack(size + 8, size + 4) + _TYPE_SEND_RECEIPT + _TAG_SEND_RECEIPT + _LAST[size] for size in range(64)
]


def encode_send_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
) -> bytes:
    ledger = encode_varint(ledger_id)
    entry = encode_varint(entry_id)
    message_id = b"".join((_LAST[2 + len(ledger) + len(entry)], b"\x08", ledger, b"\x10", entry))
    sequence = encode_varint(sequence_id)
    highest = encode_varint(highest_sequence_id)
    receipt = b"".join((b"\x08", encode_varint(producer_id), b"\x10", sequence, b"\x1a", message_id, b"\x20", highest))
    return _RECEIPT_HEADS[len(receipt)] + receipt


class SendReceiptEncoder:
    """`encode_send_receipt` for one producer and one ledger: what does not change is encoded once."""

    __slots__ = ("_fixed_size", "_message_id_heads", "_producer")

    def __init__(self, producer_id: int, ledger_id: int) -> None:
        ledger = encode_varint(ledger_id)
        self._producer = b"\x08" + encode_varint(producer_id) + b"\x10"
        # By the length of the entry id's varint.
        self._message_id_heads = [
            b"\x1a" + _LAST[2 + len(ledger) + entry_length] + b"\x08" + ledger + b"\x10" for entry_length in range(11)
        ]
        self._fixed_size = len(self._producer) + len(self._message_id_heads[0]) + 1

    def encode(self, sequence_id: int, highest_sequence_id: int, entry_id: int) -> bytes:
        sequence = encode_varint(sequence_id)
        entry = encode_varint(entry_id)
        highest = sequence if highest_sequence_id == sequence_id else encode_varint(highest_sequence_id)
        head = _RECEIPT_HEADS[self._fixed_size + len(sequence) + len(entry) + len(highest)]
        message_id = self._message_id_heads[len(entry)]
        return b"".join((head, self._producer, sequence, message_id, entry, b"\x20", highest))


class SendEncoder:
    """SEND frames of one producer for entries without a transaction; what does not change is encoded once."""

    __slots__ = ("_producer",)

    def __init__(self, producer_id: int) -> None:
        self._producer = b"\x08" + encode_varint(producer_id) + b"\x10"

    def encode(self, sequence_id: int, highest_sequence_id: int, messages: int, blob: bytes) -> bytes:
        fields = self._producer + encode_varint(sequence_id)
        if messages != 1:
            fields += b"\x18" + encode_varint(messages)
        if highest_sequence_id != sequence_id:
            fields += b"\x30" + encode_varint(highest_sequence_id)
        size = len(fields) + 4  # the longest is 37 bytes: its length is a varint of one byte
        return b"".join(
            (_SIZES.pack(size + 4 + len(blob), size), _TYPE_SEND, _TAG_SEND, _LAST[len(fields)], fields, blob)
        )


class MessageEncoder:
    """MESSAGE frames for one consumer and one ledger; `partition` -1 means a topic without partitions."""

    __slots__ = ("_consumer", "_first_delivery_heads", "_message_id_heads", "_partition")

    def __init__(self, consumer_id: int, ledger_id: int, partition: int = -1) -> None:
        ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
        self._consumer = b"\x08" + encode_varint(consumer_id)
        self._partition = b"" if partition == -1 else b"\x18" + encode_varint(partition)
        # Both by the length of the entry id's varint. The second is everything before the entry id, from the
        # command size on, with the bytes to add to the blob for the total size.
        self._message_id_heads = [
            b"\x12" + _LAST[len(ledger) + entry_length + len(self._partition)] + ledger for entry_length in range(11)
        ]
        self._first_delivery_heads = [self._first_delivery_head(entry_length) for entry_length in range(11)]

    def _first_delivery_head(self, entry_length: int) -> tuple[int, bytes]:
        body = self._consumer + self._message_id_heads[entry_length]
        size = len(body) + entry_length + len(self._partition)
        return size + 8, _U32.pack(size + 4) + _TYPE_MESSAGE + _TAG_MESSAGE + _LAST[size] + body

    def encode(
        self,
        entry_id: int,
        redelivery_count: int,
        ack_set: Sequence[int] | None,
        blob: bytes,
        consumer_epoch: int | None = None,
    ) -> bytes:
        entry = encode_varint(entry_id)
        if redelivery_count or ack_set or consumer_epoch is not None:
            return self._encode_special(entry, redelivery_count, ack_set, blob, consumer_epoch)
        size, head = self._first_delivery_heads[len(entry)]
        return b"".join((_U32.pack(size + len(blob)), head, entry, self._partition, blob))

    def _encode_special(
        self,
        entry: bytes,
        redelivery_count: int,
        ack_set: Sequence[int] | None,
        blob: bytes,
        consumer_epoch: int | None,
    ) -> bytes:
        fields = [self._consumer, self._message_id_heads[len(entry)], entry, self._partition]
        if redelivery_count:
            fields += (b"\x18", encode_varint(redelivery_count))
        for word in ack_set or ():
            fields += (b"\x20", encode_varint(word))
        if consumer_epoch is not None:
            fields += (b"\x28", encode_varint(consumer_epoch))
        body = b"".join(fields)
        head = _TYPE_MESSAGE + _TAG_MESSAGE + encode_varint(len(body))
        size = len(head) + len(body)
        return b"".join((_SIZES.pack(size + 4 + len(blob), size), head, body, blob))
