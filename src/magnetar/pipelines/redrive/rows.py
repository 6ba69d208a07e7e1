"""Rows of a redrive in SQL: from the columns of letters to those of the messages that they become.

States in SQL what `deadletter.redriven` does to a single message. Targets and edits come after it, in the `stage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.deadletter.properties import DEATH_HISTORY, REDRIVE_GENERATION, REDRIVE_SUBSCRIPTION
from magnetar.deadletter.redriven import QUARANTINED, RESET
from magnetar.pipelines.redrive.assignments import ColumnAssignment, assigned_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IS_QUARANTINED = "__isQuarantined"
ASSIGNED = "__assigned"

_KEPT = ("__messageId", "__sourceTopic", "__schemaVersion", "__key", "__orderingKey", "value", "__error")
_OF_ORIGINS = ("topic", "partition", "subscription")
_OF_EDITS = ("generation", "reason", "error", "exception", "message_id")

NEEDED = ("properties", "published", "event_time", "count", "generation", "reason", "error", *_OF_ORIGINS, *_KEPT)
"""The columns of letters that it takes."""

NEEDED_BY_EDITS = ("exception", "message_id")
"""More of them for letters that are edited."""


def outgoing(
    letters: DataFrame, *, generations_max: int, assignments: tuple[ColumnAssignment, ...], to: str, is_edited: bool
) -> DataFrame:
    """The rows that the stage takes. `to` is the only target; empty for the origin of each letter."""
    quarantined = f"generation >= {generations_max}"
    columns = [
        *_KEPT,
        "event_time as __eventTime",
        *_OF_ORIGINS,
        *(_OF_EDITS if is_edited else ()),
        f"{quarantined} as {IS_QUARANTINED}",
        f"if({quarantined}, {_in_quarantine(generations_max)}, {_alive(to)}) as __messageProperties",
    ]
    if assignments:
        columns.append(f"{assigned_column(assignments)} as {ASSIGNED}")
    return letters.selectExpr(*columns)


def _in_quarantine(generations_max: int) -> str:
    reason = f"concat('redriven ', generation, ' times, the limit is {generations_max}')"
    return (
        f"map_concat(map_filter(properties, (name, text) -> name != '{QUARANTINED}'), map('{QUARANTINED}', {reason}))"
    )


def _alive(to: str) -> str:
    names = ", ".join(f"'{name}'" for name in RESET)
    added = [f"map('{REDRIVE_GENERATION}', string(generation + 1))"]
    if not to:
        added.append(f"if(subscription is null, map(), map('{REDRIVE_SUBSCRIPTION}', subscription))")
    kept = f"map_filter(properties, (name, text) -> name not in ({names}))"
    return f"map_concat({kept}, {', '.join(added)}, {_history()})"


def _history() -> str:
    """The first death of a letter whose client wrote none."""
    record = (
        "array(named_struct('topic', topic, 'subscription', coalesce(subscription, ''), 'reason', reason,"
        " 'count', coalesce(count, 0), 'first', unix_millis(published), 'last', unix_millis(published),"
        " 'error', left(error, 200)))"
    )
    has_one = f"map_contains_key(properties, '{DEATH_HISTORY}') or topic is null"
    return f"if({has_one}, map(), map('{DEATH_HISTORY}', to_json({record})))"
