"""The outbox of one topic or partition: messages from the call that sends them to the broker's receipt, in order.

Owns sequence ids, batches, compression, and which entries have to be sent again. Knows nothing of connections: it
builds frames and takes receipts.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from magnetar.client.errors import ClientError, InvalidArgument, MessageTooLarge
from magnetar.client.message import MessageId
from magnetar.client.options import check_positive
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.frames import encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import BaseCommand, CommandSend, MessageMetadata, SingleMessageMetadata

_LONG_MAX = (1 << 63) - 1

# Called with the id of a message or an error, exactly once.
Done: TypeAlias = Callable[[MessageId | ClientError], None]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be sent, checked by `outgoing`. No value is not the same as an empty one."""

    value: bytes | None
    key: str | None = None
    key_is_base64: bool = False
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    ordering_key: bytes | None = None
    sequence_id: int | None = None
    replicate_to: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.value or b"")

    @property
    def may_be_batched(self) -> bool:
        """Delivery time and target clusters apply to a whole entry."""
        return self.deliver_at_ms is None and not self.replicate_to


def outgoing(
    value: bytes | None,
    *,
    key: str | bytes | None = None,
    properties: Mapping[str, str] | None = None,
    event_time_ms: int | None = None,
    deliver_at_ms: int | None = None,
    ordering_key: bytes | None = None,
    sequence_id: int | None = None,
    replicate_to: Sequence[str] | None = None,
) -> Outgoing:
    """Checks a message to be sent; raises `InvalidArgument`."""
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"value must be bytes or None, not {type(value).__name__}")
    if key is not None and not isinstance(key, str | bytes):
        raise InvalidArgument(f"key must be a string or bytes, not {type(key).__name__}")
    if ordering_key is not None and not isinstance(ordering_key, bytes):
        raise InvalidArgument(f"ordering_key must be bytes, not {type(ordering_key).__name__}")
    for name, number in (
        ("event_time_ms", event_time_ms),
        ("deliver_at_ms", deliver_at_ms),
        ("sequence_id", sequence_id),
    ):
        if number is not None and (not isinstance(number, int) or not 0 <= number <= _LONG_MAX):
            raise InvalidArgument(f"{name} {number!r} is not a number between 0 and {_LONG_MAX}")
    pairs = dict(properties or {})
    for pair in pairs.items():
        if not all(isinstance(part, str) for part in pair):
            raise InvalidArgument(f"property {pair[0]!r}={pair[1]!r} is not a pair of strings")
    return Outgoing(
        value=None if value is None else bytes(value),
        key=base64.b64encode(key).decode() if isinstance(key, bytes) else key,
        key_is_base64=isinstance(key, bytes),
        properties=pairs,
        event_time_ms=event_time_ms,
        deliver_at_ms=deliver_at_ms,
        ordering_key=ordering_key,
        sequence_id=sequence_id,
        replicate_to=tuple(replicate_to or ()),
    )


class OutboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    batching: bool
    batch_messages_max: int
    batch_bytes_max: int
    compression: pb.CompressionType.ValueType

    def __post_init__(self) -> None:
        check_positive(batch_messages_max=self.batch_messages_max, batch_bytes_max=self.batch_bytes_max)


class _Entry(msgspec.Struct):
    """The entry of one SEND."""

    sequence_id: int
    frame: bytes
    dones: list[Done]
    is_batch: bool
    deadline_s: float

    def store(self, position: MessageId) -> None:
        count = len(self.dones)
        for index, done in enumerate(self.dones):
            done(msgspec.structs.replace(position, batch_index=index, batch_size=count) if self.is_batch else position)

    def fail(self, error: ClientError) -> None:
        for done in self.dones:
            done(error)


