"""Conditions of route policies, checked when they are set: a mistake is an error of the command, not of every copy.

The broker has no Spark, so sqlglot parses the condition in Spark's dialect. Owns what a condition may contain, which is
an allow-list: the functions of `spark_functions`, operators, casts, literals and columns of the message; anything else
is refused, and so is what `where_limits` finds too large. The pipelines process checks again with Spark's own parser,
which decides. Whether the types fit is known to Spark alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from magnetar.bounds import CONDITION_DEPTH, CONDITION_SIZE
from magnetar.errors import InvalidSetting
from magnetar.replication.where_calls import CONTINUED_LINE, NOT_ALLOWED, continues_line, near, plain_calls, problems
from magnetar.replication.where_limits import limit_problems
from magnetar.replication.where_tree import tree_of

if TYPE_CHECKING:
    from sqlglot import exp

WHERE_SIZE_MAX = CONDITION_SIZE.limit
DEPTH_MAX = CONDITION_DEPTH.limit

VARIABLE = "${"
NO_VARIABLES = "which Spark replaces by variables of its environment: write '$' || '{' for these characters"

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

_PART_NAMES = """
Add Alias All And Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor
Boolean Bracket Column ColumnDef DataType DataTypeParam Div Dot DPipe EQ Escape FromTimeZone GT GTE HexString Identifier
ILike In IntDiv Interval IntervalSpan Is JSONPath Lambda Like Literal LT LTE Mod Mul Neg NEQ Not Null NullSafeEQ
NullSafeNEQ Or Paren PropertyEQ RawString RegexpILike Sub Tuple Var
"""
_PARTS = frozenset(_PART_NAMES.split())
"""Parts of a condition that are no functions, by the names of their classes."""

_SESSION = frozenset(
    {"CurrentUser", "CurrentRole", "SessionUser", "CurrentCatalog", "CurrentDatabase", "CurrentSchema"}
)
_OPERATORS = frozenset({"Collate"})
"""Operators that are no functions for Spark, although they are for the parser."""


def check_where(expression: str, fields: Collection[str] | None = None) -> None:
    """Raises `InvalidSetting`. `fields` are the columns of the value, None if they are not known yet."""
    if not expression.strip():
        raise _wrong(expression, "is empty")
    if len(expression) > WHERE_SIZE_MAX:
        raise _wrong(expression, f"has {len(expression)} characters, more than {WHERE_SIZE_MAX}")
    if VARIABLE in expression:
        raise _wrong(expression, f"has {VARIABLE} at {expression.index(VARIABLE)}, {NO_VARIABLES}")
    if continues_line(expression):
        raise _wrong(expression, CONTINUED_LINE)
    with _quiet_parser():
        tree = _parsed(expression)
        for problem in _forbidden(tree):
            raise _wrong(expression, problem)
        if fields is not None:
            _check_columns(expression, tree, fields)


@contextmanager
def _quiet_parser() -> Iterator[None]:
    """The parser logs what it cannot read, with the text: a condition may have values that are not for the log."""
    parser = logging.getLogger("sqlglot")
    parser.addFilter(_is_for_the_log)
    try:
        yield
    finally:
        parser.removeFilter(_is_for_the_log)


def _is_for_the_log(record: logging.LogRecord) -> bool:
    return False


def _check_columns(expression: str, tree: exp.Expr, fields: Collection[str]) -> None:
    known = {name.lower() for name in (*fields, *METADATA_COLUMNS)}
    for name in _columns(tree):
        if name.lower() not in known:
            shown = ", ".join(sorted(fields)[:20])
            hint = near(name, [*fields, *METADATA_COLUMNS])
            raise _wrong(expression, f"has an unknown column {name}{hint}: the columns of the value are {shown}")


def _parsed(expression: str) -> exp.Expr:
    from sqlglot import exp  # slow to import, and most brokers need it never
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, TokenError

    dialect = Dialect.get_or_raise(_DIALECT)
    try:
        tokens = dialect.tokenize(expression)
    except TokenError:
        raise _wrong(expression, "has a quote or a comment that is not closed") from None
    if not tokens:
        raise _wrong(expression, "is only a comment")
    for problem in problems(tokens):
        raise _wrong(expression, problem)
    try:
        tree = dialect.parser().parse_into(exp.Condition, plain_calls(tokens), expression)[0]
    except ParseError as error:
        raise _wrong(expression, _described(expression, error.errors)) from None
    except RecursionError:
        raise _wrong(expression, "is nested too deeply") from None
    except Exception:  # of the parser itself, as for map(1)
        raise _wrong(expression, "is no condition in SQL") from None
    if tree is None:
        raise _wrong(expression, "is no condition in SQL")
    for problem in limit_problems(tree_of(tokens)):
        raise _wrong(expression, problem)
    return tree


def _described(expression: str, errors: list[dict[str, object]]) -> str:
    """The place of the first error."""
    found = errors[0] if errors else {}
    word, line, column = str(found.get("highlight") or ""), int(str(found.get("line") or 1)), found.get("col")
    if column is None:
        return "is no condition in SQL"
    before = sum(len(text) + 1 for text in expression.split("\n")[: line - 1])
    return f"is no condition in SQL: error at {before + int(str(column)) - len(word)}, near {word!r}"


def _forbidden(tree: exp.Expr) -> Iterator[str]:
    """Parts that no condition has. Calls were checked by their names."""
    from sqlglot import exp

    called = (exp.Func,)
    over_many = (exp.AggFunc, exp.Window, exp.UDTF)
    deep = [(tree, 0)]
    while deep:
        node, depth = deep.pop()
        name = type(node).__name__
        if isinstance(node, exp.Query):
            yield "has a subquery: only columns of the message are allowed"
        elif isinstance(node, over_many):
            yield f"has {_shown(node)}, over many messages: a condition is about one"
        elif name in _SESSION | _OPERATORS or not (isinstance(node, called) or name in _PARTS):
            yield f"has {_shown(node)} ({name}), which {NOT_ALLOWED}"
        elif depth > DEPTH_MAX:
            yield f"is nested more than {DEPTH_MAX} levels deep"
        for child in () if name == "JSONPath" else node.iter_expressions():
            is_chain = type(child) is type(node) and name in ("And", "Or")  # Spark balances them
            deep.append((child, depth if is_chain else depth + 1))


def _shown(node: exp.Expr) -> str:
    """The text of a node, which may be too deep to write."""
    try:
        return node.sql(_DIALECT)[:100]
    except RecursionError:
        return type(node).__name__


def _columns(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    return (column.parts[0].name for column in tree.find_all(exp.Column))


def _wrong(expression: str, what: str) -> InvalidSetting:
    shown = expression if len(expression) <= 100 else expression[:100] + "..."
    return InvalidSetting(f"where {shown!r} {what}")
