"""The stage of a redrive in a worker: edits letters, sends each to its target, and reports what became of them.

Spark calls it with the rows of one partition of a dead letter topic, in order. Decides nothing about targets: see
`origins`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.client.connection.retry import is_retriable
from magnetar.client.errors import ClientError
from magnetar.client.message import MessageId
from magnetar.deadletter.redriven import ANY_ORIGIN, OriginKey
from magnetar.names import TopicName
from magnetar.pipelines.moving.task import ONLY, MoveScope, MoveTask
from magnetar.pipelines.redrive.assignments import ColumnAssignment
from magnetar.pipelines.redrive.edit import EditFailed, Edits, Letter, PayloadCodec, load_function
from magnetar.pipelines.redrive.handled import handled_text
from magnetar.pipelines.redrive.rows import ASSIGNED, IS_QUARANTINED
from magnetar.schema.types import Schema, SchemaType
from magnetar.spark.clients import inline_client
from magnetar.spark.sink.columns import ERROR, MESSAGE_ID, SOURCE_TOPIC, TOPIC
from magnetar.spark.sink.options import SinkOptions
from magnetar.wire.moves import ALL_SUBSCRIPTIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

    from magnetar.client.inline import InlineClient

REPORT = "outcome string, name string, messages long, positions string"
"""The columns that the stage returns."""

SENT, QUARANTINED, KEPT, HANDLED = "sent", "quarantined", "kept", "handled"

_OPENING = "cannot be read: "  # before this, an error names the letter
_CODECS_MAX = 256
_KINDS_MAX = 100  # of reasons for keeping letters, in one report


class RedriveTarget(NamedTuple):
    """Where letters of an origin go, or why they stay: then `problem` says it."""

    topic: str = ""
    only: str = ""
    problem: str = ""


@dataclass(frozen=True)
class RedriveStage:
    """What the workers need, and nothing of the driver. `pipeline` begins the names of producers."""

    options: Mapping[str, str]
    pipeline: str
    targets: Mapping[OriginKey, RedriveTarget]
    quarantines: Mapping[str, str]
    """By dead letter topic, without a partition."""
    is_ours: bool
    deduplicates: bool
    assignments: tuple[ColumnAssignment, ...] = ()
    function: str | Any = ""
    """`module:function`, or the function itself."""

    @property
    def edits(self) -> Edits:
        function = load_function(self.function) if isinstance(self.function, str) and self.function else self.function
        return Edits(self.assignments, function or None)


def redrive_rows(plan: RedriveStage, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    stage = _Stage(plan)
    try:
        for batch in batches:
            if batch.num_rows:
                stage.take(batch)
        stage.finish()
    finally:
        stage.close()
    yield stage.report()


class _Stage:
    def __init__(self, plan: RedriveStage) -> None:
        self._plan = plan
        self._sink = SinkOptions.of(plan.options)
        self._client = inline_client(self._sink.client)
        edits = plan.edits
        self._editor = _Editor(self._client, edits) if edits.assignments or edits.function else None
        self._tasks: dict[str, MoveTask] = {}  # by dead letter topic
        self._sent: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._quarantined = 0
        self._handled: dict[str, list[bytes]] = {}  # message ids by partition, for a cluster without moves

    def take(self, batch: pa.RecordBatch) -> None:
        for source, part in _by_source(batch):
            self._take(source, part)

    def _take(self, source: str, letters: pa.RecordBatch) -> None:
        errors = letters.column(ERROR)
        if errors.null_count < len(errors):  # it has no value here, and a message without one would be another
            for error in errors.drop_null().to_pylist():
                self._keep(f"the letter cannot be opened: {error.rpartition(_OPENING)[2]}")
            letters = letters.filter(errors.is_null())
            if not letters.num_rows:
                return
        targets, codes = self._targets(source, letters)
        is_sent = np.array([not one.problem for one in targets])[codes]
        for code, count in enumerate(np.bincount(codes, minlength=len(targets)).tolist()):
            if targets[code].problem:
                self._keep(targets[code].problem, count)
        rows = pa.array(codes)
        columns = {name: letters.column(name) for name in _OUT}
        columns[TOPIC] = pa.array([one.topic for one in targets], pa.string()).take(rows)
        columns[ONLY] = pa.array([one.only or None for one in targets], pa.string()).take(rows)
        outgoing = pa.RecordBatch.from_pydict(columns).filter(pa.array(is_sent))
        if self._editor is not None:
            outgoing = self._edited(outgoing, letters.filter(pa.array(is_sent)))
        self._quarantined += pc.sum(letters.column(IS_QUARANTINED)).as_py() or 0
        if outgoing.num_rows:
            self._write(source, outgoing)

    def _targets(self, source: str, letters: pa.RecordBatch) -> tuple[list[RedriveTarget], NDArray[np.int64]]:
        """The different targets, and the one of each row."""
        columns = [letters.column(name) for name in ("topic", "partition", "subscription", IS_QUARANTINED)]
        encoded = [column.dictionary_encode() for column in columns]
        combined = np.zeros(len(letters), np.int64)
        for column in encoded:
            codes = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
            combined = combined * (len(column.dictionary) + 1) + codes
        _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
        return [self._target(source, *(column[row].as_py() for column in columns)) for row in first.tolist()], codes

    def _target(
        self, source: str, topic: str | None, partition: int | None, subscription: str | None, is_quarantined: bool
    ) -> RedriveTarget:
        if is_quarantined:
            return RedriveTarget(self._plan.quarantines[source])
        targets, origin = self._plan.targets, OriginKey(topic, partition, subscription)
        found = targets.get(origin) or targets.get(ANY_ORIGIN)
        return found or RedriveTarget(problem=f"the origin {topic} was not known when the redrive began")

    def _keep(self, problem: str, count: int = 1) -> None:
        known = problem in self._kept or len(self._kept) < _KINDS_MAX
        self._kept[problem if known else "other reasons"] += count

    def _edited(self, outgoing: pa.RecordBatch, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Letters that an edit does not fit stay where they are; those in quarantine are not edited."""
        assert self._editor is not None
        rows = outgoing.to_pylist()
        kept: list[dict[str, Any]] = []
        for row, letter in zip(rows, letters.to_pylist(), strict=True):
            try:
                is_left = not letter[IS_QUARANTINED] and not self._editor.edit(row, letter)
            except EditFailed as failure:
                self._keep(str(failure))
                continue
            if is_left:
                self._keep("the function left it where it is")
            else:
                kept.append(row)
        return pa.RecordBatch.from_pylist(kept, schema=outgoing.schema)

    def _write(self, source: str, outgoing: pa.RecordBatch) -> None:
        task = self._tasks.get(source)
        if task is None:
            task = self._tasks[source] = self._new_task(source, outgoing.schema)
        task.write(outgoing)
        if not self._plan.is_ours:
            for partition, part in _runs(outgoing):
                self._handled.setdefault(partition, []).extend(part.column(MESSAGE_ID).to_pylist())

    def _new_task(self, source: str, schema: pa.Schema) -> MoveTask:
        from pyspark.sql.pandas.types import from_arrow_schema

        struct: StructType = from_arrow_schema(schema)
        scope = MoveScope(self._plan.pipeline, source, ALL_SUBSCRIPTIONS, self._plan.is_ours, self._plan.deduplicates)
        return MoveTask(self._client, self._sink, struct, scope)

    def finish(self) -> None:
        for task in self._tasks.values():
            self._sent.update(task.finish().topics)

    def close(self) -> None:
        for task in self._tasks.values():
            try:
                task.close()
            except ClientError:
                continue

    def report(self) -> pa.RecordBatch:
        rows: list[tuple[str, str, int, str | None]]
        rows = [(SENT, name, count, None) for name, count in self._sent.items()]
        rows.append((QUARANTINED, "", self._quarantined, None))
        rows += [(KEPT, name, count, None) for name, count in self._kept.items()]
        rows += [(HANDLED, partition, len(ids), _text(ids)) for partition, ids in self._handled.items()]
        names = ("outcome", "name", "messages", "positions")
        types = (pa.string(), pa.string(), pa.int64(), pa.string())
        columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        return pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=list(names)
        )


