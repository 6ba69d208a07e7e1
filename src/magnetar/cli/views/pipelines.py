"""Declared pipelines as tables: state, progress, rate and the time that is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.cli.output import Page, Record, Table, shown_time

_COLUMNS = ("pipeline", "verb", "state", "progress", "done", "total", "rate", "left", "reason")
_RUN_COLUMNS = ("run", "state", "started", "ended", "done", "total", "reason")
_BAR = 10


def pipelines_table(statuses: Sequence[Mapping[str, Any]], none: str) -> Table:
    return Table(statuses, _COLUMNS, [_row(one) for one in statuses], none=none)


def _row(one: Mapping[str, Any]) -> tuple[object, ...]:
    progress = one["progress"]
    done, total = progress.get("done", 0), progress.get("total")
    return (
        f"{one['namespace']}/{one['name']}",
        one["verb"],
        one["state"],
        bar(done, total),
        done,
        total,
        rate_of(one),
        left(one),
        one["reason"] or progress.get("note", ""),
    )


def bar(done: int, total: int | None) -> str:
    """Such as `####------  42 %`; empty where the total is not known."""
    if total is None:
        return ""
    share = 1.0 if done >= total else done / total
    full = int(share * _BAR)
    return f"{'#' * full}{'-' * (_BAR - full)} {int(share * 100):3} %"


def rate_of(one: Mapping[str, Any]) -> str:
    return f"{one['rate']:,.0f}/s" if one["state"] == "running" else ""


def left(one: Mapping[str, Any]) -> str:
    """The time that is left, at the present rate."""
    progress, rate = one["progress"], one["rate"]
    total = progress.get("total")
    if total is None or one["state"] != "running" or rate <= 0:
        return ""
    seconds = round(max(0, total - progress.get("done", 0)) / rate)
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def pipeline_page(one: Mapping[str, Any]) -> Page:
    progress = one["progress"]
    shown = {
        "pipeline": f"{one['namespace']}/{one['name']}",
        "verb": one["verb"],
        "wanted": one["wanted"],
        "state": one["state"],
        "since": shown_time(one["sinceMs"]),
        "reason": one["reason"],
        "run": one["run"],
        "progress": bar(progress.get("done", 0), progress.get("total")),
        "done": progress.get("done", 0),
        "total": progress.get("total"),
        **progress.get("counts", {}),
        "step": progress.get("note", ""),
        "rate": rate_of(one),
        "left": left(one),
        "last error": one["lastError"],
        "failed runs": one["failedRuns"],
        "declared": shown_time(one["declaredMs"]),
        "declared by": one["declaredBy"],
        "pipelines process": one["process"],
    }
    fields = {name: value for name, value in shown.items() if value not in ("", None)}
    return Page(one, (Record(one, fields=fields), Record(one["spec"], title="spec")))


def runs_table(items: Sequence[Mapping[str, Any]], name: str) -> Table:
    rows = [
        (
            item["run"],
            item["state"],
            shown_time(item["startedMs"]),
            shown_time(item["endedMs"]),
            item.get("progress", {}).get("done", 0),
            item.get("progress", {}).get("total"),
            item.get("reason", ""),
        )
        for item in items
    ]
    return Table(items, _RUN_COLUMNS, rows, none=f"no run of {name} is over yet")
