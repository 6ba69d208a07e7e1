"""The target of copies: the remote topic, with one producer for each ledger of the source, one after another.

Owns exactly-once: a copy has its entry id as sequence id, so the producer's last sequence id tells which entries the
remote topic has. That holds only if nothing is stored after an entry that was refused. Entries that a broker may refuse
(a size, a delivery time, an unencrypted entry) are therefore sent alone, until one like it was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from magnetar.client import AsyncClient
from magnetar.client.errors import (
    ChecksumRefused,
    ClientError,
    Conflict,
    IncompatibleSchema,
    MessageTooLarge,
    NotAllowed,
    NotSupported,
)
from magnetar.client.message import Position
from magnetar.client.produce.entry_producer import AsyncEntryProducer
from magnetar.clock import SystemClock
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copy_encoder import CopyEncoder
from magnetar.pipelines.copy.errors import remote_errors
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import PRODUCER_PREFIX, Problem
from magnetar.wire import schema_pb2 as pb

_PENDING_MAX = 10_000
_OPEN_S = 1.0
_SEND_S = 3.0

_OF_THE_MESSAGE = (NotAllowed, ChecksumRefused, IncompatibleSchema, MessageTooLarge, NotSupported)
"""Errors of a SEND that concern the entry, and not the topic or the broker."""

# The broker compares a delivery time with its own clock.
_DELAY_MARGIN_MS = 1000


class RemoteStateUnknown(Exception):
    """It is unknown which entries the remote topic has: a new producer learns it."""


class Target:
    """`refusals` has, by position, why an entry was refused; the caller passes it on to the next target."""

    def __init__(
        self,
        client: AsyncClient,
        assignment: Assignment,
        refusals: dict[Position, MessageRefused],
        pending_bytes_max: int,
    ) -> None:
        self._client = client
        self._assignment = assignment
        self._refusals = refusals
        self._pending_bytes_max = pending_bytes_max
        self._clock = SystemClock()
        self._ledger_id = -1
        self._size_taken = -1
        self._is_open_taken = False  # an unencrypted entry was accepted
        self._delay_taken_ms = -1
        self.producer: AsyncEntryProducer | None = None
        self.copies: CopyEncoder
        self.last_known = -1
        """Entries of the ledger up to here are stored."""

    async def open(self, ledger_id: int, schema: pb.Schema | None, *, is_ours: bool) -> AsyncEntryProducer:
        """The producer for the entries of a ledger; `is_ours`: for a Magnetar cluster. Raises `SchemaRefused` or
        `CopyError`.
        """
        if self.producer is not None:
            if self._ledger_id == ledger_id:
                return self.producer
            await self.flush()
            await self.close()
        assignment = self._assignment
        name = f"{PRODUCER_PREFIX}{assignment.source.name}/{assignment.topic}/{ledger_id}"
        with remote_errors():
            try:
                self.producer = await self._client.entry_producer(
                    assignment.target,
                    name=name,
                    deduplicated=True,
                    schema=schema,
                    pending_max=_PENDING_MAX,
                    pending_bytes_max=self._pending_bytes_max,
                    open_timeout_s=_OPEN_S,
                    send_timeout_s=_SEND_S,
                )
            except IncompatibleSchema as error:
                raise SchemaRefused(error) from None
        self._ledger_id = ledger_id
        self.last_known = self.producer.last_sequence_id
        self.copies = CopyEncoder(assignment.source.name, ledger_id, None if is_ours else name)
        return self.producer

    def is_open_for(self, ledger_id: int) -> bool:
        return self._ledger_id == ledger_id and self.producer is not None

    @property
    def size_safe(self) -> int:
        """A copy of a plain message up to this size will be accepted."""
        return self._size_taken if self._is_open_taken else -1

    async def send_plain(self, copies: Sequence[bytes], first_id: int) -> None:
        """Sends copies of plain messages up to `size_safe` bytes. Raises `RemoteStateUnknown` or `CopyError`."""
        assert self.producer is not None
        try:
            await self.producer.send_each(copies, first_id)
        except ClientError as error:
            self.failed(error)

    async def send(
        self, copy: bytes, entry_id: int, messages: int, *, is_encrypted: bool = False, deliver_at_ms: int = 0
    ) -> None:
        """Raises `MessageRefused`, `RemoteStateUnknown` or `CopyError`."""
        producer = self.producer
        assert producer is not None
        delay_ms = deliver_at_ms - self._clock.now_ms() if deliver_at_ms else 0
        is_safe = (
            len(copy) <= self._size_taken
            and (is_encrypted or self._is_open_taken)
            and delay_ms <= self._delay_taken_ms - _DELAY_MARGIN_MS * (delay_ms > 0)
        )
        try:
            await producer.send(copy, sequence_id=entry_id, highest_sequence_id=entry_id, messages=messages)
            if is_safe:
                return
            await producer.flush()
        except MessageTooLarge as error:
            if producer.refused_id is None:
                raise MessageRefused(error.text, Problem.SIZE) from None
            self.failed(error)
        except ClientError as error:
            self.failed(error)
        self._size_taken = max(self._size_taken, len(copy))
        self._is_open_taken = self._is_open_taken or not is_encrypted
        self._delay_taken_ms = max(self._delay_taken_ms, delay_ms, 0)

    def failed(self, error: ClientError) -> None:
        """Raises `RemoteStateUnknown` or `CopyError` for an error of the producer."""
        producer = self.producer
        assert producer is not None
        if producer.refused_id is not None and isinstance(error, _OF_THE_MESSAGE):
            problem = Problem.SIZE if isinstance(error, MessageTooLarge) else Problem.MESSAGE
            refused = MessageRefused(error.text, problem)
            self._refusals[Position(self._ledger_id, producer.refused_id)] = refused
            raise RemoteStateUnknown from error
        if isinstance(error, Conflict):
            raise RemoteStateUnknown from error
        with remote_errors():
            raise error

    async def flush(self) -> None:
        """Returns when all copies are stored. Raises `RemoteStateUnknown` or `CopyError`."""
        if self.producer is not None:
            try:
                await self.producer.flush()
            except ClientError as error:
                self.failed(error)

    def stored(self) -> Position | None:
        """The last stored position of those sent; None if all are stored."""
        if self.producer is None or self.producer.is_settled:
            return None
        return Position(self._ledger_id, self.producer.last_stored_id)

    async def close(self) -> None:
        """A broker that is gone is no error."""
        producer, self.producer = self.producer, None
        if producer is not None:
            with suppress(ClientError):
                await producer.close()


class SchemaRefused(Exception):
    """The remote topic does not accept a producer with this schema, or without one."""

    def __init__(self, error: IncompatibleSchema) -> None:
        super().__init__(error.text)
        self.error = error
