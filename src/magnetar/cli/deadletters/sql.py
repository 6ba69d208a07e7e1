"""`magnetar deadletters sql`: a query in SQL over dead letters."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import ServiceUrl, whole
from magnetar.cli.deadletters.query import VIEW, parse_query
from magnetar.cli.deadletters.selection import OfNamespace, Topics, source_of
from magnetar.cli.deadletters.spark import client_options, letter_session, shown_work
from magnetar.cli.foreground import Master
from magnetar.cli.output import Done, Names, Page, Table
from magnetar.cli.rest import Rest
from magnetar.cli.views.messages import printable

if TYPE_CHECKING:
    from magnetar.spark.dead_letters.plan import LetterPlan

LIMIT_DEFAULT, LIMIT_MAX = 1000, 1_000_000
_SHOWN_MAX = 200  # characters of a cell
TASKS = "16"
"""Parts that a long topic is read in."""

_EXAMPLE = "`select reason, count(*) group by reason`"

Query = Annotated[str, typer.Argument(metavar="SQL", help=f"A query over the view {VIEW}, such as {_EXAMPLE}.")]
Handled = Annotated[
    bool, typer.Option("--handled", help="Include those that every durable subscription has acknowledged.")
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="ROWS", parser=whole(1, LIMIT_MAX), help="The most rows of the result.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


def sql(
    rest: Rest,
    query: Query,
    namespace: OfNamespace = None,
    topic: Topics = None,
    handled: Handled = False,
    as_csv: Csv = False,
    limit: Limit = LIMIT_DEFAULT,
    service_url: ServiceUrl = None,
    master: Master = None,
) -> Page | Names:
    """Query the dead letters that wait with SQL, on Spark: `select reason, count(*) from letters group by reason`."""
    source = source_of(namespace, topic)
    with shown_work() as work, letter_session(master, work) as session:
        from magnetar.spark.dead_letters.letter_session import COLUMN_NAMES
        from magnetar.spark.dead_letters.plan import plan_letters

        parsed = parse_query(query, COLUMN_NAMES)
        session.check(parsed.text)
        work.begin("finding dead letters")
        options = client_options(rest, service_url) | {"minPartitions": TASKS}
        plan = plan_letters(source, options, handled=handled)
        with work.reading(session, f"reading {counted_ranges(plan)}"):
            names, found = session.query(plan, parsed.text, parsed.columns, limit + 1)
    rows = [list(row) for row in found]
    return _output(names, rows, limit, as_csv=as_csv, none="no rows" if plan.ranges else "no dead letters")


def counted_ranges(plan: LetterPlan) -> str:
    entries = sum(one.span.entries or 0 for one in plan.ranges)
    topics = len(plan.topics)
    return f"{entries:,} entries of {topics} dead letter topic{'s' if topics != 1 else ''}"


def _output(names: Sequence[str], rows: list[list[Any]], limit: int, *, as_csv: bool, none: str) -> Page | Names:
    is_cut, rows = len(rows) > limit, rows[:limit]
    values = [dict(zip(names, map(plain, row), strict=True)) for row in rows]
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(["" if value is None else value for value in one.values()] for one in values)
        return Names([])
    parts: list[Done | Table] = [
        Table(values, names, [[cell(value) for value in one.values()] for one in values], none=none)
    ]
    if is_cut:
        parts.append(Done(f"more than {limit} rows: --limit shows more"))
    return Page(values, parts)


def plain(value: Any) -> Any:
    """As JSON: bytes as text, or base64 if they are none."""
    from magnetar.spark.dead_letters.letter_columns import key_text

    if isinstance(value, bytes | bytearray):
        return key_text(bytes(value))
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone(UTC)
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def cell(value: Any, size: int = _SHOWN_MAX) -> Any:
    if not isinstance(value, str):
        return value
    return printable(value if len(value) <= size else f"{value[:size]}…")