class PreviewRow(NamedTuple):
    """What would become of a letter; `row` is None if it stays, for `problem`."""

    message_id: str
    row: dict[str, Any] | None
    target: str = ""
    problem: str = ""


class _Preview(_Stage):
    """Sends nothing."""

    def __init__(self, plan: RedriveStage) -> None:
        super().__init__(plan)
        self._rows: list[dict[str, Any]] = []
        self._problem = ""

    def of(self, letter: pa.RecordBatch) -> PreviewRow:
        self._rows, self._problem = [], ""
        self.take(letter)
        message_id = letter.column("message_id")[0].as_py()
        for row in self._rows:
            return PreviewRow(message_id, row, row.pop(TOPIC))
        return PreviewRow(message_id, None, problem=self._problem)

    def _keep(self, problem: str, count: int = 1) -> None:
        self._problem = problem

    def _write(self, source: str, outgoing: pa.RecordBatch) -> None:
        self._rows = outgoing.to_pylist()


def preview_rows(plan: RedriveStage, letters: pa.Table) -> list[PreviewRow]:
    """In the driver, for a few letters."""
    preview = _Preview(plan)
    batches = letters.combine_chunks().to_batches()
    return [preview.of(batch.slice(row, 1)) for batch in batches for row in range(batch.num_rows)]


