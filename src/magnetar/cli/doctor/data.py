"""`magnetar doctor data`: the check of a data folder that no broker uses, and its repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.output import Done, Page, Table, counted, shown_value
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.server.data_check import DataReport

DAMAGE_LEFT = 1


def data(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The data folder of a broker that is stopped.")],
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair it, and export what cannot be read to a folder beside it.")
    ] = False,
) -> Page:
    """Check every record of a data folder, without a broker (exit code 1 if damage is left)."""
    from magnetar.server.data_check import check_data, fix_data

    if not folder.strip():
        raise InvalidSetting("DIR is empty")
    path = Path(folder)
    return _page(path, fix_data(path) if fix else check_data(path), fix)


def _page(path: Path, report: DataReport, fix: bool) -> Page:
    found = [finding.described() for finding in report.findings]
    holes: list[dict[str, Any]] = [
        {
            "kind": "unreadable",
            "name": f"{hole.space.name.lower()} {hole.start.hex()} to {hole.end.hex()}",
            "what": hole.reason,
            "repair": "copy everything else into a new folder, and keep the old one",
            "fixable": True,
            "space": hole.space.name.lower(),
            "key": hole.start.hex(),
        }
        for hole in report.holes
    ]
    value = {
        "folder": str(path),
        "format": report.format,
        "topics": report.topics,
        "subscriptions": report.subscriptions,
        "records": report.records,
        "findings": [*holes, *found],
        "found": report.count + len(holes),
        "left": report.left,
        "exported": report.exported,
        "export": report.export,
        "kept": report.kept,
    }
    rows = [[row["kind"], row["name"], row["what"], row["repair"]] for row in (*holes, *found)]
    table = Table(value, ("kind", "name", "what is wrong", "repaired by" if fix else "--fix would"), rows)
    parts: list[Table | Done] = [table] if rows else []
    if report.count > len(found):
        parts.append(Done(f"and {report.count - len(found)} more"))
    parts.append(Done(_summary(report, report.count + len(holes), fix)))
    return Page(value, parts, code=DAMAGE_LEFT if report.left else 0)


def _summary(report: DataReport, found: int, fix: bool) -> str:
    size = f"{counted(report.topics, 'topic')}, {counted(report.subscriptions, 'subscription')}"
    searched = f"{counted(report.records, 'record')} of format {report.format}: {size}"
    if not found:
        return f"no damage in {searched}"
    text = f"{shown_value(found)} damaged in {searched}"
    if not fix:
        return f"{text}; --fix repairs them"
    text += f"; {report.left} left"
    if report.exported:
        text += f"; {counted(report.exported, 'row')} as they were in {report.export}"
    if report.kept:
        text += f"; the folder as it was is {report.kept}"
    return text
