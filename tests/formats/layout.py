"""The layout of the stored records, as text: what a change of it changes, so that a new format cannot be forgotten."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.schema.registry import VersionRecord
from magnetar.broker.subscription.entry_state import EntryState
from magnetar.broker.topic import run
from magnetar.declared.model import PipelineRecord
from magnetar.replication.route_parts import RouteParts

RECORDS: tuple[type[msgspec.Struct], ...] = (
    record.ClusterRecord,
    record.TenantRecord,
    record.NamespaceRecord,
    record.PartitionedRecord,
    record.TopicRecord,
    record.SubscriptionRecord,
    VersionRecord,
    EntryState,
    RouteParts,
    PipelineRecord,
)


def layout() -> str:
    """Names, stored names and types of every field of every record, the keys, and the bytes of a run."""
    lines: list[str] = []
    for kind in _with_nested(RECORDS):
        lines += [
            f"{kind.__name__}.{field.encode_name}: {_shown(field.type)}" for field in msgspec.structs.fields(kind)
        ]
    table = (keys.__doc__ or "").split("\n\n")[1]
    lines += [re.sub(r"\s+", " ", line.strip()) for line in table.splitlines()]
    lines += [f"run {run._HEAD.format} {run._ENTRY.format}"]
    return "\n".join(lines) + "\n"


def _with_nested(kinds: tuple[type[msgspec.Struct], ...]) -> list[type[msgspec.Struct]]:
    found: dict[str, type[msgspec.Struct]] = {}

    def add(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ not in found:
            found[kind.__name__] = kind
            for field in msgspec.structs.fields(kind):
                add(field.type)
        for argument in getattr(kind, "__args__", ()):
            add(argument)

    for kind in kinds:
        add(kind)
    return list(found.values())


def _shown(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not getattr(kind, "__args__", ()) else str(kind)
    return re.sub(r"[\w.]+\.(\w+)", r"\1", text)


if __name__ == "__main__":
    print(layout(), end="")
