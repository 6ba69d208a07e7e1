"""Command templates: SEND, MESSAGE and SEND_RECEIPT, which travel once per entry, without protobuf.

Owns the parts of these commands that do not change between two entries, encoded once, and the bytes of the command that
is expected next on a connection. Knows nothing of the other commands (see `frames`).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from google.protobuf.message import DecodeError

from magnetar.wire.schema_pb2 import BaseCommand
from magnetar.wire.varint import ONE_BYTE, encode_varint

_U32 = Struct(">I")
_SIZES = Struct(">II")

_SEQUENCE_FOLLOWED_MAX = 1 << 62  # no counter gets from here to the end of 64 bits
_TYPE_SEND = bytes((0x08, BaseCommand.SEND))
_TAG_SEND = bytes((BaseCommand.SEND << 3 | 2,))
_TYPE_SEND_RECEIPT = bytes((0x08, BaseCommand.SEND_RECEIPT))
_TYPE_MESSAGE = bytes((0x08, BaseCommand.MESSAGE))
_TAG_SEND_RECEIPT = bytes((BaseCommand.SEND_RECEIPT << 3 | 2,))
_TAG_MESSAGE = bytes((BaseCommand.MESSAGE << 3 | 2,))


class NextSend:
    """The bytes of the SEND that is expected next on a connection.

    None unless the last two were of one producer and the last had only a producer id and a sequence id.
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
            self._head = b"".join((_TYPE_SEND, _TAG_SEND, ONE_BYTE[len(fields) + len(sequence)], fields))
            if self._head + sequence == body:
                self._sequence_id = sequence_id
                self.advance()

    def advance(self) -> None:
        self._sequence_id += 1
        # The length of the sequence id is part of the head: where it grows, nothing matches and the command is parsed.
        self.body = self._head + encode_varint(self._sequence_id)


class NextMessage:
    """The bytes of the MESSAGE that is expected next: those of the last one, with the next entry id.

    None unless the last two were for one consumer.
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
            # The bytes that were found may be another field by chance.
            self.body = following if following is not None and _is_next(command, following) else None

    def advance(self) -> None:
        self.body = self._following()

    def _following(self) -> bytes | None:
        self._entry_id += 1
        entry = encode_varint(self._entry_id)
        # Where it grows, the sizes in the head change: nothing matches, and the command is parsed.
        return b"".join((self._head, entry, self._tail)) if len(entry) == self._entry_size else None


def _is_next(command: BaseCommand, body: bytes) -> bool:
    """Whether the body is the same MESSAGE with the next entry id."""
    try:
        parsed = BaseCommand.FromString(body)
    except DecodeError:
        return False
    parsed.message.message_id.entryId -= 1
    return parsed == command


# A receipt is at most 57 bytes long, a message id at most 33: their lengths are varints of one byte.
_RECEIPT_HEADS = [
    _SIZES.pack(size + 8, size + 4) + _TYPE_SEND_RECEIPT + _TAG_SEND_RECEIPT + ONE_BYTE[size] for size in range(64)
]


def encode_send_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int
) -> bytes:
    ledger = encode_varint(ledger_id)
    entry = encode_varint(entry_id)
    message_id = b"".join((ONE_BYTE[2 + len(ledger) + len(entry)], b"\x08", ledger, b"\x10", entry))
    sequence = encode_varint(sequence_id)
    highest = encode_varint(highest_sequence_id)
    receipt = b"".join((b"\x08", encode_varint(producer_id), b"\x10", sequence, b"\x1a", message_id, b"\x20", highest))
    return _RECEIPT_HEADS[len(receipt)] + receipt


class SendReceiptEncoder:
    """`encode_send_receipt` for one producer and one ledger; the constant parts are encoded once."""

    __slots__ = ("_fixed_size", "_message_id_heads", "_producer")

    def __init__(self, producer_id: int, ledger_id: int) -> None:
        ledger = encode_varint(ledger_id)
        self._producer = b"\x08" + encode_varint(producer_id) + b"\x10"
        # By the length of the entry id's varint.
        self._message_id_heads = [
            b"\x1a" + ONE_BYTE[2 + len(ledger) + entry_length] + b"\x08" + ledger + b"\x10"
            for entry_length in range(11)
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
    """SEND frames of one producer for entries without a transaction; the constant parts are encoded once."""

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
            (_SIZES.pack(size + 4 + len(blob), size), _TYPE_SEND, _TAG_SEND, ONE_BYTE[len(fields)], fields, blob)
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
            b"\x12" + ONE_BYTE[len(ledger) + entry_length + len(self._partition)] + ledger for entry_length in range(11)
        ]
        self._first_delivery_heads = [self._first_delivery_head(entry_length) for entry_length in range(11)]

    def _first_delivery_head(self, entry_length: int) -> tuple[int, bytes]:
        body = self._consumer + self._message_id_heads[entry_length]
        size = len(body) + entry_length + len(self._partition)
        return size + 8, _U32.pack(size + 4) + _TYPE_MESSAGE + _TAG_MESSAGE + ONE_BYTE[size] + body

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
