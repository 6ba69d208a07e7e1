"""Filters: the condition of a route policy, in Spark SQL over the columns of `format("pulsar")`.

Before each job, a query reads the new messages of a topic in a task and evaluates the condition; the copier then keeps
the messages for which it is true. Topics with the same condition and columns share a query. Owns the query, and the
errors of a condition that does not fit: one of its text is shown whole, one of messages without their values, since the
state of a route is for more roles than its messages. `where_task` reads, `allowed` decides what a condition may
contain, `suspects` knows those that ended Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow.compute as pc
from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType
from pyspark.sql.udtf import UserDefinedTableFunction

from magnetar.client import Client, MessageId, Schema
from magnetar.client.errors import ClientError
from magnetar.client.message import Position
from magnetar.names import TopicName
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.copy.errors import CopyError, SourceError
from magnetar.pipelines.filter.allowed import NotAllowed, check_analysed, check_parsed
from magnetar.pipelines.filter.suspects import Condition, ConditionSuspects
from magnetar.pipelines.filter.where_task import FAILURE, ROUTE, UP_TO, Reading, UnreadTopic
from magnetar.replication.model import Problem, State
from magnetar.spark.codec.avro.fields import UnsupportedSchema
from magnetar.spark.codec.columns import METADATA, ON_REQUEST, RAW_VALUE, SourceColumns
from magnetar.spark.codec.value_schema import common_schema
from magnetar.spark.errors import InvalidOption
from magnetar.spark.sink.sequence_ids import source_positions

if TYPE_CHECKING:
    import pyarrow as pa

PLANS_MAX = 256
_ALWAYS = ("__messageId", "__error")
_ERROR_SIZE_MAX = 500
_INDEX_BITS = 16

Key = tuple[str, str]
"""A topic and a remote cluster."""

_Kept = dict[Position, tuple[int, ...] | str]


class UnusableWhere(CopyError):
    """A condition that is not valid SQL, or does not fit the columns of the topic or their values."""

    def __init__(self, where: str, topic: str, reason: str) -> None:
        text = f"where {where!r} cannot be evaluated for {topic}: {reason}"
        super().__init__(State.STOPPED, text, problem=Problem.FILTER)


@dataclass(frozen=True)
class _Values:
    """The value columns of a topic."""

    schema: Schema | None
    fields: tuple[StructField, ...]

    @property
    def all_fields(self) -> list[StructField]:
        return [*self.fields, *(column.field for column in (*METADATA, *ON_REQUEST))]


class Filter:
    """The filters of one source cluster, on one Spark session. Thread-safe."""

    def __init__(self, spark: SparkSession, source: Client, suspects: ConditionSuspects | None = None) -> None:
        self._spark = spark
        self._source = source
        self._suspects = suspects or ConditionSuspects()
        self._plans: dict[tuple[str, str], tuple[str, ...] | str] = {}

    def prepare(
        self, assignments: Sequence[Assignment], starts: Mapping[Key, MessageId | None]
    ) -> tuple[list[Assignment], list[Outcome]]:
        """The assignments with the messages to keep, and the outcomes of those whose filter failed.

        `starts` are the copied positions of topics; a topic without one is read after its subscription. Raises
        `SparkFailed`.
        """
        ready = [assignment for assignment in assignments if not assignment.policy.where]
        failed: list[Outcome] = []
        groups: dict[tuple[Any, ...], list[Assignment]] = {}
        values: dict[Any, _Values] = {}
        for assignment in assignments:
            if not assignment.policy.where:
                continue
            condition = _condition(assignment)
            try:
                if stopped := self._suspects.reason_against(condition):
                    raise UnusableWhere(condition.where, assignment.topic, stopped)
                found = self._values(assignment.topic)
            except CopyError as error:
                failed.append(_outcome(assignment, error))
                continue
            apart = condition.namespace if self._suspects.is_suspect(condition) else ""
            key = (condition.where, assignment.source, _identity(found), apart)
            values[key] = found
            groups.setdefault(key, []).append(assignment)
        for key, group in groups.items():
            try:
                with self._suspects.evaluating({_condition(assignment) for assignment in group}):
                    done = self._query(group, values[key], starts)
            except CopyError as error:
                failed += [_outcome(assignment, error) for assignment in group]
                continue
            ready += [assignment for assignment in done if isinstance(assignment, Assignment)]
            failed += [outcome for outcome in done if isinstance(outcome, Outcome)]
        return ready, failed

    # -- columns

    def _values(self, topic: str) -> _Values:
        try:
            values = common_schema(self._source, [topic])
        except ClientError as error:
            raise SourceError(error) from error
        except (UnsupportedSchema, InvalidOption) as error:
            text = f"the values of {topic} have no columns for `where`: {error}"
            raise CopyError(State.STOPPED, text, problem=Problem.FILTER) from None
        if values is None:
            return _Values(None, (RAW_VALUE.field,))
        return _Values(values.schema, tuple(values.fields))

    def _needed(self, where: str, topic: str, values: _Values) -> tuple[str, ...]:
        """The columns in a condition, which is checked against all columns."""
        struct = StructType(values.all_fields)
        key = (where, struct.json())
        names = self._plans.get(key)
        if names is None:
            names = self._referred(where, struct)
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[key] = names
        if isinstance(names, str):
            raise UnusableWhere(where, topic, names)
        return names

    def _referred(self, where: str, struct: StructType) -> tuple[str, ...] | str:
        """The names of the columns, or the error of the condition, which is permanent."""
        try:
            called = check_parsed(self._spark, where)
            query = self._spark.createDataFrame([], struct).where(F.expr(where))
            plan = query._jdf.queryExecution().analyzed()
            check_analysed(self._spark, plan.condition(), called)
            return _referred(plan)
        except NotAllowed as error:
            return str(error)
        except PySparkException as error:
            return _text(error)
        except Py4JJavaError as error:  # such as a stack that is too small for it
            return _text(error)

    # -- the query

    def _query(
        self, group: Sequence[Assignment], values: _Values, starts: Mapping[Key, MessageId | None]
    ) -> list[Assignment | Outcome]:
        where, topic = group[0].policy.where, group[0].topic
        needed = self._needed(where, topic, values)
        fields = [field for field in values.all_fields if field.name in needed or field.name in _ALWAYS]
        unread = tuple(UnreadTopic(one.source, one.topic, one.subscription, starts.get(_key(one))) for one in group)
        reading = Reading(unread, SourceColumns(fields, [field.name for field in values.fields]), values.schema)
        try:
            table = _chosen(reading, where)
        except PythonException as error:
            raise CopyError(State.STOPPED, f"the filter of {topic} failed: {_name_in_python(str(error))}") from error
        except PySparkException as error:
            raise UnusableWhere(where, topic, _name(error)) from None
        except Py4JJavaError as error:  # such as no memory: only the routes with this condition have it
            raise CopyError(State.STOPPED, f"the filter of {topic} failed: {_name_in_java(error)}") from error
        return [_done(assignment, _of_route(table, route)) for route, assignment in enumerate(group)]


def _chosen(reading: Reading, where: str) -> pa.Table:
    """The ids of the messages for which the condition is true, and the rows about topics."""

    class Read:
        def eval(self):  # type: ignore[no-untyped-def]  # a worker would have to resolve the names of the types
            yield from reading.rows()

    is_report = F.col(UP_TO).isNotNull() | F.col(FAILURE).isNotNull() | F.col("__error").isNotNull()
    read = cast(UserDefinedTableFunction, F.arrow_udtf(Read, returnType=reading.struct))
    return read().where(is_report | F.expr(where)).select(ROUTE, UP_TO, FAILURE, *_ALWAYS).toArrow()


def _of_route(table: pa.Table, route: int) -> pa.Table:
    return table.filter(pc.equal(table[ROUTE], route))


def _done(assignment: Assignment, rows: pa.Table) -> Assignment | Outcome:
    failure = next((text for text in rows[FAILURE].to_pylist() if text is not None), None)
    if failure is not None:
        return _outcome(assignment, CopyError(State.STOPPED, failure))
    up_to = next(data for data in rows[UP_TO].to_pylist() if data is not None)
    messages = rows.filter(rows["__messageId"].is_valid())
    return msgspec.structs.replace(assignment, messages_kept=_kept(messages), until=MessageId.from_bytes(up_to))


def _kept(messages: pa.Table) -> _Kept:
    """By entry. Rows are in the order of the topic, except those of unreadable entries."""
    kept: _Kept = {}
    if not messages.num_rows:
        return kept
    chosen = source_positions("__messageId", messages["__messageId"].combine_chunks())
    entries = chosen.sequence_ids >> _INDEX_BITS
    indexes = chosen.sequence_ids & ((1 << _INDEX_BITS) - 1)
    is_next = (np.diff(entries) != 0) | (np.diff(chosen.ledgers) != 0)
    firsts = [0, *(np.flatnonzero(is_next) + 1).tolist()]
    for first, end in zip(firsts, [*firsts[1:], len(entries)], strict=True):
        kept[Position(int(chosen.ledgers[first]), int(entries[first]))] = tuple(indexes[first:end].tolist())
    errors = messages["__error"]
    if errors.null_count < len(errors):
        for row, text in enumerate(errors.to_pylist()):
            if text is not None:
                kept[Position(int(chosen.ledgers[row]), int(entries[row]))] = text
    return kept


def _outcome(assignment: Assignment, error: CopyError) -> Outcome:
    topic, remote = _key(assignment)
    return Outcome(
        topic,
        remote,
        is_behind=True,
        state=error.state,
        reason=error.reason,
        error=error.reason,
        problem=error.problem,
    )


def _key(assignment: Assignment) -> Key:
    return assignment.topic, assignment.remote.name


def _condition(assignment: Assignment) -> Condition:
    return Condition(TopicName.parse(assignment.topic).namespace_full, assignment.policy.where)


def _identity(values: _Values) -> object:
    """Topics with an equal identity share a query; schema versions are numbered per topic."""
    schema = values.schema
    return None if schema is None else (schema.type, schema.data, schema.version, tuple(schema.properties.items()))


def _referred(plan: Any) -> tuple[str, ...]:
    """The column names in a plan of the JVM: those of its filter, which is its root."""
    names, references = [], plan.references().iterator()
    while references.hasNext():
        names.append(references.next().name())
    return tuple(sorted(names))


# -- errors


def _text(error: Exception) -> str:
    """The error of a condition itself, without the pages around it. No message was read yet."""
    text = str(error)
    if isinstance(error, PySparkException):
        text = re.split(r"SQLSTATE:|== SQL|\nJVM stacktrace", text)[0]
    else:
        lines = [line.strip(" :") for line in text.splitlines() if line.strip()]
        text = next(
            (line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception)\b", line)),
            lines[0] if lines else "",
        )
    return " ".join(text.split())[:_ERROR_SIZE_MAX]


def _name(error: PySparkException) -> str:
    """The name of Spark's error, as CAST_INVALID_INPUT. Its text may have values of messages."""
    condition, state = error.getCondition(), error.getSqlState()
    if not condition:
        return type(error).__name__
    return f"{condition} (SQLSTATE {state})" if state else condition


def _name_in_java(error: Py4JJavaError) -> str:
    """The name of Spark's error, or the class of the first one."""
    cause, name = error.java_exception, "JavaError"
    with suppress(Py4JError, OSError):  # the JVM may be gone
        while cause is not None:
            if is_instance_of(SparkContext._gateway, cause, "org.apache.spark.SparkThrowable") and cause.getCondition():
                return str(cause.getCondition())
            name = cause.getClass().getName()
            cause = cause.getCause()
    return name


def _name_in_python(text: str) -> str:
    """The class of the first error in a worker."""
    found = re.search(r"^Traceback .*\n(?:[ \t].*\n)*([\w.]+)", text, re.MULTILINE)
    return found[1] if found else "PythonException"
