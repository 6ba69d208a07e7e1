"""One frame of `top`: from answers of the broker to text, in any width and height.

Pure: knows neither a terminal nor a broker. Everything that a client may have named is made printable.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.cli.output import counted, shown_bytes
from magnetar.cli.top.answers import Answers
from magnetar.cli.top.sparkline import History, sparkline
from magnetar.cli.views.messages import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

WIDE = 120
"""From this width on, dead letters, replication and pipelines are beside the topics."""

_SIDE = 44
_GAP = 3
_LEAST = 9  # lines of attention and topics, which go before all that is below them
_ROWS = 20  # of topics and of attention, where nothing limits the height
_SPARKS = 40
_STYLES = {"error": "bold red", "warning": "yellow", "failed": "bold red", "ok": "green"}
_HEADINGS = {
    "name": "TOPICS by name",
    "rateIn": "BUSIEST TOPICS by messages in",
    "rateOut": "BUSIEST TOPICS by messages out",
    "backlog": "TOPICS by backlog",
    "storedBytes": "LARGEST TOPICS",
    "deadLetters": "TOPICS by dead letters",
}


def frame(answers: Answers, history: History, width: int, height: int | None = None, problem: str = "") -> Any:
    """A Rich group. `problem` is why the broker does not answer any more; then the answers are the last ones."""
    from rich.console import Group

    overview = answers.overview
    top = [*_header(overview, history, width), *([_line(problem, "bold red")] if problem else []), _line("")]
    is_wide = WIDE <= width < 1000
    side = _side(overview, _SIDE if is_wide else width)
    left = None if height is None else height - len(top) - 1
    if not is_wide and left is not None and left - len(side) < _LEAST:
        side = []
    below = 0 if is_wide or not side else len(side) + 1
    attention = _attention(overview, width, None if left is None else _share(left - below, len(answers.topics)))
    rows = _ROWS if left is None else max(1, left - len(attention) - 2 - below)
    parts: list[RenderableType] = [*top, *attention, _line("")]
    if is_wide:
        parts.append(_beside(_topics(answers, rows, width - _SIDE - _GAP), side))
    else:
        parts += [_topics(answers, rows, width), *([_line(""), *side] if side else [])]
    return Group(*parts)


def _share(height: int, topics: int) -> int:
    """The lines of attention: half of them, and what the topics leave."""
    return max(3, height // 2, height - topics - 2)


# -- the header


def _header(overview: dict[str, Any], history: History, width: int) -> list[Text]:
    totals = overview["totals"]
    return [
        _title(overview),
        _rates("in ", totals["rateIn"], totals["throughputIn"], history.rates_in, width),
        _rates("out", totals["rateOut"], totals["throughputOut"], history.rates_out, width),
        *_wrapped(_totals(totals), width),
    ]


def _title(overview: dict[str, Any]) -> Text:
    health = overview["health"]
    line = _line(f"Magnetar {overview['version']}  ", "bold")
    line.append(f"cluster {printable(overview['cluster'])}  up {span(overview['uptimeS'])}  ", "not bold")
    word = {"ok": "healthy", "warning": "healthy, with warnings", "failed": "NOT HEALTHY"}[health["state"]]
    line.append(word, _STYLES[health["state"]])
    return line


def _rates(name: str, rate: float, throughput: float, past: Sequence[float], width: int) -> Text:
    line = _line(f"{name} {rate:>11,.1f} msg/s {shown_bytes(throughput):>10}/s  ")
    line.append(sparkline(past, min(_SPARKS, max(0, width - 42))), "cyan")
    return line


def _totals(totals: dict[str, Any]) -> list[str]:
    partitioned, unloaded = totals["partitionedTopics"], totals["unloaded"]
    remarks = [f"{partitioned:,} partitioned"] if partitioned else []
    remarks += [f"{unloaded:,} not used yet"] if unloaded else []
    return [
        _counted(totals["topics"], "topic") + (f" ({', '.join(remarks)})" if remarks else ""),
        _counted(totals["subscriptions"], "subscription"),
        _counted(totals["producers"], "producer"),
        _counted(totals["consumers"], "consumer"),
        f"backlog {totals['backlog']:,}",
        f"unacknowledged {totals['unacked']:,}",
        f"delayed {totals['delayed']:,}",
        f"stored {shown_bytes(totals['storedBytes'])}",
        f"dead letters {totals['deadLettersWaiting']:,}",
    ]


def _wrapped(parts: Iterable[str], width: int) -> list[Text]:
    """Parts that stay whole, in as many lines as it takes."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}  {part}" if lines[-1] else part
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(part)
    return [_line(line) for line in lines]


# -- attention


def _attention(overview: dict[str, Any], width: int, height: int | None) -> list[Text]:
    """Two lines for each, with the whole command; `height` is for all of it."""
    items, left_out = overview["attention"], overview["attentionLeftOut"]
    if not items:
        return [_line("nothing needs attention", "green")]
    lines = [_heading(f"ATTENTION ({len(items) + left_out:,})")]
    shown = 0
    for item in items:
        own = _item(item, width)
        if (height is None and shown >= _ROWS) or (height is not None and len(lines) + len(own) + 1 > height and shown):
            break
        lines += own
        shown += 1
    if more := len(items) + left_out - shown:
        lines.append(_line(f"and {more:,} more", "dim"))
    return lines


