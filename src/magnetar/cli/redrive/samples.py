"""Samples of a dry run: each letter before and after, with only what differs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from magnetar.cli.output import Table
from magnetar.cli.views.messages import printable

if TYPE_CHECKING:
    from magnetar.pipelines.redrive.redrive import Sample

_SHOWN = 120
_COLUMNS = ("MESSAGE ID", "COLUMN", "BEFORE", "AFTER")


def sample_table(samples: Sequence[Sample]) -> tuple[list[dict[str, Any]], Table]:
    """As JSON, and as a table."""
    values = [_value(sample) for sample in samples]
    rows: list[tuple[object, ...]] = []
    for one in values:
        rows += _rows(one)
    return values, Table(values, _COLUMNS, rows, none="no letters match")


def _value(sample: Sample) -> dict[str, Any]:
    before = {
        "key": sample.before["key"],
        "event_time": _json(sample.before["event_time"]),
        "value": _text(sample.before["value"]),
        "properties": dict(sample.before["properties"] or {}),
    }
    found = {"messageId": sample.before["message_id"], "topic": sample.before["topic"], "before": before}
    if sample.after is None:
        return {**found, "stays": sample.problem}
    after = {
        "key": _text(sample.after["__key"]),
        "event_time": _json(sample.after["__eventTime"]),
        "value": _text(sample.after["value"]),
        "properties": dict(sample.after["__messageProperties"] or {}),
    }
    return {**found, "target": sample.target, "after": after}


def _rows(one: Mapping[str, Any]) -> list[tuple[object, ...]]:
    if "after" not in one:
        return [(one["messageId"], "stays", _cut(one["before"]["value"]), one["stays"])]
    before, after = one["before"], one["after"]
    rows: list[tuple[object, ...]] = [(one["messageId"], "topic", one["topic"] or "", one["target"])]
    for name in ("key", "event_time", "value"):
        if name == "value" or before[name] != after[name]:
            rows.append(("", name, _cut(before[name]), _cut(after[name])))
    for name, text in sorted(after["properties"].items()):
        earlier = before["properties"].get(name)
        if earlier != text:
            rows.append(("", name, _cut(earlier), _cut(text)))
    if removed := sorted(before["properties"].keys() - after["properties"].keys()):
        rows.append(("", "removed", ", ".join(removed), ""))
    return rows


def _cut(text: str | None) -> str:
    shown = printable(text or "")
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(value).decode()}"


def _json(value: Any) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else None if value is None else json.dumps(value)
