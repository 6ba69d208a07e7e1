"""SQL and DataFrame transforms: the messages of a round as the view `messages`, and its rows as outputs.

Owns which transforms are possible: those whose rows each come from one message, and stay where it was read. Rows that
Spark cannot compute fail the whole job: the driver runs smaller parts until the message is alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from magnetar.deadletter.fingerprint import fingerprint
from magnetar.deadletter.properties import ERROR_MAX, Reason
from magnetar.deadletter.stamp import Raised
from magnetar.pipelines.jobs import failure_text
from magnetar.pipelines.processing.call.function import InvalidProcess
from magnetar.pipelines.processing.call.message import EVENT_TIME, KEY, MESSAGE_ID, PROPERTIES, PUBLISH_TIME, TOPIC
from magnetar.pipelines.processing.call.outcome import CallOutcome, Failure
from magnetar.pipelines.processing.task import RoundTask, TaskResult
from magnetar.pipelines.processing.worker.stage import ProcessStage, Stage
from magnetar.spark.runtime.map_in_arrow import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "messages"
Transform = Callable[["DataFrame"], "DataFrame"]

Accumulators = tuple[Any, Any]
"""Of readable and unreadable messages."""

POSITION = (MESSAGE_ID, TOPIC)
_ADDED = (*POSITION, KEY, EVENT_TIME)
_COLUMNS = (KEY, PROPERTIES, EVENT_TIME, MESSAGE_ID, TOPIC, PUBLISH_TIME)
_COUNTED = "name string, number long"

_SELECT = re.compile(r"\s*select\b(?!\s+distinct\b)", re.IGNORECASE)
_WHOLE = re.compile(
    r"^[\s:+|-]*(Aggregate|GlobalLimit|LocalLimit|Sort|Window|Distinct|Deduplicate|Sample|Union|Except|Intersect)\b",
    re.MULTILINE,
)
_SHUFFLE = re.compile(r"(?<!Broadcast)\bExchange\b")
OF_BROKER = "magnetar.client.errors."
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


class RowsFailed(Exception):
    """Spark could not compute a row, or it does not match the schema of the target."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.description)
        self.failure = failure


class UnwritableResult(Exception):
    """A row of the result that the target's schema does not describe."""


