"""The text of a query over dead letters: the columns that it names, and the FROM that it may lack.

Parsed in Spark's dialect by sqlglot, only to save work: what Spark would reject, Spark rejects.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

VIEW = "letters"
QUERY_MAX = 100_000


@dataclass(frozen=True)
class LetterQuery:
    """`columns` are those that must be built."""

    text: str
    columns: tuple[str, ...]


def parse_query(text: str, known: Collection[str]) -> LetterQuery:
    """Raises `InvalidSetting` for what is no query."""
    from sqlglot import exp

    text = text.strip().rstrip(";").strip()
    if not text:
        raise InvalidSetting("the query is empty: give SQL such as `select reason, count(*) group by reason`")
    if len(text) > QUERY_MAX:
        raise InvalidSetting(f"the query of {len(text)} characters exceeds {QUERY_MAX}")
    tree = _parsed(text)
    if tree is None:
        return LetterQuery(text, tuple(known))
    if not isinstance(tree, exp.Query | exp.Describe):
        raise InvalidSetting(f"{tree.key.upper()} is no query: dead letters are read by SELECT, which changes nothing")
    if isinstance(tree, exp.Select) and tree.args.get("from_") is None and tree.args.get("from") is None:
        tree = tree.from_(VIEW)
        text = tree.sql(dialect="spark")
    return LetterQuery(text, tuple(_columns(tree, known)))


def condition_columns(condition: str, known: Collection[str]) -> set[str]:
    """The columns that a condition names; all of them if it cannot be parsed, which Spark will report."""
    tree = _parsed(f"select 1 from {VIEW} where {condition}")
    return set(known if tree is None else _columns(tree, known))


def _parsed(text: str) -> Expr | None:
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        return parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError, ValueError):
        return None


def _columns(tree: Expr, known: Collection[str]) -> list[str]:
    """Every identifier that is the name of a column: one too many costs time only."""
    from sqlglot import exp

    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        return list(known)
    named = {identifier.name.lower() for identifier in tree.find_all(exp.Identifier)}
    return [name for name in known if name.lower() in named]
