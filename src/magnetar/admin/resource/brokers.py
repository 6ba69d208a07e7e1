"""The broker itself: version, address and settings. A cluster has one broker."""

from __future__ import annotations

import msgspec
from starlette.responses import PlainTextResponse, Response

from magnetar.admin.http.errors import OperationNotAllowed, Unsupported
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.http.unsupported import gap_at, why_not
from magnetar.broker.damage_list import DamageReport
from magnetar.errors import NotAllowed
from magnetar.names import check_entity
from magnetar.settings.dynamic import DYNAMIC
from magnetar.settings.settings import KINDS, SECRET, closest
from magnetar.storage.api import DiskUse
from magnetar.version import __version__


class BrokerInfo(msgspec.Struct, rename="camel"):
    service_url: str
    broker_id: str


class Ownership(msgspec.Struct):
    broker_assignment: str = "shared"
    is_controlled: bool = False
    is_active: bool = True


class Disk(msgspec.Struct, rename="camel"):
    """`deleted_bytes`: of deleted messages that still take space; they are freed in the background."""

    path: str
    used_bytes: int
    free_bytes: int
    total_bytes: int
    deleted_bytes: int


class BackupFolder(msgspec.Struct, rename="camel"):
    """The checkpoint to copy; `cluster` is the name that the data belongs to."""

    path: str
    files: int
    size_bytes: int
    cluster: str
    version: str


# -- the broker


def version(call: Call) -> PlainTextResponse:
    """Show the version of Magnetar, as plain text."""
    return PlainTextResponse(__version__)


async def check_backlog_quotas(call: Call) -> None:
    """Check all backlog quotas now, not at the next interval."""
    broker = call.broker
    call.check_program("a check of backlog quotas")
    if not broker.settings.backlogQuotaCheckEnabled:
        raise NotAllowed("backlogQuotaCheckEnabled is false on this broker")
    time_slice = TimeSlice()
    for full in list(broker.catalog.topics):
        broker.maintenance.enforce_quota(full)
        await time_slice.checkpoint()


class DamageReply(msgspec.Struct, rename="camel"):
    """`unlisted`: further reports, of things that the bounded list has no room for."""

    damaged: list[DamageReport]
    unlisted: int


def damaged(call: Call) -> DamageReply:
    """List what cannot be read, with the reason: topics, subscriptions, schemas and other records."""
    found = call.broker.damage
    return DamageReply(found.all(), found.unlisted)


def list_brokers(call: Call) -> list[str]:
    """List the brokers: the address of this one, as the caller reaches it."""
    return [call.http_address]


def list_brokers_of(call: Call) -> list[str]:
    """List the brokers of a cluster: this one, whatever the name."""
    cluster = call.path["cluster"]
    path = f"/admin/v2/brokers/{cluster}"
    if gap_at(path):  # one of Pulsar's words, not a cluster
        raise Unsupported(why_not("GET", path))
    check_entity("cluster", cluster)
    return list_brokers(call)


def leader(call: Call) -> BrokerInfo:
    """Show the leader broker: this one."""
    return BrokerInfo(call.http_url, call.http_address)


def owned_namespaces(call: Call) -> dict[str, Ownership]:
    """Show the namespaces that this broker serves: all of them."""
    check_entity("cluster", call.path["cluster"])
    call.check_broker(call.path["broker"])
    return {f"{namespace}/0x00000000_0xffffffff": Ownership() for namespace in sorted(call.broker.catalog.namespaces)}


def disk(call: Call) -> Disk:
    """Show the disk space that messages take and what is left."""
    use = _disk_use(call)
    return Disk(use.path, use.used, use.free, use.total, call.broker.deleted_space.size)


async def make_backup(call: Call) -> BackupFolder:
    """Make a checkpoint of all data inside the data folder, to be copied and removed, as `magnetar backup` does."""
    _disk_use(call)
    made = await call.backups.make()
    return BackupFolder(made.path, made.files, made.size, call.broker.settings.clusterName, __version__)


async def discard_backup(call: Call) -> None:
    """Remove the checkpoint; fine if there is none."""
    _disk_use(call)
    await call.backups.discard()


def _disk_use(call: Call) -> DiskUse:
    use = call.broker.storage.disk_use()
    if use is None:
        raise OperationNotAllowed("this broker keeps its messages in memory, it has no data folder")
    return use


# -- settings


def dynamic_names(call: Call) -> list[str]:
    """List the settings that can be changed at run time."""
    return sorted(DYNAMIC)


def dynamic_values(call: Call) -> dict[str, str]:
    """Show the settings that were changed at run time; they survive a restart."""
    return call.broker.dynamic_settings


def runtime_values(call: Call) -> dict[str, str]:
    """Show all settings with their values in force."""
    settings = call.broker.settings
    values = {name: kind.show(getattr(settings, name)) for name, kind in KINDS.items()}
    return {name: "(hidden)" if name in SECRET and value else value for name, value in values.items()}


def set_dynamic(call: Call) -> Response:
    """Change a setting, now and for later starts."""
    call.broker.set_dynamic_setting(_dynamic_name(call, "update"), call.path["value"])
    return Response()


def remove_dynamic(call: Call) -> Response:
    """Reset a setting to the value that the broker was started with."""
    call.broker.remove_dynamic_setting(_dynamic_name(call, "delete"))
    return Response()


def _dynamic_name(call: Call, verb: str) -> str:
    name = call.path["setting"]
    if name in DYNAMIC:
        return name
    refusal = f"Can't {verb} non-dynamic configuration"
    if name in KINDS:
        raise NotAllowed(f"{refusal}: {name} is only read at start")
    meant = closest(name[:100])
    hint = f"; did you mean {meant}?" if meant else ""
    raise NotAllowed(f"{refusal}: unknown setting {name[:100]!r}{hint}")
