"""Conditions of route policies, checked when they are set: a mistake is an error of the command, not of every copy.

The broker has no Spark, so sqlglot parses the condition in Spark's dialect. Owns what is certain to be wrong: text that
is no condition, functions and columns that do not exist, and what a condition must not contain: aggregates, and
subqueries, which could read files of the machine that Spark runs on. Whether the types fit is known to Spark alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from magnetar.bounds import CONDITION_SIZE
from magnetar.errors import InvalidSetting
from magnetar.replication.spark_functions import FUNCTIONS

if TYPE_CHECKING:
    from sqlglot import exp

WHERE_SIZE_MAX = CONDITION_SIZE.limit

METADATA_COLUMNS = (
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__batchIndex",
    "__redeliveryCount",
    "__error",
    "__payload",
    "__messageIdText",
    "__partition",
    "__producerName",
    "__sequenceId",
    "__orderingKey",
    "__schemaVersion",
    "__deliverAt",
    "__replicatedFrom",
)
"""Columns of every message; those of its value depend on the schema."""

_DIALECT = "spark"


def check_where(expression: str, fields: Collection[str] | None = None) -> None:
    """Raises `InvalidSetting`. `fields` are the columns of the value, None if they are not known yet."""
    if not expression.strip():
        raise _wrong(expression, "is empty")
    if len(expression) > WHERE_SIZE_MAX:
        raise _wrong(expression, f"has {len(expression)} characters, more than {WHERE_SIZE_MAX}")
    tree = _parsed(expression)
    for problem in _forbidden(tree):
        raise _wrong(expression, problem)
    for name in _functions(tree):
        if name.lower() not in FUNCTIONS:
            raise _wrong(expression, f"calls {name}, which is no function of Spark{_near(name, FUNCTIONS)}")
    if fields is not None:
        _check_columns(expression, tree, fields)


def _check_columns(expression: str, tree: exp.Expr, fields: Collection[str]) -> None:
    known = {name.lower() for name in (*fields, *METADATA_COLUMNS)}
    for name in _columns(tree):
        if name.lower() not in known:
            shown = ", ".join(sorted(fields)[:20])
            near = _near(name, [*fields, *METADATA_COLUMNS])
            raise _wrong(expression, f"has an unknown column {name}{near}: the columns of the value are {shown}")


def _parsed(expression: str) -> exp.Expr:
    import sqlglot  # slow to import, and most brokers need it never
    from sqlglot import TokenType, exp
    from sqlglot.errors import ParseError, TokenError

    try:
        tokens = sqlglot.tokenize(expression, dialect=_DIALECT)
    except TokenError:
        raise _wrong(expression, "has a quote that is not closed") from None
    starts = {TokenType.SELECT, TokenType.TABLE, TokenType.VALUES, TokenType.WITH, TokenType.FROM}
    if not tokens:
        raise _wrong(expression, "is only a comment")
    for before, token in pairwise([tokens[0], *tokens]):
        if token.token_type is TokenType.SEMICOLON:
            raise _wrong(expression, f"has a ; at {token.start}: only one condition is allowed")
        if before.token_type is TokenType.L_PAREN and token.token_type in starts:
            raise _wrong(expression, f"has a subquery at {token.start}: only columns of the message are allowed")
    try:
        return sqlglot.parse_one(expression, dialect=_DIALECT, into=exp.Condition)
    except ParseError as error:
        raise _wrong(expression, _described(expression, error.errors)) from None
    except RecursionError:
        raise _wrong(expression, "is nested too deeply") from None


def _described(expression: str, errors: list[dict[str, object]]) -> str:
    """The place of the first error."""
    found = errors[0] if errors else {}
    word, line, column = str(found.get("highlight") or ""), int(str(found.get("line") or 1)), found.get("col")
    if column is None:
        return "is no condition in SQL"
    before = sum(len(text) + 1 for text in expression.split("\n")[: line - 1])
    return f"is no condition in SQL: error at {before + int(str(column)) - len(word)}, near {word!r}"


def _forbidden(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    if tree.find(exp.Query):
        yield "has a subquery: only columns of the message are allowed"
    if found := tree.find(exp.AggFunc, exp.Window, exp.Explode):
        yield f"has {found.sql(_DIALECT)[:100]}, over many messages: a condition is about one"
    if other := tree.find(exp.Placeholder, exp.Parameter, exp.Star):
        yield f"has {other.sql(_DIALECT)[:100]}, which is no value of a message"


def _functions(tree: exp.Expr) -> Iterator[str]:
    """Names of the functions that the parser does not know."""
    from sqlglot import exp

    return (call.name for call in tree.find_all(exp.Anonymous))


def _columns(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    return (column.parts[0].name for column in tree.find_all(exp.Column))


def _near(name: str, names: Collection[str]) -> str:
    found = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {found[0]}" if found else ""


def _wrong(expression: str, what: str) -> InvalidSetting:
    shown = expression if len(expression) <= 100 else expression[:100] + "..."
    return InvalidSetting(f"where {shown!r} {what}")
