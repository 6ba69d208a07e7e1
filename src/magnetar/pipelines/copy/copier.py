"""The copier: copies the entries of topics to remote clusters for a short time, in a Spark task or anywhere else.

Owns the order of steps: read after the acknowledged position, store the copies remotely, acknowledge what is stored.
Nothing but that position outlives a task; another one, in any process, continues from it. The scheduler decides which
topics are copied when.
"""

from __future__ import annotations

import time
from contextlib import suppress

from magnetar.client import EARLIEST, AsyncCursor, AsyncEntryReader, Entry, MessageId
from magnetar.client.connection.retry import within
from magnetar.client.consume.entry import EntryRun
from magnetar.client.errors import ClientError
from magnetar.client.gather import gather
from magnetar.client.message import Position
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.pipelines.clusters import OPERATION_S, Clusters, clusters
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.copy.changes import Changes
from magnetar.pipelines.copy.copy_encoder import ParsedEntry, is_for, parse_entry
from magnetar.pipelines.copy.errors import CopyError, SourceError, from_remote, remote_errors, source_errors
from magnetar.pipelines.copy.refused import RefusedLetters
from magnetar.pipelines.copy.schemas import Schemas
from magnetar.pipelines.copy.target import RemoteStateUnknown, SchemaRefused, Target
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import (
    ROUTE_FINGERPRINT,
    Problem,
    Refusal,
    State,
    is_replication_subscription,
    route_fingerprint,
)

_ACKNOWLEDGED_EVERY_S = 0.2
_TRIES = 5
"""Restarts of one assignment after the remote topic had other entries than expected."""

_FETCHED_BYTES = 32 << 20
"""The bytes in transit for all assignments of a task, from the source and to the remote cluster."""
_FETCHED_BYTES_MIN = 1 << 20
_FETCHED_BYTES_MAX = 4 << 20

_OVERTIME_S = 0.1
"""For entries that were requested before the time was over: the source would have to send them again."""


def copy(assignments: list[Assignment], slice_s: float, linger_s: float) -> list[Outcome]:
    """Copies all of them at the same time, for at most `slice_s`, or until none has had entries for `linger_s`.

    The outcomes are in the order of the assignments. An error of one is in its outcome, and the others continue.
    """
    own = clusters()
    return own.loop.run(_copy_all(own, assignments, slice_s, linger_s))


async def _copy_all(own: Clusters, assignments: list[Assignment], slice_s: float, linger_s: float) -> list[Outcome]:
    fetched = _FETCHED_BYTES // max(1, len(assignments))
    bytes_max = min(max(fetched, _FETCHED_BYTES_MIN), _FETCHED_BYTES_MAX)
    pace = Pace(time.monotonic(), slice_s, linger_s)
    copiers = [Copier(own, assignment, pace, bytes_max) for assignment in assignments]
    outcomes = await gather(copier.run() for copier in copiers)
    for endpoint in {copier.unresponsive for copier in copiers} - {None}:
        assert endpoint is not None
        await own.forget(endpoint)
    return outcomes


class Pace:
    """The end of a task, which all its topics share: none is copied again before all have ended."""

    __slots__ = ("_entries_s", "deadline_s", "linger_s")

    def __init__(self, now_s: float, slice_s: float, linger_s: float) -> None:
        self.deadline_s = now_s + slice_s
        self.linger_s = linger_s
        self._entries_s = now_s

    def saw_entries(self, now_s: float) -> None:
        self._entries_s = max(self._entries_s, now_s)

    def is_silent(self, now_s: float) -> bool:
        return now_s - self._entries_s >= self.linger_s


