"""`magnetar deadletters report`: what failed, why, where and when, in the terminal or as an HTML file."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.cli.argument import PUBLIC_DEFAULT, ServiceUrl
from magnetar.cli.deadletters.report_page import cause_name, moment, page, top_reasons
from magnetar.cli.deadletters.selection import OfNamespace, Topics, source_of
from magnetar.cli.deadletters.spark import client_options, letter_session, shown_work
from magnetar.cli.deadletters.sql import TASKS, Handled, cell, counted_ranges, plain
from magnetar.cli.foreground import Master
from magnetar.cli.output import Done, Page, Record, Table, shown_bytes
from magnetar.cli.rest import Rest
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.spark.dead_letters.summary import Summary

_BAR = 40  # characters
_ROWS = 10
_DURATION = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained HTML file, and print a line.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only those published since: ISO 8601, or a duration such as 12h or 7d."
    ),
]


def report(
    rest: Rest,
    namespace: OfNamespace = None,
    topic: Topics = None,
    html: Html = None,
    since: Since = None,
    handled: Handled = False,
    service_url: ServiceUrl = None,
    master: Master = None,
) -> Page | Done:
    """Report the dead letters that wait: by cause, topic and time, what changed since yesterday, and samples."""
    source, now = source_of(namespace, topic), datetime.now(UTC)
    starting = {} if since is None else {"startingOffsets": parse_since(since, now)}
    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidSetting(f"--html {html}: the folder {html.absolute().parent} does not exist")
    with shown_work() as work, letter_session(master, work) as session:
        from magnetar.spark.dead_letters.letter_session import reduced
        from magnetar.spark.dead_letters.plan import plan_letters
        from magnetar.spark.dead_letters.summary import summarize

        work.begin("finding dead letters")
        options = client_options(rest, service_url) | starting | {"minPartitions": TASKS}
        plan = plan_letters(source, options, handled=handled)
        with reduced("the report"), work.reading(session, f"reading {counted_ranges(plan)}"):
            name = str(namespace or PUBLIC_DEFAULT) if not topic else ", ".join(topic)
            summary = summarize(session.spark, plan, name, now, since=starting.get("startingOffsets"))
    if html is None:
        return _terminal(summary)
    try:
        html.write_text(page(summary), encoding="utf-8")
    except OSError as error:
        raise InvalidSetting(f"--html {html}: {error.strerror}") from error
    return Done(f"{summary.totals['letters']:,} dead letters reported in {html}")


def parse_since(given: str, now: datetime) -> str:
    """ISO 8601, as the option `startingOffsets` takes it."""
    match = _DURATION.fullmatch(given.strip())
    if match is not None:
        return (now - timedelta(**{_UNITS[match[2]]: int(match[1])})).isoformat()
    try:
        found = datetime.fromisoformat(given.strip())
    except ValueError:
        raise InvalidSetting(
            f"--since {given!r} is neither a time such as 2026-11-15T22:00:00Z nor a duration such as 12h or 7d"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def _terminal(summary: Summary) -> Page:
    totals = summary.totals
    if not totals["letters"]:
        return Page(described(summary), [Done(f"no dead letters in {summary.source}")])
    fields = {
        "dead letters": f"{totals['letters']:,}",
        "last 24 hours": f"{totals['today']:,}",
        "24 hours before": f"{totals['yesterday']:,}",
        "causes": totals["causes"],
        "payloads": shown_bytes(int(totals["bytes"])),
        "oldest": moment(totals["first"]),
        "newest": moment(totals["last"]),
    }
    parts = [Record(totals, title=f"Dead letters of {summary.source}", fields=fields), *_tables(summary)]
    return Page(described(summary), parts)


def _tables(summary: Summary) -> list[Done | Table]:
    causes = [
        (cell(cause_name(row)), row["letters"], moment(row["last"]), row["fingerprint"], cell(row["example"] or "-"))
        for row in summary.causes[:_ROWS]
    ]
    changes = [
        (cell(cause_name(row)), row["yesterday"], row["today"], "new" if row["is_new"] else "", row["fingerprint"])
        for row in summary.changes[:_ROWS]
    ]
    origins = [
        (cell(row["topic"]), cell(row["subscription"]), row["letters"], row["causes"], cell(row["mostly"]))
        for row in summary.origins[:_ROWS]
    ]
    samples = [
        (
            one["message_id"],
            cell(one["key"]),
            cell(cause_name(one)),
            cell(one["payload"] or one["payload_error"] or "-"),
        )
        for found in summary.samples.values()
        for one in found[:1]
    ]
    return [
        Table(causes, ("CAUSE", "LETTERS", "LAST", "FINGERPRINT", "LATEST EXAMPLE"), causes, title="By cause"),
        Table(_over_time(summary), ("TIME", "LETTERS", "", "MOSTLY"), _over_time(summary), title="Over time"),
        Table(
            changes,
            ("CAUSE", "24 HOURS BEFORE", "LAST 24 HOURS", "", "FINGERPRINT"),
            changes,
            title="Since yesterday",
            none="no cause has changed since yesterday",
        ),
        Table(
            origins,
            ("TOPIC", "SUBSCRIPTION", "LETTERS", "CAUSES", "MOSTLY"),
            origins,
            title="By topic and subscription",
        ),
        Table(samples, ("ID", "KEY", "CAUSE", "PAYLOAD"), samples, title="Samples"),
    ]


def _over_time(summary: Summary) -> list[tuple[object, ...]]:
    bins = summary.bins[-24:]
    most = max((one.letters for one in bins), default=1)
    names = top_reasons(summary)
    form = "%Y-%m-%d %H:00" if summary.is_hourly else "%Y-%m-%d"
    return [
        (
            one.start.strftime(form),
            one.letters,
            "█" * max(1 if one.letters else 0, round(_BAR * one.letters / max(1, most))),
            cell(max(one.reasons, key=lambda reason: one.reasons[reason], default="")) if names else "",
        )
        for one in bins
    ]


def described(summary: Summary) -> dict[str, object]:
    """As JSON."""
    return {
        "source": summary.source,
        "time": plain(summary.now),
        "since": summary.since,
        "handled": summary.handled,
        "totals": plain(summary.totals),
        "causes": plain(summary.causes),
        "changes": plain(summary.changes),
        "origins": plain(summary.origins),
        "overTime": [{"start": plain(one.start), "reasons": one.reasons} for one in summary.bins],
        "samples": [plain(one) for found in summary.samples.values() for one in found],
    }
