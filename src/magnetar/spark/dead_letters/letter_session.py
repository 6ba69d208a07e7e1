"""A Spark session for commands over dead letters: queries over the view `letters`, and their errors in one sentence.

Owns the check of a query before anything is read, and what is left of Spark's error texts. Parses no SQL and prints
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.captured import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from magnetar.errors import MagnetarError
from magnetar.spark.dead_letters.letters import LETTER_COLUMNS, PAYLOAD, letters_of
from magnetar.spark.dead_letters.plan import LetterPlan

VIEW = "letters"
COLUMN_NAMES = (*(column.name for column in LETTER_COLUMNS), PAYLOAD)

_CHEAPEST = "kind"  # a column for queries that need none
_SENTENCE_MAX = 500
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"^\[([\w.]+)\]\s*")
_CONTEXT = re.compile(r"== SQL \(line (\d+), position (\d+)\)")
_PLACE = re.compile(r"line (\d+),? pos (\d+)")


class QueryFailed(MagnetarError):
    """Spark rejected a query, or failed to run it; the text is one sentence."""


class LetterSession:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def tasks(self) -> tuple[int, int] | None:
        """Those of the running stages that are done, and all of them; None while none runs."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        found = [stage for stage in stages if stage is not None]
        return (sum(one.numCompletedTasks for one in found), sum(one.numTasks for one in found)) if found else None

    def check(self, text: str, what: str = "SQL") -> None:
        """Before anything is read. Fields of `payload` are known later. Raises `QueryFailed`, beginning with `what`."""
        fields = [*(column.field for column in LETTER_COLUMNS), StructField(PAYLOAD, StringType())]
        self.spark.createDataFrame([], StructType(fields)).createOrReplaceTempView(VIEW)
        with reduced(what):
            try:
                self.spark.sql(text)
            except AnalysisException as error:
                if PAYLOAD not in text.lower() or (error.getCondition() or "").startswith("PARSE"):
                    raise

    def query(self, plan: LetterPlan, text: str, columns: Sequence[str], limit: int) -> tuple[list[str], list[Row]]:
        """The names of the result's columns, and up to `limit` rows. `columns` are those that the query names."""
        with reduced("SQL"):
            letters_of(self.spark, plan, list(columns) or [_CHEAPEST]).createOrReplaceTempView(VIEW)
            found = self.spark.sql(text).limit(limit)
            return found.columns, found.collect()

    def samples(self, plan: LetterPlan, where: str | None, names: Sequence[str], columns: set[str]) -> list[Row]:
        """Up to five letters; `columns` are those that the condition names."""
        with reduced("--where"):
            letters = letters_of(self.spark, plan, [*names, *sorted(columns - set(names))])
            return (letters if where is None else letters.where(where)).select(*names).limit(5).collect()


@contextmanager
def reduced(what: str) -> Iterator[None]:
    """A block whose errors of Spark become `QueryFailed`, beginning with `what`."""
    try:
        yield
    except PythonException as error:
        lines = [line for line in str(error).strip().splitlines() if line and not line.startswith(" ")]
        raise QueryFailed(f"{what}: {lines[-1] if lines else error}"[:_SENTENCE_MAX]) from error
    except PySparkException as error:
        raise QueryFailed(f"{what}: {sentence_of(str(error))}") from error


def sentence_of(text: str) -> str:
    """`[CONDITION] Sentence. SQLSTATE: 42703; line 1 pos 7;\n'Plan` as `sentence (line 1, position 8)`."""
    context = _CONTEXT.search(text)
    head = text.partition("\n== SQL")[0].partition("\nJVM stacktrace")[0].partition(";\n")[0]
    sentence = _CONDITION.sub("", " ".join(line.strip() for line in head.splitlines() if line.strip()))
    at = _PLACE.search(sentence)
    sentence = _STATE.sub("", re.sub(r"[;,]?\s*\(?line \d+,? pos \d+\)?;?.*$", "", sentence)).rstrip(" .;")
    sentence = sentence if sentence[:2].isupper() or sentence[1:2] == " " else sentence[:1].lower() + sentence[1:]
    if context is not None:
        return f"{sentence[:_SENTENCE_MAX]} (line {context[1]}, position {context[2]})"
    return sentence[:_SENTENCE_MAX] + (f" (line {at[1]}, position {int(at[2]) + 1})" if at else "")
