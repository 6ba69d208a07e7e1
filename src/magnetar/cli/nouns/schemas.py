"""`magnetar schemas …`: show, upload, delete and check schemas."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from magnetar.cli.argument import LONG_MAX, Topic, whole
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Record, Table
from magnetar.cli.rest import Rest
from magnetar.names import TopicName

group = CommandGroup("schemas", "Manage the schemas of topics.")

File = Annotated[
    Path,
    typer.Option(
        "--filename",
        "-f",
        help='JSON with "type" (AVRO, JSON, …), "schema" (the definition, as text) and "properties".',
    ),
]
FIELDS = {"type", "schema", "properties"}


def _path(topic: TopicName, *rest: str) -> tuple[str, ...]:
    return ("schemas", topic.tenant, topic.namespace, topic.local, *rest)


@group.command("get")
def get(
    rest: Rest,
    topic: Topic,
    version: Annotated[
        int | None,
        typer.Option(
            "--version", "-v", metavar="N", parser=whole(0, LONG_MAX), help="The version.", show_default="the latest"
        ),
    ] = None,
) -> Record:
    """Show the schema of a topic."""
    value = rest.get(*_path(topic, "schema", *([] if version is None else [str(version)])))
    return Record(value, fields=_fields(value))


@group.command("versions")
def versions(rest: Rest, topic: Topic) -> Table:
    """List all versions of the schema of a topic."""
    value = rest.get(*_path(topic, "schemas"))
    found = value.get("getSchemaResponses") or []
    rows = [(one.get("version"), one.get("type"), _time(one.get("timestamp")), one.get("data")) for one in found]
    return Table(value, ("VERSION", "TYPE", "SINCE", "DEFINITION"), rows, none=f"{topic} has no schema")


@group.command("upload")
def upload(rest: Rest, topic: Topic, filename: File) -> Record:
    """Upload a schema, or a new version of it."""
    value = rest.post(*_path(topic, "schema"), body=_payload(filename))
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, dict):
        version = version.get("version")
    return Record(value, fields={"topic": str(topic), "version": version})


@group.command("delete")
def delete(
    rest: Rest,
    topic: Topic,
    force: Annotated[bool, typer.Option("--force", help="Remove all versions from the storage.")] = False,
) -> Done:
    """Delete the schema of a topic."""
    rest.delete(*_path(topic, "schema"), query={"force": force})
    return Done(f"deleted the schema of {topic}")


@group.command("compatibility")
def compatibility(rest: Rest, topic: Topic, filename: File) -> Record:
    """Check whether a schema could become the next version, without uploading it."""
    return Record(rest.post(*_path(topic, "compatibility"), body=_payload(filename)))


def _payload(filename: Path) -> dict[str, Any]:
    try:
        payload = json.loads(filename.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"--filename {filename} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--filename {filename} is not JSON: {error}") from error
    if not isinstance(payload, dict) or not isinstance(payload.get("type"), str):
        raise typer.BadParameter(f"--filename {filename} has no field type, such as AVRO or JSON")
    unknown = sorted(payload.keys() - FIELDS)
    if unknown:
        raise typer.BadParameter(f"--filename {filename} has unknown fields: {', '.join(unknown)}")
    # The definition may be written as JSON; the broker expects text.
    if isinstance(payload.get("schema"), dict | list):
        payload["schema"] = json.dumps(payload["schema"])
    payload.setdefault("schema", "")
    payload.setdefault("properties", {})
    return payload


def _fields(value: dict[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {name: item for name, item in value.items() if item not in (None, "", {})}
    if "timestamp" in fields:
        fields["timestamp"] = _time(fields["timestamp"])
    return fields


def _time(time_ms: object) -> str:
    if not isinstance(time_ms, int) or time_ms <= 0:
        return "-"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
