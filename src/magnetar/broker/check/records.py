"""The check of catalog records: from clusters to topics, then schemas, routes, pipelines and dynamic settings.

Owns what takes the place of a record that cannot be read, such that nothing is deleted, copied or forgotten because of
it: policies that keep every message, routes that are paused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.catalog.record import (
    ClusterRecord,
    NamespaceRecord,
    PartitionedRecord,
    TenantRecord,
    TopicRecord,
)
from magnetar.broker.catalog.stored import keeping_everything
from magnetar.broker.check.finding import Finding, delete, put, shown_key
from magnetar.broker.check.inventory import CheckedTopic, Inventory
from magnetar.broker.damage_list import id_in
from magnetar.broker.pipelines import stored
from magnetar.broker.replication.route_policies import decode_parts, encode_parts
from magnetar.broker.schema.registry import VersionRecord
from magnetar.errors import InvalidName, MagnetarError
from magnetar.names import PARTITION_SUFFIX, TopicName, check_entity, parse_namespace
from magnetar.replication.route_parts import RouteParts
from magnetar.settings.dynamic import DYNAMIC
from magnetar.settings.settings import Settings
from magnetar.storage.api import Space

Rows = list[tuple[bytes, bytes]]

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, struct.error, ValueError, TypeError, MagnetarError)
"""What decoders raise for bytes that are not theirs."""

RECOVERED = "persistent://public/default/recovered-{}"
"""The topic of data whose topic is not known."""

_decode_version = msgspec.msgpack.Decoder(VersionRecord).decode


def reason_of(error: Exception) -> str:
    return f"it cannot be decoded ({type(error).__name__}: {error})"


def named_records(
    rows: Rows,
    kind: str,
    decode: Callable[[bytes], Any],
    check_name: Callable[[str], object],
    instead: Callable[[], Any],
    found: set[str],
) -> Iterator[Finding]:
    """Records by name, each replaced by `instead()` if it cannot be read; readable names are added to `found`."""
    for key, value in rows:
        try:
            name = key[1:].decode()
            check_name(name)
        except UNREADABLE as error:
            yield _without_name(kind, key, error)
            continue
        found.add(name)
        try:
            decode(value)
        except UNREADABLE as error:
            what, repair = reason_of(error), "replace it by an empty one"
            if kind in ("namespace", "cluster"):
                repair = "replace it by one that keeps every message" if kind == "namespace" else repair
            yield Finding(kind, name, what, repair, key=key, changes=(put(key, record.encode(instead())),))


def _without_name(kind: str, key: bytes, error: Exception) -> Finding:
    return Finding(
        kind, shown_key(key), f"its name is not valid: {error}", "export and delete it", key=key, changes=(delete(key),)
    )


def clusters(rows: Rows) -> Iterator[Finding]:
    yield from named_records(
        rows, "cluster", record.decode_cluster, lambda name: check_entity("cluster", name), ClusterRecord, set()
    )


def tenants(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    yield from named_records(
        rows,
        "tenant",
        record.decode_tenant,
        lambda name: check_entity("tenant", name),
        TenantRecord,
        inventory.tenants,
    )


def namespaces(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    yield from named_records(
        rows,
        "namespace",
        record.decode_namespace,
        parse_namespace,
        lambda: NamespaceRecord(overrides=keeping_everything()),
        inventory.namespaces,
    )
    for tenant in sorted({name.partition("/")[0] for name in inventory.namespaces} - inventory.tenants):
        key = keys.named(keys.TENANT, tenant)
        yield Finding(
            "tenant",
            tenant,
            "it has namespaces and no record",
            "create it",
            key=key,
            changes=(put(key, record.encode(TenantRecord())),),
        )


def topics(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    """Also fills the inventory."""
    for key, value in rows:
        try:
            name = TopicName.parse(key[1:].decode())
            if not name.is_persistent or name.full != key[1:].decode():
                raise InvalidName("it is not the full name of a persistent topic")
        except UNREADABLE as error:
            yield _without_name("topic", key, error)  # its data gets a topic of its own
            continue
        try:
            found = record.decode_topic(value)
            if not 0 < found.id < 1 << 63:
                raise ValueError(f"its id is {found.id}")
        except UNREADABLE as error:
            number = id_in(value)
            if number is None or number in inventory.topics:
                inventory.lost_topics[name.full] = key
                continue
            yield _rebuilt_topic(key, name.full, number, reason_of(error))
            found = TopicRecord(number)
        if found.id in inventory.topics:
            other = inventory.topics[found.id].name
            fresh = msgspec.structs.replace(found, id=inventory.new_id())
            yield Finding(
                "topic",
                name.full,
                f"it has the id {found.id} of {other}",
                "give it an id of its own",
                key=key,
                changes=(put(key, record.encode(fresh)),),
            )
            continue
        inventory.topics[found.id] = CheckedTopic(name.full, found)
        for number in (found.id, found.ledger_id, *found.former_ledgers):
            inventory.saw(number)
    wanted = {TopicName.parse(topic.name).namespace_full for topic in inventory.topics.values()}
    for namespace in sorted(wanted - inventory.namespaces):
        key = keys.named(keys.NAMESPACE, namespace)
        yield Finding(
            "namespace",
            namespace,
            "it has topics and no record",
            "create it",
            key=key,
            changes=(put(key, record.encode(NamespaceRecord())),),
        )


def _rebuilt_topic(key: bytes, name: str, number: int, what: str) -> Finding:
    fresh = TopicRecord(number, overrides=keeping_everything())
    return Finding(
        "topic",
        name,
        what,
        "write it anew with its id, without properties, keeping every message",
        key=key,
        changes=(put(key, record.encode(fresh)),),
    )


def lost_topics(inventory: Inventory) -> Iterator[Finding]:
    """Records without a readable id: the only data without a record belongs to the only such topic."""
    single = next(iter(inventory.orphans)) if len(inventory.orphans) == len(inventory.lost_topics) == 1 else None
    for name, key in inventory.lost_topics.items():
        what = "its record cannot be decoded, and not even its id"
        if single is not None:
            yield _rebuilt_topic(key, name, single, what)
        else:
            yield Finding(
                "topic",
                name,
                what,
                "export and delete it; its messages stay, under another topic",
                key=key,
                changes=(delete(key),),
            )


def orphaned_data(inventory: Inventory, with_entries: set[int]) -> Iterator[Finding]:
    """Data of a topic that no record names. Entries get a topic of their own; the rest is deleted by its own check."""
    is_complete = inventory.is_complete
    for number in sorted(inventory.orphans & with_entries):
        inventory.is_recovering = True
        name = RECOVERED.format(number)
        key = keys.named(keys.TOPIC, name)
        changes = (put(key, record.encode(TopicRecord(number, overrides=keeping_everything()))),)
        yield Finding(
            "entries",
            f"topic id {number}",
            "no topic has this id",
            f"create topic {name} for them",
            Space.ENTRIES,
            keys.ID.pack(number),
            changes if is_complete else (),
        )


def partitioned(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    existing = [topic.name for topic in inventory.topics.values()]
    for key, value in rows:
        try:
            name = key[1:].decode()
            parsed = TopicName.parse(name)
            if parsed.is_partition or parsed.full != name:
                raise InvalidName("it is not the full name of a partitioned topic")
        except UNREADABLE as error:
            yield _without_name("partitioned topic", key, error)
            continue
        try:
            count = record.decode_partitioned(value).partitions
            if not 0 < count <= 1 << 31:
                raise ValueError(f"it has {count} partitions")
        except UNREADABLE as error:
            prefix = name + PARTITION_SUFFIX
            indexes = [
                int(rest) for one in existing if one.startswith(prefix) and (rest := one[len(prefix) :]).isdigit()
            ]
            if indexes:
                fresh = PartitionedRecord(max(indexes) + 1, overrides=keeping_everything())
                yield Finding(
                    "partitioned topic",
                    name,
                    reason_of(error),
                    f"write it anew with its {max(indexes) + 1} partitions, keeping every message",
                    key=key,
                    changes=(put(key, record.encode(fresh)),),
                )
            else:
                yield Finding(
                    "partitioned topic",
                    name,
                    reason_of(error),
                    "export and delete it: it has no partitions",
                    key=key,
                    changes=(delete(key),),
                )


def route_policies(rows: Rows) -> Iterator[Finding]:
    for key, value in rows:
        name = shown_key(key[1:].replace(b"\0", b" to "))
        try:
            remote, separator, scope = key[1:].decode().partition("\0")
            if not remote or not separator or scope.count("/") not in (1, 2):
                raise InvalidName("the key does not name a cluster and a namespace or topic")
        except UNREADABLE as error:
            yield _without_name("route policy", key, error)
            continue
        try:
            decode_parts(value)
        except UNREADABLE as error:
            yield Finding(
                "route policy",
                name,
                reason_of(error),
                "replace it by a pause: without it, masked or filtered messages would be copied",
                key=key,
                changes=(put(key, encode_parts(RouteParts(paused=True))),),
            )


def pipelines(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    for key, value in rows:
        try:
            namespace, _, name = key[1:].decode().rpartition("/")
            parse_namespace(namespace)
            check_entity("pipeline", name)
        except UNREADABLE as error:
            yield _without_name("pipeline", key, error)
            continue
        what = ""
        if namespace not in inventory.namespaces:
            what = f"there is no namespace {namespace}"
        try:
            inventory.saw(stored.checked(f"{namespace}/{name}", value).id)
        except UNREADABLE as error:
            what = reason_of(error)
        if what:
            repair = "export and delete it: what it did is in its topics"
            yield Finding("pipeline", f"{namespace}/{name}", what, repair, key=key, changes=(delete(key),))


def schemas(rows: Rows) -> Iterator[Finding]:
    for key, value in rows:
        name, separator, number = key[1:-8], key[-9:-8], key[-8:]
        shown = f"{shown_key(name[:-1])} version {int.from_bytes(number, 'big')}"
        try:
            if separator != b"\0" or name[:-1].decode().count("/") != 2:
                raise InvalidName("the key does not name a topic and a version")
            _decode_version(value)
        except UNREADABLE as error:
            yield Finding(
                "schema", shown, reason_of(error), "export and delete this version", key=key, changes=(delete(key),)
            )


def dynamic_settings(rows: Rows) -> Iterator[Finding]:
    for key, value in rows:
        try:
            name, text = key[1:].decode(), value.decode()
            if name in DYNAMIC:
                Settings().with_texts({name: text})
        except UNREADABLE as error:
            yield Finding(
                "dynamic setting",
                shown_key(key[1:]),
                f"it is not valid: {error}",
                "export and delete it: the broker starts with its own value",
                key=key,
                changes=(delete(key),),
            )
