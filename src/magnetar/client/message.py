"""Messages as an application sees them, and their ids. Owns the text and byte forms of an id."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from magnetar.client.errors import InvalidArgument
from magnetar.wire.schema_pb2 import MessageIdData

_SIGN = 1 << 63
_UNSIGNED = (1 << 64) - 1
_LONG_MAX = (1 << 63) - 1

_TEXT = re.compile(r"(-?\d{1,20}):(-?\d{1,20})(?::(-?\d{1,10}))?(?::(-?\d{1,10}))?", re.ASCII)
_TUPLE = re.compile(r"\(\s*(-?\d{1,20}),\s*(-?\d{1,20}),\s*(-?\d{1,10}),\s*(-?\d{1,10})\s*\)", re.ASCII)


class Position(NamedTuple):
    """The place of an entry in a topic. Positions compare in the order of the topic, and equal plain tuples."""

    ledger_id: int
    entry_id: int


class MessageId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The place of a message. Ids of one topic or partition compare in the order of the topic."""

    ledger_id: int
    entry_id: int
    partition: int = -1  # of a topic without partitions
    batch_index: int = -1  # of a message that is not in a batch
    batch_size: int = 0

    @staticmethod
    def parse(text: str) -> MessageId:
        """Reads `ledger:entry`, also with `:partition` and `:batch index`, and `(ledger,entry,partition,batch)`."""
        match = _TEXT.fullmatch(text) or _TUPLE.fullmatch(text)
        if match is None:
            shown = ascii(text if len(text) <= 100 else text[:100] + "...")
            raise InvalidArgument(f"message id {shown} is not of the form ledger:entry[:partition[:batch index]]")
        numbers = [-1 if part is None else int(part) for part in match.groups()]
        for name, number in zip(("ledger", "entry"), numbers, strict=False):
            if not -1 <= number <= _LONG_MAX:
                raise InvalidArgument(f"{name} {number} of message id {text} is not between -1 and {_LONG_MAX}")
        for name, number in zip(("partition", "batch index"), numbers[2:], strict=True):
            if not -1 <= number < 1 << 31:
                raise InvalidArgument(f"{name} {number} of message id {text} is not between -1 and {(1 << 31) - 1}")
        return MessageId(*numbers)

    @staticmethod
    def from_bytes(data: bytes) -> MessageId:
        """Reads the bytes of `to_bytes`, or of another Pulsar client."""
        try:
            parsed = MessageIdData.FromString(data)
        except DecodeError:
            parsed = MessageIdData()
        if not parsed.IsInitialized():
            raise InvalidArgument(f"{len(data)} bytes are not a serialized message id")
        return MessageId.from_wire(parsed)

    @staticmethod
    def from_wire(data: MessageIdData) -> MessageId:
        return MessageId(
            _signed(data.ledgerId), _signed(data.entryId), data.partition, data.batch_index, data.batch_size
        )

    def to_bytes(self) -> bytes:
        """The serialized form that all Pulsar clients read."""
        return self.to_wire().SerializeToString()

    def to_wire(self) -> MessageIdData:
        data = MessageIdData(ledgerId=self.ledger_id & _UNSIGNED, entryId=self.entry_id & _UNSIGNED)
        if self.partition >= 0:
            data.partition = self.partition
        if self.batch_index >= 0:
            data.batch_index = self.batch_index
        if self.batch_size > 0:
            data.batch_size = self.batch_size
        return data

    @property
    def position(self) -> Position:
        """The position of the entry: the same for all messages of a batch."""
        return Position(self.ledger_id, self.entry_id)

    def __str__(self) -> str:
        """`ledger:entry:partition`, and `:batch index` where there is one."""
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"


EARLIEST = MessageId(-1, -1)
"""Before the first message that is still stored."""

LATEST = MessageId(_LONG_MAX, _LONG_MAX)
"""After the last message at the time of the request."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A received message. Times are milliseconds since the epoch."""

    topic: str
    """The full name; of a partitioned topic, that of the partition."""
    id: MessageId
    value: bytes
    key: str | None = None
    """The key of the producer; a key of bytes is base64, with `key_is_base64`."""
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    publish_time_ms: int = 0
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    producer_name: str = ""
    sequence_id: int = -1
    redelivery_count: int = 0
    schema_version: bytes | None = None
    replicated_from: str | None = None
    is_null: bool = False
    """The producer sent no value, which is not the same as an empty one."""
    chunk_ids: tuple[MessageId, ...] = ()
    """The ids of all chunks of a chunked message. `id` is that of the last one."""


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _SIGN else value