class Transformer:
    """Runs one transform for each round. `check` says why one cannot work, before the first."""

    def __init__(self, spark: SparkSession, stage: ProcessStage, transform: Transform | str) -> None:
        self._spark = spark
        self._stage = stage
        self._transform = transform
        columns = stage.source.columns
        fields = [field for field in columns.struct.fields if field.name in columns.value_names]
        fields += [field for field in columns.struct.fields if field.name in _COLUMNS]
        self._struct = StructType([StructField(field.name, field.dataType) for field in fields])
        self._sql = transform if isinstance(transform, str) else ""

    def check(self) -> None:
        """Raises `InvalidProcess`."""
        found = self._result(())
        missing = [name for name in POSITION if name not in found.columns]
        if missing and self._sql and _SELECT.match(self._sql):
            self._sql = self._with_added(found)
            try:
                found = self._result(())
            except InvalidProcess as error:
                raise InvalidProcess(
                    f"the rows of the query do not come from one message each: {MESSAGE_ID} and {TOPIC} cannot be"
                    f" added to it ({error})"
                ) from error
            missing = []
        if missing:
            raise InvalidProcess(f"the result has no column {', '.join(missing)}: keep {MESSAGE_ID} and {TOPIC}")
        self._check_plan(found)

    def _with_added(self, found: DataFrame) -> str:
        names = ", ".join(name for name in _ADDED if name not in found.columns)
        return _SELECT.sub(lambda match: f"{match[0]} {names}, ", self._sql, count=1)

    @staticmethod
    def _check_plan(found: DataFrame) -> None:
        """A row must stay in the task that read its message: an output and its acknowledgement are one."""
        execution = found._jdf.queryExecution()
        if match := _WHOLE.search(execution.optimizedPlan().toString()):
            raise InvalidProcess(f"the transform has {match[1]}, which needs more than one message at a time")
        if _SHUFFLE.search(execution.executedPlan().toString()):
            raise InvalidProcess(
                "the transform moves rows between tasks: only filters, expressions, explode and joins with a"
                " broadcast table can be used"
            )

    def run(self, tasks: Sequence[RoundTask]) -> list[TaskResult]:
        """Raises `RowsFailed`; other errors are those of Spark."""
        context = self._spark.sparkContext
        read = (context.accumulator(0), context.accumulator(0))
        try:
            result = self._result(tasks, read)
            rows = map_in_arrow(result, partial(_write, self._stage, tasks[0].is_retry), _COUNTED).collect()
        except Exception as error:
            if (failure := _failure(error)) is None:
                raise
            raise RowsFailed(failure) from error
        found = [TaskResult() for _ in tasks]
        readable, unreadable = (int(each.value) for each in read)
        found[0].read = readable + unreadable
        found[0].count("processed", readable)
        for name in ("unreadable", "dead"):
            found[0].count(name, unreadable)
        for row in rows:
            found[0].count(row["name"], row["number"])
        return found

    def _result(self, tasks: Sequence[RoundTask], read: Accumulators | None = None) -> DataFrame:
        parts = max(1, len(tasks))
        numbers = self._spark.range(0, parts, 1, parts)
        messages = map_in_arrow(numbers, partial(_read, self._stage, tuple(tasks), self._struct, read), self._struct)
        try:
            if callable(self._transform):
                return self._transform(messages)
            messages.createOrReplaceTempView(VIEW)
            return self._spark.sql(self._sql)
        except PySparkException as error:
            raise InvalidProcess(f"the transform cannot be used: {_first_line(error)}") from error


def _read(
    stage: ProcessStage,
    tasks: Sequence[RoundTask],
    struct: StructType,
    read: Accumulators | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The messages of tasks by number; unreadable ones are dead letters at once."""
    names = struct.fieldNames()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if number < len(tasks) and read is not None:
                result = TaskResult()
                readable, unreadable = read
                for found in Stage(stage, tasks[number], result).readable():
                    readable.add(found.num_rows)
                    yield found.select(names)
                unreadable.add(result.counts.get("unreadable", 0))


def _write(stage: ProcessStage, is_retry: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One move task for each topic that messages came from."""
    result = TaskResult()
    with stage.writer(is_retry=is_retry) as writer:
        for batch in batches:
            if batch.num_rows:
                outcome = CallOutcome(batches=[(batch, list(range(batch.num_rows)))])
                result.count("produced", writer.write_outputs(batch, outcome))
                for failure in outcome.failures.values():
                    raise UnwritableResult(failure.description)
        writer.finish()
    names, numbers = list(result.counts), list(result.counts.values())
    yield pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), pa.array(numbers, pa.int64())], names=["name", "number"]
    )


def _failure(error: Exception) -> Failure | None:
    """None for an error that says nothing about the messages: of a broker, or of a worker that died."""
    text = str(error)
    if isinstance(error, InvalidProcess) or OF_BROKER in text:
        return None
    known = _ERROR_CLASS.search(text)
    if UnwritableResult.__name__ in text:
        name, line = "UnencodableValue", _line_with(text, UnwritableResult.__name__)
    elif known is not None:
        name, line = known[1], _line_with(text, known[0])
    else:
        return None
    raised = Raised(exception=name, text=line[:ERROR_MAX], stack_trace="", fingerprint=fingerprint(name, line))
    return Failure(Reason.ProcessingFailed, f"the query failed: {line}"[:ERROR_MAX], raised, (name,))


def _line_with(text: str, word: str) -> str:
    return next((line.strip() for line in text.splitlines() if word in line), failure_text(Exception(text)))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:1000]