_OUT = (
    MESSAGE_ID,
    SOURCE_TOPIC,
    "__schemaVersion",
    "__key",
    "__orderingKey",
    "__eventTime",
    "value",
    "__messageProperties",
)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Neighbours of the same partition."""
    encoded = batch.column(SOURCE_TOPIC).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(starts):
        yield encoded.dictionary[int(codes[start])].as_py(), batch.slice(start, end - start)


def _by_source(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """By dead letter topic, without a partition."""
    for partition, part in _runs(batch):
        yield TopicName.parse(partition).base.full, part


def _text(ids: list[bytes]) -> str:
    return handled_text(map(MessageId.from_bytes, ids))


class _Editor:
    """Edits rows as Python values. Payloads are decoded by the version of the schema that they were written with."""

    def __init__(self, client: InlineClient, edits: Edits) -> None:
        self._client = client
        self._edits = edits
        self._codecs: dict[tuple[str, int | None], PayloadCodec] = {}

    def edit(self, row: dict[str, Any], letter: dict[str, Any]) -> bool:
        """Changes the row; False if the letter stays where it is. Raises `EditFailed`."""
        edited, codec = _letter(row, letter), None
        if self._edits.decodes:
            codec = self._codec(letter["topic"], row["__schemaVersion"])
            edited.payload = codec.decode(row["value"])
        found = self._edits.apply(edited, letter.get(ASSIGNED))
        if found is None:
            return False
        row["value"] = found.payload if codec is None else codec.encode(found.payload)
        row["__key"] = found.key.encode() if isinstance(found.key, str) else found.key
        row["__orderingKey"], row["__eventTime"] = found.ordering_key, _moment(found.event_time_ms)
        row["__messageProperties"] = list(found.properties.items())
        return True

    def _codec(self, topic: str | None, version: int | None) -> PayloadCodec:
        key = (topic or "", version)
        codec = self._codecs.get(key)
        if codec is None:
            if len(self._codecs) >= _CODECS_MAX:
                self._codecs.clear()
            codec = self._codecs[key] = PayloadCodec(self._schema(topic, version))
        return codec

    def _schema(self, topic: str | None, version: int | None) -> Schema | None:
        if topic is None or version is None:
            return None
        try:
            found = self._client.run(self._client.client.schema(topic, version.to_bytes(8, "big")))
        except ClientError as error:
            if is_retriable(error):  # then the round is repeated
                raise
            raise EditFailed(f"the schema of {topic} is not known: {error.text}") from error
        if found is None:
            return None
        return Schema(SchemaType[found.type], found.data, found.properties)


def _letter(row: dict[str, Any], letter: dict[str, Any]) -> Letter:
    time = row["__eventTime"]
    return Letter(
        payload=row["value"],
        key=_key(row["__key"]),
        properties=dict(row["__messageProperties"]),
        event_time_ms=None if time is None else round(time.timestamp() * 1000),
        ordering_key=row["__orderingKey"],
        topic=letter["topic"] or "",
        subscription=letter["subscription"] or "",
        reason=letter["reason"] or "",
        error=letter["error"] or "",
        exception=letter["exception"] or "",
        generation=letter["generation"],
        message_id=letter["message_id"],
    )


def _key(key: bytes | None) -> str | bytes | None:
    """Text where it is text."""
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _moment(time_ms: int | None) -> Any:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)
