"""Repair of a remote topic: publishes the copies that are missing.

They come after later entries, which cannot be avoided, and have a property about it. `copy_encoder`, `schemas` and
`transform` create the copies. Never deletes anything.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from magnetar.client.consume.entry import Entry
from magnetar.client.produce.entry_producer import AsyncEntryProducer
from magnetar.pipelines.clusters import Clusters
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copy_encoder import CopyEncoder, ParsedEntry, parse_entry
from magnetar.pipelines.copy.schemas import Schemas
from magnetar.pipelines.transform.transform import Transform
from magnetar.pipelines.verify.comparison import PositionSet
from magnetar.replication.model import PRODUCER_PREFIX
from magnetar.replication.route import applied_changes

REPAIRED = "magnetar.repaired"
"""Property of a copy that a repair published: the id of the repair."""

_OPEN_S = 10.0
_SEND_S = 30.0


class Repair:
    """The repair of one topic or partition. `published` is the number of stored entries."""

    def __init__(self, clusters: Clusters, assignment: Assignment) -> None:
        self.published = 0
        self._clusters = clusters
        self._assignment = assignment
        self._remote = clusters.client(assignment.remote)
        self._schemas = Schemas(assignment, clusters.client(assignment.source), self._remote)
        self._transform = Transform(assignment.policy, assignment.topic, self._schemas.known)
        self._changes = bool(applied_changes(assignment.policy))
        # Not the producer name of replication: the target would drop entries that are out of order.
        self._name = f"{PRODUCER_PREFIX}{assignment.source.name}/{assignment.topic}/repair-{secrets.token_hex(6)}"
        self._sender: tuple[int, bytes] | None = None
        self._producer: AsyncEntryProducer | None = None
        self._copies: CopyEncoder
        self._sent = 0

    def run(self, entries: Iterator[list[Entry]], missing: PositionSet) -> None:
        """Raises `ClientError` or `MessageRefused`; entries stored by then stay."""
        run = self._clusters.loop.run
        is_ours = run(self._clusters.is_ours(self._assignment.remote, self._assignment.target))
        try:
            for some in entries:
                for entry in some:
                    if entry.id.position in missing:
                        run(self._publish(entry, is_ours=is_ours))
            run(self._flush())
        finally:
            if self._producer is not None:
                run(self._producer.close())

    async def _publish(self, entry: Entry, *, is_ours: bool) -> None:
        found = parse_entry(entry.blob)
        version = await self._schemas.remote_version(found.version) if found.version else b""
        ledger_id, entry_id = entry.id.position
        producer = await self._producer_for(ledger_id, found.version, is_ours=is_ours)
        changed = await self._changed(found)
        if changed is None:
            return
        changed.metadata.properties.add(key=REPAIRED, value=self._name.rpartition("-")[2])
        copy = self._copies.special(changed, entry_id, version)
        messages = changed.messages
        await producer.send(copy, sequence_id=entry_id, highest_sequence_id=entry_id, messages=messages)
        self._sent += 1

    async def _changed(self, entry: ParsedEntry) -> ParsedEntry | None:
        """The entry after the changes of the route policy."""
        if not self._changes:
            return entry
        if entry.version:
            await self._schemas.source(entry.version)
        applied = self._transform.apply(entry.metadata, entry.payload)
        return None if applied is None else ParsedEntry(*applied, entry.version)

    async def _producer_for(self, ledger_id: int, version: bytes, *, is_ours: bool) -> AsyncEntryProducer:
        """One for each ledger and schema, one after another, so that the order is kept."""
        if self._producer is None or self._sender != (ledger_id, version):
            if self._producer is not None:
                await self._flush()
                await self._producer.close()
            name = f"{self._name}/{ledger_id}" + (f"/{version.hex()}" if version else "")
            self._producer = await self._remote.entry_producer(
                self._assignment.target,
                name=name,
                schema=await self._schemas.wire(version),
                open_timeout_s=_OPEN_S,
                send_timeout_s=_SEND_S,
            )
            self._sender = (ledger_id, version)
            self._copies = CopyEncoder(self._assignment.source.name, ledger_id, None if is_ours else name)
        return self._producer

    async def _flush(self) -> None:
        if self._producer is not None:
            await self._producer.flush()
            self.published = self._sent
