"""Assignments of a redrive: `payload.amount = abs(payload.amount)`, in SQL on the right.

Owns what can be assigned. The expressions are evaluated by Spark, as one JSON column; `edit` applies their values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.errors import InvalidSetting

ASSIGNMENTS_MAX = 50
_SIZE_MAX = 10_000

WHOLE = ("key", "ordering_key", "event_time", "value", "payload")
"""Columns that are assigned as a whole."""

_TARGET = re.compile(
    rf"\s*(?P<whole>{'|'.join(WHOLE)})\s*"
    r"|\s*payload\.(?P<path>[A-Za-z_][\w]*(?:\.[A-Za-z_][\w]*)*)\s*"
    r"|\s*properties\.(?P<name>[\w.-]+)\s*"
    r"|\s*properties\[\s*'(?P<quoted>[^']+)'\s*\]\s*"
)


@dataclass(frozen=True)
class ColumnAssignment:
    """`column` is one of `WHOLE` or `properties`; `path` are the fields of the payload, or the name of a property."""

    column: str
    path: tuple[str, ...]
    expression: str


def parse_assignment(text: str) -> ColumnAssignment:
    """Raises `InvalidSetting`, which names what can be assigned."""
    target, separator, expression = text.partition("=")
    match = _TARGET.fullmatch(target)
    if len(text) > _SIZE_MAX:
        raise InvalidSetting(f"assignment of {len(text)} characters exceeds the limit of {_SIZE_MAX}")
    if not separator or not expression.strip() or expression.startswith("="):
        raise InvalidSetting(f"assignment {text!r} is not of the form COLUMN = EXPRESSION")
    if match is None:
        raise InvalidSetting(
            f"assignment {text!r}: {target.strip()!r} cannot be assigned, but {', '.join(WHOLE)}, payload.FIELD,"
            " properties.NAME and properties['NAME'] can"
        )
    expression = expression.strip()
    if match["whole"]:
        return ColumnAssignment(match["whole"], (), expression)
    if match["path"]:
        return ColumnAssignment("payload", tuple(match["path"].split(".")), expression)
    return ColumnAssignment("properties", (match["name"] or match["quoted"],), expression)


def parse_assignments(texts: Sequence[str]) -> tuple[ColumnAssignment, ...]:
    """Raises `InvalidSetting` also if one assignment would overwrite another."""
    if len(texts) > ASSIGNMENTS_MAX:
        raise InvalidSetting(f"{len(texts)} assignments exceed the limit of {ASSIGNMENTS_MAX}")
    found = tuple(map(parse_assignment, texts))
    bodies = [(one.column, one.path) for one in found if one.column in ("payload", "value")]
    for number, one in enumerate(found):
        for other in found[:number]:
            if _overlap((one.column, one.path), (other.column, other.path)):
                raise InvalidSetting(f"assignment {texts[number]!r} overwrites {texts[found.index(other)]!r}")
    if ("value", ()) in bodies and len(bodies) > 1:
        raise InvalidSetting("assignments to value, the bytes of a payload, and to payload exclude each other")
    return found


def _overlap(one: tuple[str, tuple[str, ...]], other: tuple[str, tuple[str, ...]]) -> bool:
    shared = min(len(one[1]), len(other[1]))
    return one[0] == other[0] and one[1][:shared] == other[1][:shared]


def assigned_column(assignments: Sequence[ColumnAssignment]) -> str:
    """The SQL of a column with the values of all assignments, as JSON by their numbers."""
    fields = ", ".join(f"'{number}', {one.expression}" for number, one in enumerate(assignments))
    return f"to_json(named_struct({fields}), map('ignoreNullFields', 'false'))"
