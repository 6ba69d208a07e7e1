"""The split of a frame by rules: good rows, and bad rows with the reason.

A rule is a condition that a bad row fulfils. Owns the columns `__reason` and `__description`, and the mark by which a
pipeline finds the split in a plan. Writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from magnetar.deadletter.properties import Reason
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import shortened
from magnetar.spark.sink.columns import ERROR

REASON, DESCRIPTION = "__reason", "__description"

SPLIT_MARK = "magnetar_split_"
"""Beginning of the alias that a split has in a plan."""

RULES_MAX = 100
_NAME_MAX = 100
_CONDITION_MAX = 10_000


class Split(NamedTuple):
    """Every row is in exactly one of them."""

    good: DataFrame
    """The columns of the frame that was split."""
    bad: DataFrame
    """`__reason`, `__description`, and all columns of the frame that was split."""


def split(frame: DataFrame, rules: Mapping[str, str | Column], *, unreadable: str = Reason.Unreadable.value) -> Split:
    """Splits a frame, streaming or not, by rules: reasons with their conditions, in SQL or as columns.

    The reason of a bad row is the first rule whose condition is true; one that is null does not hold. A row that could
    not be read (`onUnreadable` = row) has the reason `unreadable`, whatever its other columns are.
    """
    _check_frame(frame)
    _check_names(rules, unreadable)
    conditions = {name: _condition(frame, name, rule) for name, rule in rules.items()}
    branches = [(conditions[name], name, F.lit(_description(name, rule))) for name, rule in rules.items()]
    if ERROR in frame.columns:
        branches.insert(0, (F.col(ERROR).isNotNull(), unreadable, F.col(ERROR)))
    if not branches:
        raise InvalidOption(f"no rules: name at least one, or read the column {ERROR} with option onUnreadable=row")
    decision = F.lit(None).cast("struct<reason: string, description: string>")
    for condition, name, description in reversed(branches):
        found = F.struct(F.lit(name).alias("reason"), description.alias("description"))
        decision = F.when(condition, found).otherwise(decision)
    return _split_by(frame, decision)


def _split_by(frame: DataFrame, decision: Column) -> Split:
    """Decides once per row: conditions may have another value the next time."""
    decided = frame.select(decision.alias("__decision"), "*")
    columns = [F.col(_quoted(name)) for name in frame.columns]
    reason, description = F.col("__decision.reason"), F.col("__decision.description")
    routed = decided.select(reason.alias(REASON), description.alias(DESCRIPTION), *columns)
    marked = routed.alias(f"{SPLIT_MARK}{uuid.uuid4().hex}")
    is_bad = F.col(REASON).isNotNull()
    return Split(marked.where(~is_bad).drop(REASON, DESCRIPTION), marked.where(is_bad))


def _check_frame(frame: DataFrame) -> None:
    if not isinstance(frame, DataFrame):
        raise InvalidOption(f"{shortened(frame)} is not a DataFrame")
    names = [name.lower() for name in frame.columns]
    for name in frame.columns:
        if names.count(name.lower()) > 1:
            raise InvalidOption(f"column {name} occurs {names.count(name.lower())} times: rename or drop one of them")
        if name.lower() in (REASON, DESCRIPTION):
            raise InvalidOption(f"column {name} exists already: it has the reason of an earlier split; drop it first")


def _check_names(rules: Mapping[str, str | Column], unreadable: str) -> None:
    if len(rules) > RULES_MAX:
        raise InvalidOption(f"{len(rules)} rules exceed the limit of {RULES_MAX}")
    for name in (*rules, unreadable):
        if not isinstance(name, str) or not name.strip() or len(name) > _NAME_MAX:
            raise InvalidOption(f"reason {shortened(name)} is not a text of 1 to {_NAME_MAX} characters")
    if unreadable in rules:
        raise InvalidOption(f"rule {unreadable} has the reason of rows that could not be read: rename one of them")


def _condition(frame: DataFrame, name: str, rule: str | Column) -> Column:
    """The condition of a rule, which is false instead of null; raises `InvalidOption`, which names the rule."""
    if not isinstance(rule, str | Column) or (isinstance(rule, str) and not rule.strip()):
        raise InvalidOption(f"rule {name} is {shortened(rule)}: it must be a condition in SQL, or a column")
    if isinstance(rule, str) and len(rule) > _CONDITION_MAX:
        raise InvalidOption(f"rule {name} has {len(rule)} characters, more than {_CONDITION_MAX}")
    try:
        condition = F.expr(rule) if isinstance(rule, str) else rule
        kind = frame.select("*", condition.alias("__condition")).schema["__condition"].dataType.simpleString()
    except ParseException as error:
        raise InvalidOption(f"rule {name} is not a condition in SQL: {_first_line(error)}") from None
    except AnalysisException as error:
        raise InvalidOption(f"rule {name}: {_first_line(error)}") from None
    if kind != "boolean":
        raise InvalidOption(f"rule {name} is {kind}: it must be a condition, which is true or false")
    return F.coalesce(condition, F.lit(False))


def _first_line(error: Exception) -> str:
    """The sentence of an error of Spark, which names the column, without its code and the plan below it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def _description(name: str, rule: str | Column) -> str:
    text = rule if isinstance(rule, str) else str(rule).removeprefix("Column<'").removesuffix("'>")
    return f"rule {name}: {' '.join(text.split())}"[:1000]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