class Outbox:
    """The broker sets `last_sequence_id` and `producer_name` before the first message is added.

    Every added message is in exactly one place: in the open batch, unsent, or sent without a receipt.
    """

    def __init__(self, options: OutboxOptions, producer_id: int, partition: int) -> None:
        self.producer_name = ""
        self.last_sequence_id = -1
        self.message_size_max = 0
        self._options = options
        self._producer_id = producer_id
        self._partition = partition
        self._batch: list[tuple[Outgoing, int, Done]] = []
        self._batch_bytes = 0
        self._batch_deadline_s = 0.0
        self._pending: deque[_Entry] = deque()
        self._sent = 0  # of pending, from the left

    # -- adding

    def add(self, message: Outgoing, done: Done, *, now_ms: int, deadline_s: float) -> None:
        sequence_id = self.last_sequence_id + 1 if message.sequence_id is None else message.sequence_id
        batch = self._batch
        if batch and (
            not message.may_be_batched
            or self._batch_bytes + message.size > self._options.batch_bytes_max
            or sequence_id <= batch[-1][1]
        ):
            self.seal(now_ms)
        self.last_sequence_id = max(self.last_sequence_id, sequence_id)
        if not (self._options.batching and message.may_be_batched):
            self._append(self._single_entry(message, sequence_id, done, now_ms, deadline_s))
            return
        if not self._batch:
            self._batch_bytes, self._batch_deadline_s = 0, deadline_s
        self._batch.append((message, sequence_id, done))
        self._batch_bytes += message.size
        if len(self._batch) >= self._options.batch_messages_max or self._batch_bytes >= self._options.batch_bytes_max:
            self.seal(now_ms)

    def seal(self, now_ms: int) -> None:
        """Ends the open batch, so that it can be sent."""
        if len(self._batch) > 1:
            messages, self._batch = self._batch, []
            self._append(self._batch_entry(messages, now_ms))
        elif self._batch:  # a single message is shorter without a batch
            [(message, sequence_id, done)], self._batch = self._batch, []
            self._append(self._single_entry(message, sequence_id, done, now_ms, self._batch_deadline_s))

    def _append(self, entry: _Entry | None) -> None:
        if entry is not None:
            self._pending.append(entry)

    # -- sending

    @property
    def has_open_batch(self) -> bool:
        return bool(self._batch)

    @property
    def is_empty(self) -> bool:
        return not self._pending and not self._batch

    @property
    def next_deadline_s(self) -> float | None:
        if self._pending:
            return self._pending[0].deadline_s
        return self._batch_deadline_s if self._batch else None

    def take_frames(self) -> list[bytes]:
        """The frames not sent yet on this connection."""
        if self._sent == len(self._pending):
            return []
        frames = [self._pending[index].frame for index in range(self._sent, len(self._pending))]
        self._sent = len(self._pending)
        return frames

    def rewind(self) -> None:
        """The connection is gone: all entries without a receipt are sent again."""
        self._sent = 0

    # -- results

    def on_receipt(self, sequence_id: int, position: MessageId) -> bool:
        """False when receipts are missing: the connection cannot be trusted any more.

        A receipt without a pending entry came after its timeout.
        """
        if self._pending and self._sent and self._pending[0].sequence_id == sequence_id:
            entry = self._pending.popleft()
            self._sent -= 1
            entry.store(MessageId(position.ledger_id, position.entry_id, self._partition))
            return True
        return not any(entry.sequence_id == sequence_id for entry in self._pending)

    def on_rejected(self, sequence_id: int, error: ClientError) -> None:
        for index, entry in enumerate(self._pending):
            if entry.sequence_id == sequence_id:
                del self._pending[index]
                self._sent -= index < self._sent
                entry.fail(error)
                return

    def expire(self, now_s: float, error: ClientError) -> None:
        """Fails the messages whose time is over."""
        while self._pending and self._pending[0].deadline_s <= now_s:
            self._sent -= self._sent > 0
            self._pending.popleft().fail(error)
        if self._batch and self._batch_deadline_s <= now_s and not self._pending:
            self._fail_batch(error)

    def fail_all(self, error: ClientError) -> None:
        pending, self._pending = self._pending, deque()
        self._sent = 0
        for entry in pending:
            entry.fail(error)
        self._fail_batch(error)

    def _fail_batch(self, error: ClientError) -> None:
        batch, self._batch = self._batch, []
        for _, _, done in batch:
            done(error)

    # -- entries

    def _single_entry(
        self, message: Outgoing, sequence_id: int, done: Done, now_ms: int, deadline_s: float
    ) -> _Entry | None:
        metadata = self._metadata(message, sequence_id, now_ms)
        metadata.properties.extend(_pairs(message.properties))
        if message.value is None:
            metadata.null_value = True
        if message.event_time_ms:
            metadata.event_time = message.event_time_ms
        if message.deliver_at_ms is not None:
            metadata.deliver_at_time = message.deliver_at_ms
        send = CommandSend(producer_id=self._producer_id, sequence_id=sequence_id)
        return self._entry(send, metadata, message.value or b"", [done], deadline_s, is_batch=False)

    def _batch_entry(self, messages: list[tuple[Outgoing, int, Done]], now_ms: int) -> _Entry | None:
        first, first_id, _ = messages[0]
        last_id = messages[-1][1]
        metadata = self._metadata(first, first_id, now_ms)
        metadata.num_messages_in_batch = len(messages)
        metadata.highest_sequence_id = last_id
        payload = build_batch([(_single(message, number), message.value or b"") for message, number, _ in messages])
        send = CommandSend(
            producer_id=self._producer_id,
            sequence_id=first_id,
            num_messages=len(messages),
            highest_sequence_id=last_id,
        )
        dones = [done for _, _, done in messages]
        return self._entry(send, metadata, payload, dones, self._batch_deadline_s, is_batch=True)

    def _metadata(self, message: Outgoing, sequence_id: int, now_ms: int) -> MessageMetadata:
        """The fields of batches and single messages; a batch has the key of its first message."""
        metadata = MessageMetadata(
            producer_name=self.producer_name,
            sequence_id=sequence_id,
            publish_time=now_ms,
            replicate_to=message.replicate_to,
        )
        if message.key is not None:
            metadata.partition_key = message.key
            metadata.partition_key_b64_encoded = message.key_is_base64
        if message.ordering_key is not None:
            metadata.ordering_key = message.ordering_key
        return metadata

    def _entry(
        self,
        send: CommandSend,
        metadata: MessageMetadata,
        payload: bytes,
        dones: list[Done],
        deadline_s: float,
        *,
        is_batch: bool,
    ) -> _Entry | None:
        compression = self._options.compression
        if compression != pb.NONE:
            metadata.compression = compression
            metadata.uncompressed_size = len(payload)
            payload = compress(compression, payload)
        entry = _Entry(send.sequence_id, b"", dones, is_batch, deadline_s)
        if len(payload) > self.message_size_max:
            what = f"batch of {len(dones)} messages" if is_batch else "message"
            entry.fail(
                MessageTooLarge(f"{what} of {len(payload)} bytes exceeds the broker's limit of {self.message_size_max}")
            )
            return None
        entry.frame = encode_frame_with_blob(
            BaseCommand(type=BaseCommand.SEND, send=send), build_blob(metadata, payload)
        )
        return entry


def _single(message: Outgoing, sequence_id: int) -> SingleMessageMetadata:
    single = SingleMessageMetadata(payload_size=message.size, sequence_id=sequence_id)
    if message.properties:
        single.properties.extend(_pairs(message.properties))
    if message.key is not None:
        single.partition_key = message.key
        single.partition_key_b64_encoded = message.key_is_base64
    if message.ordering_key is not None:
        single.ordering_key = message.ordering_key
    if message.event_time_ms:
        single.event_time = message.event_time_ms
    if message.value is None:
        single.null_value = True
    return single


def _pairs(properties: Mapping[str, str]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in properties.items()]