def _item(item: dict[str, Any], width: int) -> list[Text]:
    subject, topic, subscription = item["subject"], item.get("topic"), item.get("subscription")
    if topic and subscription:
        subject = f"{subscription} of {short(topic)}"
    elif topic:
        subject = subject.replace(topic, short(topic))
    mark, end = "✖" if item["severity"] == "error" else "!", "" if topic and subscription else ":"
    head = f"{mark} {printable(subject)}{end} "
    step = max(20, width)
    first, *others = textwrap.wrap(head + printable(item["text"]), step, subsequent_indent="  ")
    lines = [_line(first), *map(_line, others)]
    lines[0].stylize(_STYLES[item["severity"]], 0, len(head))
    command = f"  $ {printable(item['command'])}"
    # Cut into lines by hand: a command is copied, so none of it may be missing.
    return [*lines, *(_line(command[start : start + step], "dim") for start in range(0, len(command), step))]


# -- topics


def _topics(answers: Answers, rows: int, width: int) -> Table | Text:
    """Numbers are never cut: names are."""
    from rich.table import Table
    from rich.text import Text

    if not answers.topics:
        return _line("no topics", "dim")
    cells = [_cells(one) for one in answers.topics[:rows]]
    columns = list(zip(("IN/S", "OUT/S", "BACKLOG", "STORED", "DEAD", "STATE"), *cells, strict=True))
    room = max(12, width - sum(2 + max(map(len, column)) for column in columns) - 1)
    heading = _HEADINGS[answers.sort.value]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(cut(heading, room)), no_wrap=True)
    for name, *_ in columns[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    for one, texts in zip(answers.topics, cells, strict=False):
        name = printable(short(one["topic"])) + (f" [{one['partitions']}]" if one["partitions"] else "")
        style = {"stuck": "yellow", "damaged": "bold red", "unloaded": "dim"}.get(one["state"], "")
        table.add_row(Text(cut(name, room)), *texts[:-1], Text(texts[-1], style))
    return table


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        compact(one["rateIn"]),
        compact(one["rateOut"]),
        compact(one["backlog"]),
        shown_bytes(one["storedBytes"]),
        compact(one["deadLetters"]),
        one["state"],
    )


def compact(number: float) -> str:
    """In at most six characters, such as 12.3k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 10 * size:
            return f"{number / size:.1f}{unit}"
    return f"{number:,.0f}" if isinstance(number, int) or number >= 1000 else f"{number:.1f}"


def cut(text: str, width: int) -> str:
    """Without its middle: names differ at their ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[-end:] if end else ''}"


def short(full: str) -> str:
    """As commands take it: `orders` for one in public/default, `acme/shop/orders` for another persistent one."""
    name = full.removeprefix("persistent://")
    return name.removeprefix("public/default/") if name != full else full


# -- dead letters, replication, pipelines


def _side(overview: dict[str, Any], width: int) -> list[Text]:
    return [
        *_dead_letters(overview["deadLetters"], overview["totals"]["deadLettersWaiting"], width),
        *_states("REPLICATION", overview["replication"]["states"], ("running", "catching-up", "starting", "paused")),
        *_states("PIPELINES", overview["pipelines"]["states"], ("running", "waiting", "paused", "done", "cancelled")),
    ]


def _dead_letters(found: dict[str, Any], waiting: int, width: int) -> list[Text]:
    hours = [sum(one["reasons"].values()) for one in found["hours"]]
    line = _heading("DEAD LETTERS ")
    line.append(f"{waiting:,} wait", "not bold red" if waiting else "not bold green")
    lines = [line]
    if sum(hours):
        lines.append(_line(f"  {sum(hours):,} in 24 h "))
        lines[-1].append(sparkline(hours, 24), "red")
    counts = [(one["reason"], one["waiting"]) for one in found["byReason"][:4]]
    rest = waiting - sum(count for _, count in counts)
    if counts and rest > 0:
        counts.append(("others", rest))
    room = max(10, min(width, 60) - 14)
    lines += [_line(f"  {printable(reason)[:room]:<{room}} {count:>10,}") for reason, count in counts]
    return lines


def _states(name: str, states: dict[str, int], good: tuple[str, ...]) -> list[Text]:
    if not states:
        return []
    line = _heading(f"{name} ")
    for index, (state, count) in enumerate(sorted(states.items(), key=lambda item: (item[0] in good, item[0]))):
        line.append(", " if index else "", "not bold")
        line.append(f"{count:,} {state}", "not bold" if state in good else "not bold red")
    return [line]


def _beside(topics: RenderableType, side: list[Text]) -> Table:
    from rich.console import Group
    from rich.table import Table

    grid = Table.grid(padding=(0, _GAP, 0, 0), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(width=_SIDE)
    grid.add_row(topics, Group(*side))
    return grid


# -- words


def _heading(text: str) -> Text:
    return _line(text, "bold")


def _line(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis", end="\n")


def _counted(count: int, noun: str) -> str:
    return counted(count, noun) if count == 1 else f"{count:,} {noun}s"


def span(seconds: float) -> str:
    """Such as `3 d 2 h`: the two largest units."""
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2])
