"""The report as one HTML file: no script, no other file, light and dark.

Owns markup and style. Everything from a message goes through `text`, since any client may have written it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from magnetar.cli.deadletters.charts import SERIES_MAX, bar, stacked_bars
from magnetar.cli.deadletters.report_style import STYLE
from magnetar.cli.output import shown_bytes

if TYPE_CHECKING:
    from magnetar.spark.dead_letters.summary import Summary

OTHERS = "others"
UNKNOWN = "(unknown)"
_EXAMPLE_MAX = 200  # characters in a table


def page(summary: Summary) -> str:
    title = f"Dead letters of {summary.source}"
    body = "".join(
        (
            _head(summary, title),
            _over_time(summary),
            _causes(summary),
            _changes(summary),
            _origins(summary),
            _samples(summary),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Escaped."""
    return escape(UNKNOWN if value is None else _clean(str(value)))


def _clean(shown: str) -> str:
    """Without characters that change the direction or the order of what follows."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in shown)


def moment(time: datetime | None) -> str:
    return "-" if time is None else time.strftime("%Y-%m-%d %H:%M")


def cause_name(row: dict[str, Any]) -> str:
    return f"{row['reason']}: {row['exception']}" if row["exception"] else str(row["reason"])


def _head(summary: Summary, title: str) -> str:
    totals = summary.totals
    since = f" published since {text(summary.since)}" if summary.since else ""
    which = "All stored dead letters" if summary.handled else "Dead letters that wait"
    cards = [
        ("dead letters", f"{totals['letters']:,}"),
        ("in the last 24 hours", f"{totals['today']:,}"),
        ("the 24 hours before", f"{totals['yesterday']:,}"),
        ("causes", f"{totals['causes']:,}"),
        ("topics and subscriptions", f"{totals['origins']:,}"),
        ("payloads", shown_bytes(int(totals["bytes"]))),
    ]
    if totals["quarantined"]:
        cards.append(("in quarantine", f"{totals['quarantined']:,}"))
    shown = "".join(f'<div class="card"><b>{value}</b><span class="soft">{name}</span></div>' for name, value in cards)
    between = (
        f", the oldest of {moment(totals['first'])}, the newest of {moment(totals['last'])}"
        if totals["letters"]
        else ""
    )
    return (
        f'<h1>{text(title)}</h1>\n<p class="soft">{which}{since} in {totals["dead_letter_topics"]} topics{between}.'
        f' Made at {moment(summary.now)}. Times are UTC.</p>\n<div class="cards">{shown}</div>\n'
    )


def _over_time(summary: Summary) -> str:
    if not summary.bins:
        return "<p>There are no dead letters.</p>"
    names = top_reasons(summary)
    series = [(_clean(name), [_of(one.reasons, name, names) for one in summary.bins]) for name in names]
    form = "%d %b %H:00" if summary.is_hourly else "%d %b"
    labels = [one.start.strftime(form) for one in summary.bins]
    unit = "hour" if summary.is_hourly else "day"
    note = f'<p class="soft">{summary.bins_left_out:,} older ones are not shown.</p>' if summary.bins_left_out else ""
    legend = "".join(
        f'<li><svg viewBox="0 0 8 8" aria-hidden="true"><rect class="s{number}" width="8" height="8"/></svg>'
        f"{text(name)}</li>"
        for number, name in enumerate(names)
    )
    chart = stacked_bars(labels, series, f"Dead letters by {unit}")
    return f'<h2>Over time</h2>\n<div class="chart">{chart}<ul class="legend">{legend}</ul></div>\n{note}'


def top_reasons(summary: Summary) -> list[str]:
    """The most frequent ones, and the rest as one."""
    counts: Counter[str] = Counter()
    for one in summary.bins:
        counts.update(one.reasons)
    names = [name for name, _ in counts.most_common()]
    return names if len(names) <= SERIES_MAX else [*names[: SERIES_MAX - 1], OTHERS]


def _of(reasons: dict[str, int], name: str, names: Sequence[str]) -> int:
    if name != OTHERS or name in reasons:
        return reasons.get(name, 0)
    return sum(count for reason, count in reasons.items() if reason not in names)


def _causes(summary: Summary) -> str:
    most = max((row["letters"] for row in summary.causes), default=1)
    rows = (
        (
            ("name", f"<b>{text(row['reason'])}</b><br>{text(row['exception'] or '')}"),
            ("number", f"{row['letters']:,}"),
            ("bars", bar(row["letters"], most)),
            ("wide", text(_excerpt(row["example"]))),
            ("time", moment(row["last"])),
            ("id", f"<code>{text(row['fingerprint'])}</code>"),
        )
        for row in summary.causes
    )
    return _section("By cause", ("Cause", "Letters", "", "Latest example", "Last", "Fingerprint"), rows)


def _changes(summary: Summary) -> str:
    rows = []
    for row in summary.changes:
        change = row["today"] - row["yesterday"]
        mark = ' <span class="new">new</span>' if row["is_new"] else ""
        sign = "up" if change > 0 else "down"
        rows.append(
            (
                ("name", f"<b>{text(row['reason'])}</b>{mark}<br>{text(row['exception'] or '')}"),
                ("number", f"{row['yesterday']:,}"),
                ("number", f"{row['today']:,}"),
                ("number", f'<span class="{sign}">{change:+,}</span>'),
                ("wide", text(_excerpt(row["example"]))),
            )
        )
    headings = ("Cause", "24 hours before", "Last 24 hours", "Change", "Latest example")
    if not rows:
        return "<h2>Since yesterday</h2>\n<p>No cause has more or fewer dead letters than the day before.</p>\n"
    return _section("Since yesterday", headings, rows)


def _origins(summary: Summary) -> str:
    most = max((row["letters"] for row in summary.origins), default=1)
    rows = (
        (
            ("wide", text(row["topic"])),
            ("", text(row["subscription"])),
            ("number", f"{row['letters']:,}"),
            ("bars", bar(row["letters"], most, 2)),
            ("number", f"{row['causes']:,}"),
            ("id", text(row["mostly"])),
            ("time", moment(row["last"])),
        )
        for row in summary.origins
    )
    headings = ("Topic", "Subscription", "Letters", "", "Causes", "Mostly", "Last")
    return _section("By topic and subscription", headings, rows)


def _samples(summary: Summary) -> str:
    parts = []
    for cause, samples in summary.samples.items():
        name = cause_name(samples[0])
        shown = "".join(_sample(one) for one in samples)
        parts.append(f"<details><summary><b>{text(name)}</b> <code>{text(cause[2])}</code></summary>{shown}</details>")
    return f"<h2>Samples</h2>\n{''.join(parts)}\n" if parts else ""


def _sample(row: dict[str, Any]) -> str:
    payload = text(row["payload"]) if row["payload"] is not None else f"({text(row['payload_error'] or 'no value')})"
    key = "" if row["key"] is None else f", key <code>{text(row['key'])}</code>"
    said = row["error"] or row["description"] or ""
    return (
        f'<div class="sample"><p><code>{text(row["message_id"])}</code> <span class="soft">of</span>'
        f" {text(row['letter_topic'])}{key}, {moment(row['published'])}, {row['size']:,} bytes</p>"
        f"<p>{text(said)}</p><pre>{payload}</pre></div>"
    )


def _section(title: str, headings: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """`rows` have cells as a class and markup."""
    numbers = ("Letters", "Causes", "Change", "24 hours before", "Last 24 hours")
    kinds = dict.fromkeys(numbers, "number") | {"": "bars"}
    head = "".join(_heading(kinds.get(name, "name"), name) for name in headings)
    body = "".join(f"<tr>{''.join(_cell(kind, cell) for kind, cell in row)}</tr>\n" for row in rows)
    if not body:
        return ""
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"
    return f'<h2>{title}</h2>\n<div class="scroll">{table}</div>\n'


def _excerpt(example: str | None) -> str:
    if not example:
        return "-"
    return example if len(example) <= _EXAMPLE_MAX else f"{example[:_EXAMPLE_MAX]}…"


def _cell(kind: str, markup: str) -> str:
    return f'<td class="{kind}">{markup}</td>' if kind else f"<td>{markup}</td>"


def _heading(kind: str, name: str) -> str:
    return f'<th class="{kind}">{name}</th>'
