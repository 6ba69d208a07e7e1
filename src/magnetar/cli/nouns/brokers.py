"""`magnetar brokers …`: health, version, disk space and configuration of a broker."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Page, Record, Table, print_note, shown_bytes
from magnetar.cli.rest import Refused, Rest, RestError

group = CommandGroup("brokers", "Show the broker: health, version, disk space; configure it.", default="status")

_CONFIGURATION = ("brokers", "configuration")

Setting = Annotated[
    str,
    typer.Option("--config", metavar="SETTING", help="The name of the setting, such as brokerDeduplicationEnabled."),
]

group.panel = "Status"


@group.command("status")
def status(rest: Rest) -> Page:
    """Show address, version, health and disk space of the broker; `magnetar brokers` alone does the same.

    The exit code is 1 if the broker is not healthy.
    """
    failure = ""
    try:
        health = rest.get("brokers", "health")
    except Refused as error:
        health = failure = error.reason
    value: dict[str, Any] = {
        "brokers": rest.get("brokers"),
        "version": rest.get("brokers", "version"),
        "health": health,
        "warnings": "" if failure else _warnings(rest),
        "disk": _disk(rest),
    }
    disk = value["disk"]
    fields = {name: item for name, item in value.items() if name != "disk" and item != ""}
    return Page(value, [Record(value, fields=fields | (_shown_disk(disk) if disk else {}))], code=int(bool(failure)))


@group.command("list")
def list_brokers(rest: Rest) -> Names:
    """List the active brokers."""
    return Names(rest.get("brokers"))


@group.command("health")
def health(rest: Rest) -> Done:
    """Check that the broker works, down to its disk; the exit code is 1 if it does not, with the reasons."""
    reply = rest.get("brokers", "health")
    if reply != "ok":
        raise RestError(f"the broker is not healthy: {str(reply)[:200]}")
    if warnings := _warnings(rest):
        print_note(f"warning: {warnings}")
    return Done("ok")


def _warnings(rest: Rest) -> str:
    """Reasons to look that do not make a broker unhealthy; none of Apache Pulsar, which does not report them."""
    try:
        value = rest.readiness()
    except Refused:
        return ""
    return str(value.get("reason", "")) if isinstance(value, dict) else ""


@group.command("version")
def version(rest: Rest) -> Done:
    """Show the version of the broker."""
    return Done(str(rest.get("brokers", "version")))


@group.command("disk")
def disk(rest: Rest) -> Record:
    """Show the disk space that messages take, and what is left; of a Magnetar broker."""
    value = _disk(rest)
    return Record(value, fields=_shown_disk(value) if value else None, none="the broker does not report its disk space")


def _disk(rest: Rest) -> dict[str, Any] | None:
    """None for a broker in memory, and for Apache Pulsar, which takes the word for the name of a cluster."""
    try:
        value = rest.get("brokers", "disk")
    except Refused:
        return None
    return value if isinstance(value, dict) else None


def _shown_disk(disk: dict[str, Any]) -> dict[str, object]:
    return {
        "data": disk["path"],
        "used": shown_bytes(disk["usedBytes"]),
        "to be freed": shown_bytes(disk["deletedBytes"]),
        "free": f"{shown_bytes(disk['freeBytes'])} of {shown_bytes(disk['totalBytes'])}",
    }


@group.command("damaged")
def damaged(rest: Rest) -> Table:
    """List topics, subscriptions, schemas and records that cannot be read, with the reason; of a Magnetar broker."""
    value = rest.get("brokers", "damaged")
    rows = [
        (one["kind"], " of ".join(filter(None, (one["subscription"], one["name"]))), one["position"], one["reason"])
        for one in value["damaged"]
    ]
    return Table(value, ("KIND", "NAME", "FROM", "REASON"), rows, none="nothing is damaged")


@group.command("backlog-quota-check")
def check_backlog_quotas(rest: Rest) -> Done:
    """Enforce all backlog quotas now, not at the next interval."""
    rest.get("brokers", "backlog-quota-check")
    return Done("checked all backlog quotas")


group.panel = "Configuration"


@group.command("get-runtime-config")
def runtime_config(
    rest: Rest,
    setting: Annotated[
        str | None, typer.Argument(metavar="SETTING", help="Only this setting.", show_default="all settings")
    ] = None,
) -> Record:
    """Show the settings in force."""
    values: dict[str, str] = rest.get(*_CONFIGURATION, "runtime")
    if setting is None:
        return Record(values, fields=dict(sorted(values.items())))
    if setting not in values:
        raise RestError(f"the broker has no setting {setting[:100]!r}; `magnetar brokers get-runtime-config` lists all")
    return Record({setting: values[setting]})


@group.command("list-dynamic-config")
def dynamic_names(rest: Rest) -> Names:
    """List the settings that can be changed at run time."""
    return Names(sorted(rest.get(*_CONFIGURATION)))


@group.command("get-all-dynamic-config")
def dynamic_config(rest: Rest) -> Record:
    """Show the settings that were changed at run time."""
    return Record(rest.get(*_CONFIGURATION, "values"), none="no setting was changed at run time")


@group.command("update-dynamic-config")
def update_config(
    rest: Rest, config: Setting, value: Annotated[str, typer.Option("--value", metavar="VALUE", help="The new value.")]
) -> Done:
    """Change a setting now and for later starts."""
    rest.post(*_CONFIGURATION, config, value)
    return Done(f"set {config}={value}")


@group.command("delete-dynamic-config")
def delete_config(rest: Rest, config: Setting) -> Done:
    """Reset a setting to the value that the broker was started with."""
    rest.delete(*_CONFIGURATION, config)
    return Done(f"reset {config}")
