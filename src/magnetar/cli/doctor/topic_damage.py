"""Damage that auto-creation bugs left in a namespace: detection and repair.

Three kinds are known, all found from lists and metadata, which every broker with Pulsar's REST API has.

    partition-metadata   partitioned metadata named `*-partition-*` without such partitions (PIP-263), created for a
                         partition such as orders-partition-0 or its dead letters, orders-partition-0-sub-DLQ. Clients
                         look for partitions that do not exist
    missing-partitions   other partitioned metadata without all its partitions; only a remark, because brokers that
                         delete inactive topics delete single partitions and keep the metadata
    dead-letter-chain    dead letter and retry topics of dead letter and retry topics (PIP-263)

Only the first is repaired, and only without data loss. A fourth kind is known to the broker itself, if it is ours:

    unreadable           topics, subscriptions and schemas whose records or messages cannot be read
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from magnetar.cli.argument import NamespaceName
from magnetar.cli.output import counted
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Refused, Rest
from magnetar.deadletter.topics import is_dead_letter_or_retry_topic, possible_primaries
from magnetar.names import DOMAINS, PARTITION_SUFFIX, TopicName

PARTITION_METADATA = "partition-metadata"
MISSING_PARTITIONS = "missing-partitions"
DEAD_LETTER_CHAIN = "dead-letter-chain"
UNREADABLE = "unreadable"

_REPAIRS = {
    "topic": "`magnetar topics skip-damaged {name}`, or give it up: `magnetar topics delete --force {name}`",
    "subscription": "`magnetar subscriptions skip-damaged {name} {subscription}`, or delete it with --force",
    "schema": "`magnetar schemas delete --force {name}`, and let a producer bring it again",
    "namespace": "set its policies again; until then its topics keep every message",
    "tenant": "`magnetar tenants update`",
    "cluster": "`magnetar clusters update`",
    "route policy": "set it again; until then the route is paused",
}

WAS_AUTO_CREATED = "wasAutoCreated"
SYSTEM_PREFIX = "__"
SHOWN_MAX = 5
HTTP_NOT_FOUND = 404


@dataclass(slots=True)
class Damage:
    """One finding. `repair` is a command or an instruction."""

    kind: str
    topic: str
    what: str
    why: str
    repair: str
    fixable: bool = False
    topics: list[str] = field(default_factory=list)
    fixed: bool = False
    outcome: str = ""

    @property
    def is_remark(self) -> bool:
        return self.kind == MISSING_PARTITIONS

    def described(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "kind": self.kind,
            "topic": self.topic,
            "what": self.what,
            "why": self.why,
            "repair": self.repair,
            "fixable": self.fixable,
            "fixed": self.fixed,
        }
        if self.topics:
            described["topics"] = self.topics
        if self.outcome:
            described["outcome"] = self.outcome
        return described


class NamespaceTopics:
    """A snapshot of all topic names of a namespace."""

    def __init__(self, rest: Rest, namespace: NamespaceName) -> None:
        self.namespace = namespace
        self.topics = _names(rest, namespace)
        self.partitioned = _names(rest, namespace, "partitioned")


def examine(rest: Rest, namespace: NamespaceName) -> list[Damage]:
    inventory = NamespaceTopics(rest, namespace)
    found: list[Damage] = []
    for full in sorted(inventory.partitioned):
        name = TopicName.parse(full)
        count = _partition_count(rest, name)
        if count is None:
            continue  # deleted since
        if _is_named_after_partition(name, inventory):
            found.append(_partition_metadata(name, count, inventory))
        elif name.is_persistent and not name.local.startswith(SYSTEM_PREFIX):
            found.extend(_missing_partitions(name, count, inventory))
    found.extend(_dead_letter_chains(rest, inventory))
    return found


# -- metadata named after a partition


def _is_named_after_partition(name: TopicName, inventory: NamespaceTopics) -> bool:
    """Apache Pulsar rejects such names, but they work if the partitions exist."""
    return name.is_partition or (PARTITION_SUFFIX in name.local and not _below(name, inventory))


def _partition_metadata(name: TopicName, count: int, inventory: NamespaceTopics) -> Damage:
    in_the_way = _deleted_with(name, count, inventory)
    damage = Damage(
        PARTITION_METADATA,
        name.full,
        what=f"partitioned metadata ({counted(count, 'partition')}) created for a partition, not for a topic",
        why=f"clients treat {name.local} as a partitioned topic and look for {name.local}{PARTITION_SUFFIX}0",
        repair=f"magnetar topics delete-partitioned-topic {name.full}",
        fixable=not in_the_way,
        topics=in_the_way,
    )
    if not in_the_way:
        damage.what += "; no such partitions exist"
    elif name.full in in_the_way:
        damage.repair = (
            f"by hand: {name.full} is also a topic, and Apache Pulsar may delete it with the metadata; {_by_hand(name)}"
        )
    else:
        damage.repair = f"by hand: check the messages in {_some(in_the_way)}, then {damage.repair}"
    return damage


def _deleted_with(name: TopicName, count: int, inventory: NamespaceTopics) -> list[str]:
    """The topics that a broker may delete together with this metadata."""
    below = _below(name, inventory)
    # Apache Pulsar spells partition N of X-partition-N as X-partition-N, which is the topic itself.
    if 0 <= name.partition < count:
        below |= {name.full} & inventory.topics
    return sorted(below)


def _below(name: TopicName, inventory: NamespaceTopics) -> set[str]:
    return {full for full in inventory.topics if full.startswith(name.full + PARTITION_SUFFIX)}


def _by_hand(name: TopicName) -> str:
    node = f"/admin/partitioned-topics/{name.tenant}/{name.namespace}/{name.domain}/{name.local}"
    return f"delete the node {node} in its metadata store"


def repair(rest: Rest, damage: Damage) -> None:
    """Deletes bad metadata if that loses no data now; sets `fixed` and `outcome`."""
    name = TopicName.parse(damage.topic)
    inventory = NamespaceTopics(rest, NamespaceName(name.tenant, name.namespace))
    count = _partition_count(rest, name) if name.full in inventory.partitioned else None
    if count is None:
        damage.fixed, damage.outcome = True, "already deleted"
        return
    in_the_way = _deleted_with(name, count, inventory)
    if in_the_way:
        damage.fixable, damage.topics = False, in_the_way
        damage.outcome = f"not repaired: {_some(in_the_way)} now exists"
        return
    schemas = _schemas(rest, name) if name.full in inventory.topics else []
    try:
        rest.delete(*topic_path(name, "partitions"), query={"force": False})
    except Refused as error:
        damage.fixable = False
        damage.outcome = f"the broker rejected it: {error}"
        # Apache Pulsar 3 and 4 refuse to delete metadata named like a partition.
        damage.repair = f"by hand: {_by_hand(name)}"
        return
    damage.fixed, damage.outcome = True, "deleted the metadata"
    if schemas and not _schemas(rest, name):
        _restore(rest, name, schemas)
        damage.outcome += f" and restored {counted(len(schemas), 'schema')} of the topic of the same name"


def _schemas(rest: Rest, name: TopicName) -> list[dict[str, Any]]:
    """All versions, oldest first. Brokers delete them with the metadata, even if a topic has the same name."""
    try:
        reply = rest.get("schemas", name.tenant, name.namespace, name.local, "schemas")
    except Refused as error:
        if error.status == HTTP_NOT_FOUND:
            return []
        raise
    found = reply.get("getSchemaResponses") if isinstance(reply, dict) else None
    return sorted(found or [], key=lambda one: int(one["version"]))


def _restore(rest: Rest, name: TopicName, schemas: list[dict[str, Any]]) -> None:
    for one in schemas:
        body = {"type": one["type"], "schema": one.get("data") or "", "properties": one.get("properties") or {}}
        rest.post("schemas", name.tenant, name.namespace, name.local, "schema", body=body)


# -- missing partitions


def _missing_partitions(name: TopicName, count: int, inventory: NamespaceTopics) -> Iterable[Damage]:
    expected = [f"{name.full}{PARTITION_SUFFIX}{index}" for index in range(count)]
    missing = [full for full in expected if full not in inventory.topics]
    if missing:
        yield Damage(
            MISSING_PARTITIONS,
            name.full,
            what=f"{len(missing)} of {count} partitions do not exist: {_some(missing)}",
            why="statistics, subscriptions and backlogs do not include them until a client creates them",
            repair=f"magnetar topics create-missed-partitions {name.full}",
            topics=missing,
        )


# -- dead letters of dead letters


def _dead_letter_chains(rest: Rest, inventory: NamespaceTopics) -> Iterable[Damage]:
    parents = _parents(inventory)
    chains: dict[str, list[str]] = {}
    for full in parents:
        chains.setdefault(_root(full, parents), []).append(full)
    for root, members in sorted(chains.items()):
        auto_created = {full: _was_auto_created(rest, full) for full in {*members, *(parents[m] for m in members)}}
        is_known = any(auto_created.values())
        if is_known:
            # A topic created by an administrator may have dead letters, whatever its name.
            members = [full for full in members if auto_created[full] and auto_created[parents[full]]]
        if members:
            yield _dead_letter_chain(root, sorted(members, key=lambda full: (len(full), full)), is_known)


def _parents(inventory: NamespaceTopics) -> dict[str, str]:
    """Retry and dead letter topics of other such topics, each with that topic; of several, the longest name."""
    names = inventory.topics | inventory.partitioned
    bases = {TopicName.parse(full).base.full for full in names}
    parents: dict[str, str] = {}
    for full in sorted(bases):
        primaries = [
            primary
            for primary in possible_primaries(TopicName.parse(full))
            if (primary in names or primary in bases) and is_dead_letter_or_retry_topic(TopicName.parse(primary))
        ]
        if primaries:
            parents[full] = primaries[-1]
    return parents


def _root(full: str, parents: dict[str, str]) -> str:
    """The first of the chain, a dead letter or retry topic of an ordinary topic."""
    while full in parents:
        full = TopicName.parse(parents[full]).base.full
    return full


def _was_auto_created(rest: Rest, full: str) -> bool:
    name = TopicName.parse(full)
    try:
        properties = rest.get(*topic_path(name, "properties"))
    except Refused:
        return False
    return isinstance(properties, dict) and str(properties.get(WAS_AUTO_CREATED)).lower() == "true"


def _dead_letter_chain(root: str, members: list[str], is_known: bool) -> Damage:
    doubt = "" if is_known else " (this broker does not report whether they were auto-created)"
    return Damage(
        DEAD_LETTER_CHAIN,
        root,
        what=f"{counted(len(members), 'retry or dead letter topic')} of it: {_some(members)}",
        why=f"created for a topic that is itself a dead letter or retry topic, they multiply with every restart{doubt}",
        repair="by hand: check each with `magnetar topics stats TOPIC`, then `magnetar topics delete TOPIC`",
        topics=members,
    )


# -- requests


def _names(rest: Rest, namespace: NamespaceName, *end: str) -> set[str]:
    return {full for domain in DOMAINS for full in rest.get(domain, namespace.tenant, namespace.namespace, *end)}


def _partition_count(rest: Rest, name: TopicName) -> int | None:
    try:
        reply = rest.get(*topic_path(name, "partitions"))
    except Refused as error:
        if error.status == HTTP_NOT_FOUND:
            return None
        raise
    count: int = reply["partitions"]
    return count


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN_MAX])
    return shown if len(names) <= SHOWN_MAX else f"{shown} and {len(names) - SHOWN_MAX} more"


def unreadable(rest: Rest) -> list[Damage]:
    """What the broker cannot read; nothing of Apache Pulsar, which takes the word for the name of a cluster."""
    try:
        value = rest.get("brokers", "damaged")
    except Refused:
        return []
    if not isinstance(value, dict):
        return []
    return [
        Damage(
            UNREADABLE,
            one["name"],
            " ".join(filter(None, (one["kind"], one["subscription"], "cannot be read", one["position"]))),
            one["reason"],
            _REPAIRS[one["kind"]].format_map(one),
        )
        for one in value["damaged"]
    ]
