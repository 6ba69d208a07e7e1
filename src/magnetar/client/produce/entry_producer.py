"""A producer of whole entries for one topic or partition; the caller provides contents and sequence ids.

Owns their order, the limit on entries in flight, sending again after a lost connection, and detecting deduplication
that contradicts what was sent. Does not parse an entry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import msgspec

from magnetar.client.connection.connection import Connection
from magnetar.client.connection.protocol import Receipt, SendError
from magnetar.client.connection.retry import Backoff, is_retriable, with_retry
from magnetar.client.errors import (
    ClientError,
    Closed,
    Conflict,
    ConnectionLost,
    InvalidArgument,
    MessageTooLarge,
    Timeout,
)
from magnetar.client.options import check_positive
from magnetar.client.produce.in_flight import InFlightLimit
from magnetar.client.produce.producer_link import LinkOptions, ProducerLink
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.templates import SendEncoder

_METADATA_SIZE_MAX = 10 * 1024
"""The bytes that a broker allows in a frame beyond its message size limit."""


class EntryProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    link: LinkOptions
    deduplicated: bool
    open_timeout_s: float
    send_timeout_s: float

    def __post_init__(self) -> None:
        check_positive(open_timeout_s=self.open_timeout_s, send_timeout_s=self.send_timeout_s)


class _Pending(msgspec.Struct, gc=False):
    sequence_id: int
    highest_sequence_id: int
    messages: int
    size: int
    frame: bytes
    tries: int = 0


class AsyncEntryProducer:
    """Created by `AsyncClient.entry_producer`. Entries are stored in the order of the calls.

    After an error nothing more is stored, and every call raises it. Where the topic deduplicates, the
    `last_sequence_id` of a new producer of the name is the last id that this one stored.
    """

    def __init__(
        self,
        topic: TopicName,
        producer_id: int,
        options: EntryProducerOptions,
        connect: Callable[[], Awaitable[Connection]],
        limit: InFlightLimit,
    ) -> None:
        self.topic = topic.full
        self.last_sequence_id = -1
        """The last id that the broker had stored for this name when the producer was opened; -1 for none."""
        self.schema_version: bytes | None = None
        self.message_size_max = 0
        self.messages_stored = 0
        self.messages_dropped = 0
        """Of `messages_stored`, those in entries that the broker had already and dropped as duplicates."""
        self.last_stored_id = -1
        """The highest sequence id of the last entry that this producer sent and the broker stored."""
        self.refused_id: int | None = None
        """The sequence id of the entry that the broker rejected; the producer has an error then."""
        self.is_closed = False
        self.error: ClientError | None = None
        self._options = options
        self._link = ProducerLink(self, topic, producer_id, options.link, connect)
        self._encode = SendEncoder(producer_id).encode
        self._limit = limit
        self._pending: deque[_Pending] = deque()
        self._sent = 0  # of pending, from the left
        self._last_added = -1
        self._has_opened = False
        self._loop = asyncio.get_running_loop()
        self._settled = asyncio.Event()
        self._settled.set()
        self._progress_s = 0.0
        self._last_error: ClientError | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self._link.name

    @property
    def is_settled(self) -> bool:
        """Whether everything that was sent is stored."""
        return not self._pending and self.error is None

    # -- life

    async def open(self) -> None:
        """Tries again while the name is in use or the broker cannot be reached, for `open_timeout_s`."""
        backoff = Backoff(first_s=0.05, last_s=2)
        await with_retry(f"opening {self._what}", self._link.open, self._options.open_timeout_s, backoff=backoff)

    def on_opened(self, connection: Connection, success: pb.CommandProducerSuccess) -> None:
        if self._has_opened:
            self._check_memory(success.last_sequence_id)
        else:
            self._has_opened = True
            self.last_sequence_id = self._last_added = success.last_sequence_id
            self.schema_version = success.schema_version or None
        self.message_size_max = connection.broker.message_size_max
        self._sent = 0
        self._send_frames()

    def _check_memory(self, last_sequence_id: int) -> None:
        """The last id that the broker knows must be between the last receipt and the last entry sent."""
        for entry in self._pending:
            if entry.sequence_id <= last_sequence_id < entry.highest_sequence_id:
                raise Conflict(
                    f"{self._what} reconnected, and the broker knows sequence id {last_sequence_id}, which is inside a"
                    f" pending entry from {entry.sequence_id} to {entry.highest_sequence_id}: another producer uses"
                    " the name"
                )
        known = max(self.last_sequence_id, self.last_stored_id)
        if self._options.deduplicated and last_sequence_id < known:
            raise Conflict(
                f"{self._what} reconnected, and the broker knows sequence id {last_sequence_id} only, but had confirmed"
                f" {known}: the topic does not deduplicate, or lost its state"
            )

    @property
    def _what(self) -> str:
        return f"producer {self.name!r} of {self.topic}"

    async def close(self) -> None:
        """Entries without a receipt may be stored or not: `flush` first."""
        if self.is_closed:
            return
        self.is_closed = True
        self._link.stop()
        self.on_failed(self.error or Closed(f"{self._what} is closed"))
        await self._link.close()

    # -- sending

    async def send(self, blob: bytes, *, sequence_id: int, highest_sequence_id: int, messages: int) -> None:
        """Waits for the limit only; `flush` waits for the receipt. `flush` and the next `send` raise an error."""
        self._check(blob, sequence_id, highest_sequence_id)
        await self._acquire(blob)
        self._add(blob, sequence_id, highest_sequence_id, messages)
        self._send_frames()

    async def send_each(self, blobs: Sequence[bytes], first_id: int) -> None:
        """As `send`, for entries of one message each with consecutive sequence ids."""
        if not blobs:
            return
        self._check(max(blobs, key=len), first_id, first_id)
        try_acquire, add = self._limit.try_acquire, self._add
        for sequence_id, blob in enumerate(blobs, first_id):
            if not try_acquire(len(blob)):
                self._send_frames()  # the receipts that are waited for belong to these
                await self._acquire(blob)
            add(blob, sequence_id, sequence_id, 1)
        self._send_frames()

    async def _acquire(self, blob: bytes) -> None:
        await self._limit.acquire(len(blob))
        if self.error is not None:
            self._limit.release(len(blob))
            raise self.error

    def _add(self, blob: bytes, sequence_id: int, highest_sequence_id: int, messages: int) -> None:
        if sequence_id <= self._last_added:
            self._limit.release(len(blob))
            raise InvalidArgument(
                f"sequence id {sequence_id} is not above {self._last_added}, the last of {self._what}"
            )
        self._last_added = highest_sequence_id
        frame = self._encode(sequence_id, highest_sequence_id, messages, blob)
        if not self._pending:
            self._progress_s = self._loop.time()
            self._settled.clear()
        self._pending.append(_Pending(sequence_id, highest_sequence_id, messages, len(blob), frame))
        if self._timer is None:
            self._timer = self._loop.call_later(self._options.send_timeout_s, self._check_progress)

    def _check(self, blob: bytes, sequence_id: int, highest_sequence_id: int) -> None:
        if self.error is not None:
            raise self.error
        if highest_sequence_id < sequence_id:
            raise InvalidArgument(f"highest_sequence_id {highest_sequence_id} is below sequence_id {sequence_id}")
        if len(blob) > self.message_size_max + _METADATA_SIZE_MAX:
            raise MessageTooLarge(
                f"entry of {len(blob)} bytes for {self.topic} exceeds the broker's limit of {self.message_size_max} for"
                f" messages and {_METADATA_SIZE_MAX} for metadata"
            )

    def _send_frames(self) -> None:
        connection = self._link.connection
        if connection is None:
            return
        while self._sent < len(self._pending):
            entry = self._pending[self._sent]
            self._sent += 1
            entry.tries += 1
            connection.write(entry.frame)

    async def flush(self) -> None:
        """Waits until all entries are stored; raises the error."""
        await self._settled.wait()
        if self.error is not None:
            raise self.error

    # -- events of the connection

    def on_receipt(self, receipt: Receipt) -> None:
        pending = self._pending
        if not (pending and self._sent and pending[0].sequence_id == receipt.sequence_id):
            if any(entry.sequence_id == receipt.sequence_id for entry in pending):
                self._link.start_over(ConnectionLost(f"receipts of {self.topic} are missing"))
            return
        entry = pending[0]
        if self._options.deduplicated and receipt.id.entry_id < 0 and entry.tries == 1:
            self._give_up(
                Conflict(
                    f"the broker dropped an entry of {self._what} as a duplicate although it was sent once, sequence"
                    f" ids {entry.sequence_id} to {entry.highest_sequence_id}: another producer uses the name"
                )
            )
            return
        self._sent -= 1
        self._progress_s = self._loop.time()
        self._last_error = None
        self.last_stored_id = entry.highest_sequence_id
        self.messages_stored += entry.messages
        if receipt.id.entry_id < 0:
            self.messages_dropped += entry.messages
        self._drop_first()
        if not pending:
            self._settled.set()

    def _drop_first(self) -> None:
        self._limit.release(self._pending.popleft().size)

    def on_send_error(self, failure: SendError) -> None:
        if is_retriable(failure.error):
            self._last_error = failure.error
            self._link.start_over(failure.error)
        else:
            self.refused_id = failure.sequence_id
            text = f"{self._what}: the broker rejected sequence id {failure.sequence_id}: {failure.error.text}"
            self._give_up(type(failure.error)(text, code=failure.error.code))

    def on_lost(self, error: ClientError) -> None:
        self._last_error = error
        self._link.lost(error)

    def _check_progress(self) -> None:
        """Gives up a broker that stores nothing for too long, connected or not."""
        self._timer = None
        if not self._pending:
            return
        timeout_s = self._options.send_timeout_s
        due_s = self._progress_s + timeout_s
        if due_s <= self._loop.time():
            reason = "" if self._last_error is None else f": {self._last_error.text}"
            self._give_up(Timeout(f"{self._what}: nothing was stored for {timeout_s:g} s{reason}"))
        else:
            self._timer = self._loop.call_at(due_s, self._check_progress)

    def _give_up(self, error: ClientError) -> None:
        self._link.stop()
        self.on_failed(error)

    def on_failed(self, error: ClientError) -> None:
        self.error = error
        self._sent = 0
        while self._pending:
            self._drop_first()
        self._settled.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()
