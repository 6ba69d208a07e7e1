"""Frames of a redrive: the letters of some ranges that match its condition, as the rows that the stage takes.

Owns which columns are built, and the checks of the SQL. Sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from magnetar.errors import InvalidSetting
from magnetar.pipelines.filter.allowed import NotAllowed, check_analysed, check_parsed
from magnetar.pipelines.redrive.assignments import ColumnAssignment
from magnetar.pipelines.redrive.rows import IS_QUARANTINED, NEEDED, NEEDED_BY_EDITS, outgoing
from magnetar.spark.dead_letters.letter_session import sentence_of
from magnetar.spark.dead_letters.letters import LETTER_COLUMNS, PAYLOAD, PAYLOAD_JSON, letters_of, payload_type
from magnetar.spark.dead_letters.plan import LetterPlan, LetterRange
from magnetar.spark.source.entry_range import split_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_WORDS = re.compile(r"[A-Za-z_]\w*")
_COUNTED_ENTRIES_MIN = 10_000  # below it a task costs more than it saves


class LetterFrames:
    """`is_trusted`: the SQL may call any function. `is_repeatable`: it has to decide in the same way each time.
    Conditions and expressions are checked by `check`."""

    def __init__(
        self,
        spark: SparkSession,
        plan: LetterPlan,
        *,
        where: str,
        assignments: tuple[ColumnAssignment, ...],
        generations_max: int,
        to: str,
        is_edited: bool,
        is_trusted: bool,
        is_repeatable: bool,
        published_until_ms: int,
    ) -> None:
        self.plan = plan
        self._spark = spark
        self._where = where
        self._assignments = assignments
        self._generations_max = generations_max
        self._to = to
        self._is_edited = is_edited
        self._is_trusted = is_trusted
        self._is_repeatable = is_repeatable
        self._published_until_ms = published_until_ms

    def check(self) -> None:
        """Raises `InvalidSetting` for SQL that is wrong, or not allowed."""
        expressions = [("where", self._where)] if self._where else []
        expressions += [(f"set {one.column}", one.expression) for one in self._assignments]
        for name, expression in expressions:
            self._check(name, expression)
        try:
            self.rows(()).schema  # noqa: B018  which Spark analyses
        except (AnalysisException, ParseException) as error:
            raise InvalidSetting(f"the SQL of the redrive is wrong: {sentence_of(str(error))}") from None

    def _check(self, name: str, expression: str) -> None:
        from pyspark.sql import functions as F

        try:
            called = frozenset() if self._is_trusted else check_parsed(self._spark, expression)
            empty = self._spark.createDataFrame([], self._letters(()).schema)
            frame = empty.select(F.expr(expression).alias("checked"))
            kind = frame.schema["checked"].dataType.simpleString()
            if not self._is_trusted:
                check_analysed(self._spark, _analysed(frame), called)
        except NotAllowed as error:
            raise InvalidSetting(f"{name} {expression!r} {error}") from None
        except (AnalysisException, ParseException) as error:
            raise InvalidSetting(f"{name} {expression!r} is wrong: {sentence_of(str(error))}") from None
        if self._is_repeatable and not _analysed(frame).deterministic():
            raise InvalidSetting(
                f"{name} {expression!r} decides otherwise each time, and Apache Pulsar recognizes messages that were"
                " sent before by their order: accept that an interrupted redrive sends some twice with --at-least-once"
            )
        if name == "where" and kind != "boolean":
            raise InvalidSetting(f"where {expression!r} is {kind}: a condition is required")

    # -- frames

    def survey(self, ranges: Sequence[LetterRange]) -> DataFrame:
        """The letters that match, counted by dead letter topic and origin."""
        columns = ("letter_topic", "topic", "partition", "subscription", "generation", "published")
        letters = self._matching(self._spread(ranges), columns)
        letters = letters.selectExpr("*", f"generation >= {self._generations_max} as {IS_QUARANTINED}")
        return letters.groupBy("letter_topic", "topic", "partition", "subscription", IS_QUARANTINED).count()

    def _spread(self, ranges: Sequence[LetterRange]) -> list[LetterRange]:
        """In parts that are counted at the same time, where there are fewer ranges than cores."""
        each = self._spark.sparkContext.defaultParallelism // max(1, len(ranges))
        return [
            replace(one, span=span) for one in ranges for span in split_ranges([one.span], each, _COUNTED_ENTRIES_MIN)
        ]

    def rows(self, ranges: Sequence[LetterRange]) -> DataFrame:
        """The rows of the stage."""
        needed = (*NEEDED, *NEEDED_BY_EDITS) if self._is_edited else NEEDED
        return self._outgoing(self._matching(ranges, needed), is_edited=self._is_edited)

    def _outgoing(self, letters: DataFrame, *, is_edited: bool) -> DataFrame:
        return outgoing(
            letters,
            generations_max=self._generations_max,
            assignments=self._assignments,
            to=self._to,
            is_edited=is_edited,
        )

    def samples(self, limit: int) -> tuple[DataFrame, DataFrame]:
        """Some letters as they are, and the same as rows."""
        names = [column.name for column in LETTER_COLUMNS if not column.name.startswith("__")]
        letters = self._matching(self.plan.ranges, [*names, *NEEDED]).limit(limit)
        return letters, self._outgoing(letters, is_edited=True)

    def _matching(self, ranges: Sequence[LetterRange], columns: Sequence[str]) -> DataFrame:
        letters = self._letters(ranges, columns)
        letters = letters.where(f"published <= timestamp_millis({self._published_until_ms})")
        return letters.where(self._where) if self._where else letters

    def _letters(self, ranges: Sequence[LetterRange], columns: Sequence[str] = NEEDED) -> DataFrame:
        from pyspark.sql import functions as F

        texts = (self._where, *(one.expression for one in self._assignments))
        words = {word.lower() for text in texts for word in _WORDS.findall(text)}
        named = [column.name for column in LETTER_COLUMNS if column.name.lower() in words]
        is_typed = PAYLOAD in words
        names = list(dict.fromkeys([*columns, *named, *([PAYLOAD_JSON] if is_typed else [])]))
        letters = letters_of(self._spark, replace(self.plan, ranges=tuple(ranges)), names)
        if not is_typed:
            return letters
        record = self._payload_type
        typed = F.col(PAYLOAD_JSON) if record is None else F.from_json(F.col(PAYLOAD_JSON), record)
        return letters.withColumn(PAYLOAD, typed)

    @cached_property
    def _payload_type(self) -> StructType | None:
        """Of the first letters of all topics; None if their payloads are no records."""
        return payload_type(self.plan)


def _analysed(frame: DataFrame) -> Any:
    """The only expression of the projection, in Java."""
    return frame._jdf.queryExecution().analyzed().projectList().head()