class Copier:
    """One assignment. Entries up to `_handled` are sent, skipped or dead-lettered; up to `_acked`, acknowledged."""

    def __init__(self, own: Clusters, assignment: Assignment, pace: Pace, bytes_max: int) -> None:
        self.assignment = assignment
        self.outcome = Outcome(topic=assignment.topic, remote=assignment.remote.name)
        self.unresponsive: ClusterEndpoint | None = None
        """The cluster that did not reply, if one did not."""
        self._own = own
        self._pace = pace
        self._deadline_s = pace.deadline_s
        self._linger_s = pace.linger_s
        self._bytes_max = bytes_max
        self._refusals: dict[Position, MessageRefused] = {}
        self._partition = TopicName.parse(assignment.topic).partition
        self._is_ours = True
        self._cursor: AsyncCursor | None = None
        self._reader: AsyncEntryReader | None = None
        self._handled = Position(-1, -1)
        self._acked = Position(-1, -1)
        self._acked_at_s = time.monotonic()

    async def run(self) -> Outcome:
        try:
            self._prepare()
            try:
                await self._copy()
            except CopyError:
                await self._acknowledge_what_is_stored()
                raise
            finally:
                await self._close()
        except CopyError as error:
            self._note(error)
        outcome = self.outcome
        if self._acked >= (0, -1):
            outcome.acked = self._id(self._acked)
        if outcome.state is State.RUNNING and outcome.is_behind:
            outcome.state = State.CATCHING_UP
        return outcome

    def _prepare(self) -> None:
        """An unusable address or credential is reported like any other error."""
        assignment = self.assignment
        with source_errors():
            self._source = self._own.client(assignment.source)
        with remote_errors():
            self._remote = self._own.client(assignment.remote)
        self._schemas = Schemas(assignment, self._source, self._remote)
        self._changes = Changes(assignment, self._schemas)
        self._refused_letters = RefusedLetters(self._source, assignment)
        self._target = self._new_target()

    def _note(self, error: CopyError) -> None:
        if error.is_timeout:
            self.unresponsive = self.assignment.source if isinstance(error, SourceError) else self.assignment.remote
        self.outcome.state = error.state
        self.outcome.reason = error.reason
        self.outcome.error = error.reason
        self.outcome.problem = error.problem
        self.outcome.is_behind = True

    def _new_target(self) -> Target:
        return Target(self._remote, self.assignment, self._refusals, self._bytes_max)

    # -- beginning and end

    async def _copy(self) -> None:
        _, position = await gather((self._check_remote(), self._open_cursor()))
        self._acked = position
        for _ in range(_TRIES):
            self._handled = self._acked
            try:
                until = self.assignment.until
                await (self._copy_new_entries() if until is None else self._copy_range(until))
                return
            except RemoteStateUnknown as look:
                self.outcome.error = str(look.__cause__ or look)
                await self._acknowledge_what_is_stored()
                await self._target.close()
                await self._close_reader()
                self._target = self._new_target()
        raise CopyError(State.REFUSED, f"gave up after {_TRIES} attempts: {self.outcome.error}")

    async def _check_remote(self) -> Position:
        """Checks the topic before a producer is opened, which would create it."""
        endpoint = self.assignment.remote
        try:
            target = TopicName.parse(self.assignment.target)
        except InvalidName as error:
            raise CopyError(State.REFUSED, str(error)) from None
        partitions = await from_remote(self._remote.partition_count(target.base.full))
        if partitions is None:
            raise CopyError(State.WAITING, f"{target.base.full} does not exist in the remote cluster {endpoint.name}")
        if not (target.partition < partitions if target.is_partition else partitions == 0):
            shape = f"has {partitions} partitions" if partitions else "is not partitioned"
            raise CopyError(
                State.MISMATCH,
                f"{target.base.full} {shape} in the remote cluster {endpoint.name}: {target.full} does not exist",
            )
        self._is_ours = await from_remote(self._own.is_ours(endpoint, target.full))
        if not self._is_ours:
            await self._check_deduplication(target.full)
        return Position(-1, -1)

    async def _check_deduplication(self, topic: str) -> None:
        endpoint = self.assignment.remote
        deduplicates = await from_remote(self._own.deduplicates(endpoint, topic))
        if deduplicates is False:
            raise CopyError(
                State.REFUSED,
                f"{topic} has no deduplication in the remote cluster {endpoint.name}, so entries cannot be copied"
                " exactly once: enable deduplication there for the topic, its namespace or the brokers",
            )
        if deduplicates is None:
            why = "we are not authorized" if endpoint.admin_url else "it has no HTTP address"
            self.outcome.reason = (
                f"the deduplication of {topic} in the remote cluster {endpoint.name} is unknown ({why}): without it,"
                " entries may be duplicated after a crash"
            )

    async def _open_cursor(self) -> Position:
        with source_errors():
            assignment = self.assignment
            self._cursor = await self._source.cursor(
                assignment.topic, assignment.subscription, initial_position=EARLIEST
            )
            return (await self._cursor.position()).position

    async def _close(self) -> None:
        """Errors are ignored: the broker is gone."""
        await gather((self._target.close(), self._refused_letters.close(), self._close_reader(), self._leave()))

    async def _leave(self) -> None:
        if self._cursor is not None:
            with suppress(ClientError):
                await self._cursor.close_and_wait()

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    @property
    def _mark(self) -> dict[str, str]:
        """The broker disconnects a consumer with an outdated fingerprint; a source that declares nothing has none."""
        assignment = self.assignment
        is_declared = is_replication_subscription(assignment.subscription)
        return {ROUTE_FINGERPRINT: route_fingerprint(assignment.remote.name, assignment.policy)} if is_declared else {}

    def _id(self, position: Position) -> MessageId:
        return MessageId(*position, self._partition)

    # -- entries

    async def _copy_range(self, until: MessageId) -> None:
        """Up to its end, or until the time is over."""
        with source_errors():
            start = self._id(self._acked)
            reader = await self._source.entries(
                self.assignment.topic, start, until, bytes_max=self._bytes_max, properties=self._mark
            )
        self._reader = reader
        while True:
            with source_errors():
                runs = await reader.next_runs()
            if not runs:
                self._handled = max(self._handled, until.position)
                break
            if await self._copy_runs(runs) >= self._deadline_s:
                self.outcome.is_behind = self._handled < until.position
                break
        await self._target.flush()
        with source_errors():
            await self._acknowledge()

    async def _copy_new_entries(self) -> None:
        """Until the time is over, or all is copied and no topic of the task had entries for a while."""
        with source_errors():
            start = self._id(self._acked)
            reader = await self._source.entries_after(
                self.assignment.topic, start, bytes_max=self._bytes_max, properties=self._mark
            )
        self._reader = reader
        wait_s = self._linger_s
        wanted: Position | None = None
        while wait_s > 0:
            with source_errors():
                runs = await reader.runs_within(wait_s)
            now_s = await self._copy_runs(runs)
            if runs:
                self._pace.saw_entries(now_s)
            if now_s < self._deadline_s:
                if self._pace.is_silent(now_s) and await self._last_position(reader) <= self._handled:
                    break
                wait_s = min(self._linger_s, self._deadline_s - now_s)
                continue
            is_late = wanted is not None
            if wanted is None:
                wanted = await self._last_position(reader)
                reader.stop_requesting()
            if reader.is_drained or (is_late and not runs):
                break
            wait_s = self._deadline_s + _OVERTIME_S - now_s
        await self._target.flush()
        await self._last_position(reader)
        # A busy topic always has more entries: those that were stored when the time was over count.
        self.outcome.is_behind = wanted is not None and wanted > self._handled
        with source_errors():
            await self._acknowledge()

    async def _last_position(self, reader: AsyncEntryReader) -> Position:
        """The last position of the source topic now."""
        with source_errors():
            last, received = await reader.progress()
        if not reader.has_entries:
            # Markers are not delivered: they are handled when all entries before them are.
            self._handled = max(self._handled, received.position)
        return last.position

    async def _copy_runs(self, runs: list[EntryRun]) -> float:
        """The time after it."""
        for run in runs:
            await self._copy_run(run)
        now_s = time.monotonic()
        if now_s - self._acked_at_s > _ACKNOWLEDGED_EVERY_S:
            self._acknowledge_soon(now_s)
        return now_s

    async def _copy_run(self, run: EntryRun) -> None:
        """The hot path: plain messages are copied without being parsed, and without a request."""
        blobs, ledger_id, first_id = run.blobs, run.ledger_id, run.entry_id
        index = 0
        while index < len(blobs):
            target = self._target
            if target.is_open_for(ledger_id) and not self._refusals:
                if first_id + index <= target.last_known:
                    index = min(len(blobs), target.last_known + 1 - first_id)
                    self._handled = Position(ledger_id, first_id + index - 1)
                    continue
                if self._changes.is_plain:
                    copies = target.copies.plain(blobs, index, first_id, target.size_safe)
                    if copies:
                        await target.send_plain(copies, first_id + index)
                        self._count(len(copies), len(copies), sum(map(len, copies)))
                        index += len(copies)
                        self._handled = Position(ledger_id, first_id + index - 1)
                        continue
            await self._copy_entry(run.entry(index))
            self._handled = Position(ledger_id, first_id + index)
            index += 1

    def _count(self, entries: int, messages: int, size: int) -> None:
        self.outcome.entries += entries
        self.outcome.messages += messages
        self.outcome.bytes += size

    async def _copy_entry(self, entry: Entry) -> None:
        try:
            refusal = self._refusals.pop(entry.id.position, None) if self._refusals else None
            if refusal is not None:
                raise refusal
            await self._send(entry)
        except MessageRefused as refused:
            await self._refuse(entry, refused)

    async def _send(self, entry: Entry) -> None:
        content = parse_entry(entry.blob)
        if not is_for(content.metadata, self.assignment.remote.name):
            self.outcome.skipped += 1
            return
        target, outcome, entry_id = self._target, self.outcome, entry.id.entry_id
        await self._open_target(entry.id.ledger_id, content)
        if entry_id <= target.last_known:
            return
        version = await self._remote_version(content.version) if content.version else b""
        changed = await self._changes.changed(entry, content)
        if changed is None:
            outcome.skipped += 1
            return
        copied = target.copies.special(changed, entry_id, version)
        metadata = changed.metadata
        await target.send(
            copied,
            entry_id,
            changed.messages,
            is_encrypted=bool(metadata.encryption_keys),
            deliver_at_ms=metadata.deliver_at_time,
        )
        self._count(1, changed.messages, len(copied))

    async def _remote_version(self, version: bytes) -> bytes:
        with source_errors():
            await self._schemas.source(version)
        with remote_errors():
            return await self._schemas.remote_version(version)

    async def _open_target(self, ledger_id: int, content: ParsedEntry) -> None:
        if self._target.is_open_for(ledger_id):
            return
        version = content.version
        refusal = self._schemas.is_refused(version)
        if refusal is not None:
            raise MessageRefused(refusal, Problem.SCHEMA)
        with source_errors():
            schema = await self._schemas.wire(version)
        try:
            producer = await self._target.open(ledger_id, schema, is_ours=self._is_ours)
        except SchemaRefused as refused:
            raise self._schemas.refused(version, refused.error) from None
        self._schemas.check(version, producer.schema_version)

    # -- refused entries

    async def _refuse(self, entry: Entry, refused: MessageRefused) -> None:
        """By the route policy. Earlier entries are stored first, so that one position describes the progress."""
        assignment, outcome, reason = self.assignment, self.outcome, str(refused)
        outcome.error = f"entry {entry.id} of {assignment.topic}: {reason}"
        await self._target.flush()
        match assignment.policy.refused:
            case Refusal.STOP:
                raise CopyError(State.REFUSED, outcome.error, problem=refused.problem)
            case Refusal.PARK:
                await self._refused_letters.add(entry, reason)
                outcome.dead_lettered += 1
            case Refusal.SKIP:
                outcome.skipped += 1

    # -- acknowledging

    def _done(self) -> Position:
        stored = self._target.stored()
        if stored is None:
            return self._handled
        return max(self._acked, stored) if stored[1] >= 0 else self._acked

    def _acknowledge_soon(self, now_s: float) -> None:
        done = self._done()
        self._acked_at_s = now_s
        if done > self._acked and self._cursor is not None:
            self._cursor.acknowledge_soon(self._id(done))
            self._acked = done

    async def _acknowledge(self) -> None:
        """Returns when the source has stored it, so that the reported progress is durable."""
        done = self._done()
        if self._cursor is not None and done > (-1, -1) and done[1] >= 0:
            await self._cursor.acknowledge_up_to(self._id(done))
        self._acked = max(self._acked, done)

    async def _acknowledge_what_is_stored(self) -> None:
        try:
            async with within(OPERATION_S, "acknowledging"):
                await self._acknowledge()
        except ClientError as error:
            self.outcome.error = error.text
