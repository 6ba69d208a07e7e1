"""Refused letters: entries that the remote cluster refused, in a dead letter topic of the source cluster (GR8).

Owns the name of the topic, `{topic}-{remote}-REPL-DLQ`. An entry stays whole and gets the properties of a dead letter,
as does each message of a readable batch. It is stored once: producer name and sequence id are its position.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from magnetar.client import AsyncClient
from magnetar.client.consume.entry import Entry
from magnetar.client.errors import ClientError, Conflict, MessageTooLarge
from magnetar.client.produce.entry_producer import AsyncEntryProducer
from magnetar.clock import SystemClock
from magnetar.deadletter.properties import FailureRecord
from magnetar.deadletter.stamp import set_publisher, stamp
from magnetar.names import TopicName
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.errors import SourceError
from magnetar.replication.model import PARKED_SUFFIX, PRODUCER_PREFIX
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import batch_messages_of, pack_batch
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import MetadataError, build_blob, split_blob

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

REASON = "ReplicationRefused"
"""The code in DEATH_REASON."""

_TRIES = 3
_OPEN_S = 1.0
_SEND_S = 3.0


def refused_topic(topic: str, remote: str) -> str:
    """One for all partitions of a topic."""
    return f"{TopicName.parse(topic).base.full}-{remote}{PARKED_SUFFIX}"


class RefusedLetters:
    """The refused entries of one assignment."""

    def __init__(self, client: AsyncClient, assignment: Assignment) -> None:
        self._client = client
        self._assignment = assignment
        self._topic = refused_topic(assignment.topic, assignment.remote.name)
        self._clock = SystemClock()
        self._producer: AsyncEntryProducer | None = None
        self._ledger_id = -1

    async def add(self, entry: Entry, reason: str) -> None:
        """Returns when the entry is stored. Raises `CopyError`."""
        try:
            for attempt in range(_TRIES):
                try:
                    return await self._add(entry, reason)
                except Conflict:  # it was sent twice, so it may be stored
                    if attempt == _TRIES - 1:
                        raise
                    await self.close()
        except ClientError as error:
            raise SourceError(
                error, f"refused entry {entry.id} cannot be stored in {self._topic} ({reason})"
            ) from error

    async def _add(self, entry: Entry, reason: str) -> None:
        producer = await self._opened(entry.id.ledger_id)
        entry_id = entry.id.entry_id
        if entry_id <= max(producer.last_sequence_id, producer.last_stored_id):
            return
        letter = self._letter(entry, reason, producer.name)
        try:
            await self._send(producer, letter, entry_id)
        except MessageTooLarge:  # because of the properties
            await self._send(producer, self._letter(entry, reason, producer.name, opens=False), entry_id)

    async def _send(self, producer: AsyncEntryProducer, letter: tuple[bytes, int], entry_id: int) -> None:
        blob, messages = letter
        await producer.send(blob, sequence_id=entry_id, highest_sequence_id=entry_id, messages=messages)
        await producer.flush()

    async def _opened(self, ledger_id: int) -> AsyncEntryProducer:
        if self._producer is None or self._ledger_id != ledger_id or self._producer.error is not None:
            await self.close()
            assignment = self._assignment
            self._producer = await self._client.entry_producer(
                self._topic,
                name=f"{PRODUCER_PREFIX}parked/{assignment.remote.name}/{assignment.topic}/{ledger_id}",
                deduplicated=True,
                open_timeout_s=_OPEN_S,
                send_timeout_s=_SEND_S,
            )
            self._ledger_id = ledger_id
        return self._producer

    async def close(self) -> None:
        """A broker that is gone is no error."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(ClientError):
                await producer.close()

    # -- the letter

    def _letter(self, entry: Entry, reason: str, producer: str, *, opens: bool = True) -> tuple[bytes, int]:
        """The entry to store, and the number of its messages."""
        try:
            metadata, payload = split_blob(entry.blob)
        except MetadataError:
            metadata, payload = pb.MessageMetadata(), entry.blob
        messages = max(1, metadata.num_messages_in_batch)
        set_publisher(metadata, producer, entry.id.entry_id)
        if not metadata.HasField("publish_time"):
            metadata.publish_time = self._clock.now_ms()
        if opens and metadata.HasField("num_messages_in_batch"):
            payload = self._batch(entry, metadata, payload, reason)
        self._stamp(metadata.properties, entry, -1, reason)
        return build_blob(metadata, payload), messages

    def _batch(self, entry: Entry, metadata: pb.MessageMetadata, payload: bytes, reason: str) -> bytes:
        try:
            messages = list(batch_messages_of(metadata, payload))
        except EntryError:
            return payload
        for index, (single, _) in enumerate(messages):
            self._stamp(single.properties, entry, index, reason)
        return pack_batch(metadata, messages)

    def _stamp(
        self, properties: RepeatedCompositeFieldContainer[pb.KeyValue], entry: Entry, index: int, reason: str
    ) -> None:
        now_ms = self._clock.now_ms()
        failure = FailureRecord(
            topic=entry.topic,
            subscription=self._assignment.subscription,
            reason=REASON,
            count=1,
            first=now_ms,
            last=now_ms,
        )
        stamp(properties, failure, str(entry.id) + (f":{index}" if index >= 0 else ""), reason)
