"""A reader of whole entries in a range of positions of one topic or partition, for bulk reads.

Owns the range, the bytes in flight, and continuing after a lost connection. Does not open entries: checksums,
compression, batches and batch indexes are up to the caller. A range without an end continues with new entries.
"""

from __future__ import annotations

import asyncio
from typing import Self

from magnetar.client.connection.protocol import Delivery
from magnetar.client.connection.retry import Reconnector
from magnetar.client.consume.entry import Entry, EntryRun
from magnetar.client.consume.raw_consumer import RawConsumer, RawConsumerFactory
from magnetar.client.errors import ClientError, Closed, ConnectionLost
from magnetar.client.message import LATEST, MessageId, Position
from magnetar.wire.metadata import messages_in

FIRST_PERMITS = 32
"""The permits before the size of messages is known."""

HANDED_OUT_BYTES = 4 << 20
"""The bytes of received entries that one call of `next` returns, at most."""

# Older entries count less and less for the average.
_REMEMBERED_BYTES = 32 << 20

# The silence after which the broker is asked whether more entries will come; it doubles.
_QUIET_FIRST_S = 0.25
_QUIET_LAST_S = 4.0


class AsyncEntryReader:
    """Created by `AsyncClient.entries`; an async context manager. `_last` is the last position received."""

    def __init__(
        self,
        factory: RawConsumerFactory,
        start: MessageId,
        end: MessageId,
        *,
        start_inclusive: bool,
        bytes_max: int,
        follows: bool = False,
    ) -> None:
        self.topic = factory.topic.full
        self.is_closed = False
        self._factory = factory
        self._partition = factory.topic.partition
        self._last = _position_before(start, inclusive=start_inclusive)
        self._end = end.position
        self._follows = follows
        self._is_requesting = True
        self._bytes_max = bytes_max
        self._reconnector = Reconnector(
            f"reading {self.topic}", self.open, self._on_failure, limit_s=factory.reconnect_timeout_s
        )
        self._consumer: RawConsumer | None = None
        self._runs: list[EntryRun] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: ClientError | None = None
        self._is_over = self._end <= self._last
        self._was_there = False
        self._is_opening = False
        # Totals of received entries, for the average size of a message and the messages per entry.
        self._bytes = 0
        self._messages = 0
        self._count = 0
        self._queued_bytes = 0
        self._permits = 0  # messages that the broker may still send

    # -- life

    async def open(self) -> None:
        """Also called to continue after a lost connection."""
        if self._is_over:
            return
        consumer = await self._factory.open(self, self._last, was_there=self._was_there)
        self._was_there = True
        self._permits = 0
        self._consumer = consumer
        self._is_opening = True  # the caller gets the error of a lost connection
        try:
            self._refill()
            if not self._follows:
                await self._check_end(consumer)
            if not (consumer.is_open or self._is_over):
                raise ConnectionLost(f"the broker closed the consumer of {self.topic} at once")
        except BaseException:
            consumer.close()
            self._consumer = None
            raise
        finally:
            self._is_opening = False

    async def _check_end(self, consumer: RawConsumer) -> None:
        """The end may be after the last stored entry, or deleted: then it never arrives."""
        last, mark = await consumer.last()
        self._end = min(self._end, last.position)
        if self._end <= max(self._last, mark.position):
            self._finish()

    def _finish(self) -> None:
        self._is_over = True
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._wake()

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._reconnector.stop()
        self._runs = []
        self._finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    # -- events of the connection

    def on_delivery(self, delivery: Delivery) -> None:
        ledger_id, blobs = delivery.ledger_id, delivery.blobs
        messages = sum(map(messages_in, blobs))
        self._permits -= messages
        if self._is_over:
            return  # it was in flight already
        first = delivery.entry_id
        is_at_end = (ledger_id, first + len(blobs) - 1) >= self._end
        if is_at_end or (ledger_id, first) <= self._last:
            first, blobs = self._within_range(ledger_id, first, blobs)
        if blobs:
            count, ack_set = delivery.redelivery_count, delivery.ack_set
            self._runs.append(EntryRun(self.topic, self._partition, ledger_id, first, count, ack_set, blobs))
            size = sum(map(len, blobs))
            self._messages += messages
            self._bytes += size
            self._queued_bytes += size
            self._count += len(blobs)
            self._last = Position(ledger_id, first + len(blobs) - 1)
        if is_at_end:
            self._finish()
        self._wake()

    def _within_range(self, ledger_id: int, first: int, blobs: list[bytes]) -> tuple[int, list[bytes]]:
        """Leaves out entries before and after the range."""
        until = first + len(blobs)
        if ledger_id < self._last[0]:
            return first, []
        begin = self._last[1] + 1 if ledger_id == self._last[0] else first
        end_ledger_id, end_entry_id = self._end
        if ledger_id == end_ledger_id:
            until = min(until, end_entry_id + 1)
        elif ledger_id > end_ledger_id:
            until = first
        begin = max(begin, first)
        return begin, blobs[begin - first : max(until, begin) - first]

    def on_end_reached(self) -> None:
        """The topic is terminated, and all its entries were received."""
        self._finish()

    def on_lost(self, error: ClientError) -> None:
        if self._consumer is None or self._is_over or self._is_opening:
            return
        self._consumer = None
        if isinstance(error, Closed):
            self._on_failure(error)
        else:
            self._reconnector.start(error)

    def _on_failure(self, error: ClientError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- reading

    async def runs_within(self, seconds: float) -> list[EntryRun]:
        """As `next_runs`, but [] also if nothing arrived in that time."""
        if not self._runs and self._error is None and not (self.is_closed or self._is_over):
            await self._wait(seconds)
        if self._runs or self._error is not None or self.is_closed:
            return await self.next_runs()
        return []

    @property
    def has_entries(self) -> bool:
        """Whether the next call returns entries at once."""
        return bool(self._runs)

    @property
    def is_drained(self) -> bool:
        """Whether all requested entries have arrived and were returned."""
        return self._permits <= 0 and not self._runs

    def stop_requesting(self) -> None:
        """Only entries in flight arrive any more."""
        self._is_requesting = False

    async def progress(self) -> tuple[MessageId, MessageId]:
        """The last message of the topic, and the position up to which everything has been received.

        The second may be after the last entry received: brokers do not send their own markers.
        """
        consumer = self._consumer
        if consumer is None:
            if self._is_over:  # the topic is terminated
                last = MessageId(*self._last, self._partition)
                return last, last
            if self._error is not None:
                raise self._error
            raise ConnectionLost(f"reading {self.topic} was interrupted")
        if self._count:
            consumer.acknowledge_up_to(self._last)
        return await consumer.last()

    async def next(self) -> list[Entry]:
        """The received entries in order, at least one; [] at the end of the range."""
        return [entry for run in await self.next_runs() for entry in run.entries()]

    async def next_runs(self) -> list[EntryRun]:
        """The same as runs, for callers that do not need an object for each entry."""
        quiet_s = _QUIET_FIRST_S
        while not self._runs:
            if self.is_closed:
                raise Closed(f"the entry reader of {self.topic} is closed")
            if self._is_over:
                return []
            if self._error is not None:
                raise self._error
            if not await self._wait(quiet_s):
                quiet_s = min(quiet_s * 2, _QUIET_LAST_S)
                await self._check_silence()
        while not self._is_over and self._queued_bytes < HANDED_OUT_BYTES:
            before = len(self._runs)
            await asyncio.sleep(0)  # a turn of the loop reads from the socket
            if len(self._runs) == before:
                break
        runs, self._runs = self._runs, []
        self._queued_bytes = 0
        if self._bytes > _REMEMBERED_BYTES:
            self._bytes, self._messages, self._count = self._bytes // 2, self._messages // 2 + 1, self._count // 2 + 1
        self._refill()
        return runs

    async def _wait(self, seconds: float) -> bool:
        """Whether something changed in that time."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._waiter
        except TimeoutError:
            return False
        finally:
            self._waiter = None
        return True

    async def _check_silence(self) -> None:
        """After a silence: checks whether the rest of the range can still arrive."""
        consumer = self._consumer
        if consumer is None:
            return  # it reconnects
        if self._count:
            # The broker acknowledges its own markers, which it does not send: then the cursor is past them.
            consumer.acknowledge_up_to(self._last)
        try:
            await self._check_end(consumer)
        except ConnectionLost:
            return  # `on_lost` is called as well
        except ClientError:
            if consumer.is_open:
                raise

    def _refill(self) -> None:
        """Permits more once half of the window has arrived."""
        consumer = self._consumer
        if consumer is None or not self._is_requesting:
            return
        if not self._count:
            if self._permits <= 0:
                self._permits += FIRST_PERMITS
                consumer.flow(FIRST_PERMITS)
            return
        average = self._bytes / self._messages
        window = max(1, int(self._bytes_max / average))
        ledger_id, entry_id = self._end
        if ledger_id == self._last[0]:
            # Entries after the range would be dropped.
            left = int((entry_id - self._last[1]) * self._messages / self._count * 1.1) + 1
            window = min(window, left)
        wanted = window - max(self._permits, 0)
        if wanted * 2 >= window:
            consumer.flow(window - self._permits)
            self._permits = window
            consumer.acknowledge_up_to(self._last)


def _position_before(start: MessageId, *, inclusive: bool) -> Position:
    """The last position before the range. An entry that is partly in the range belongs to it."""
    ledger_id, entry_id = start.position
    if start.position == LATEST.position or entry_id < 0:
        return start.position
    is_inside_batch = start.batch_index >= 0 and not 0 < start.batch_size <= start.batch_index + 1
    return Position(ledger_id, entry_id - 1) if inclusive or is_inside_batch else start.position
