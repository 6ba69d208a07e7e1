"""`magnetar topics …`: topics, their partitions, statistics, properties and policies."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.argument import (
    PUBLIC_DEFAULT,
    Actions,
    Domain,
    Force,
    Properties,
    ReadNamespace,
    Role,
    Topic,
    parse_time,
    properties_of,
    whole,
)
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Page, Record, Table, counted
from magnetar.cli.path import is_partitioned, topic_path
from magnetar.cli.policies.commands import add_topic_policies
from magnetar.cli.rest import Refused, Rest
from magnetar.cli.views.damage import shown_skip
from magnetar.cli.views.stats import stats_page
from magnetar.names import DOMAINS, TopicName

group = CommandGroup("topics", "Manage topics and their policies.")

PARTITIONED_METADATA = "application/vnd.partitioned-topic-metadata+json"

Partitions = Annotated[
    int, typer.Option("--partitions", "-p", metavar="N", parser=whole(1), help="The number of partitions.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", "-m", metavar="KEY=VALUE", help="A property of the topic; may be repeated."),
]
DomainOption = Annotated[Domain | None, typer.Option("--topic-domain", "-td", help="Only topics of this domain.")]


group.panel = "Topics"

# -- listing


@group.command("list")
def list_topics(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT, topic_domain: DomainOption = None) -> Names:
    """List the topics of a namespace, each partition by itself."""
    names = _names(rest, namespace.tenant, namespace.namespace, topic_domain)
    return Names(names, none=f"{namespace} has no topics")


@group.command("list-partitioned-topics")
def list_partitioned(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT, topic_domain: DomainOption = None) -> Names:
    """List the partitioned topics of a namespace."""
    names = _names(rest, namespace.tenant, namespace.namespace, topic_domain, "partitioned")
    return Names(names, none=f"{namespace} has no partitioned topics")


def _names(rest: Rest, tenant: str, namespace: str, domain: Domain | None, *end: str) -> list[str]:
    domains = DOMAINS if domain is None else (domain.value,)
    # Either list of an older Apache Pulsar has the topics of both domains.
    return sorted({name for one in domains for name in rest.get(one, tenant, namespace, *end) if name.startswith(one)})


# -- create, delete, unload


@group.command("create")
def create(rest: Rest, topic: Topic, metadata: Metadata = None) -> Done:
    """Create a topic without partitions."""
    rest.put(*topic_path(topic), body=properties_of(metadata) or None)
    return Done(f"created {topic}")


@group.command("create-partitioned-topic")
def create_partitioned(rest: Rest, topic: Topic, partitions: Partitions, metadata: Metadata = None) -> Done:
    """Create a partitioned topic."""
    properties = properties_of(metadata)
    if properties:
        body = {"partitions": partitions, "properties": properties}
        rest.put(*topic_path(topic, "partitions"), body=body, kind=PARTITIONED_METADATA)
    else:
        rest.put(*topic_path(topic, "partitions"), body=partitions)
    return Done(f"created {topic} with {counted(partitions, 'partition')}")


@group.command("create-missed-partitions")
def create_missed_partitions(rest: Rest, topic: Topic) -> Done:
    """Create the missing partitions of a partitioned topic."""
    rest.post(*topic_path(topic, "createMissedPartitions"))
    return Done(f"created the missing partitions of {topic}")


@group.command("update-partitioned-topic")
def update_partitioned(
    rest: Rest,
    topic: Topic,
    partitions: Partitions,
    update_local_only: Annotated[
        bool, typer.Option("--update-local-only", "-ulo", help="Do not change other clusters.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not check the existing partitions.")] = False,
) -> Done:
    """Add partitions to a partitioned topic; they cannot be removed."""
    query = {"updateLocalTopicOnly": update_local_only or None, "force": force or None}
    rest.post(*topic_path(topic, "partitions"), body=partitions, query=query)
    return Done(f"{topic} has {counted(partitions, 'partition')}")


@group.command("delete")
def delete(rest: Rest, topic: Topic, force: Force = False) -> Done:
    """Delete a topic and its messages."""
    try:
        rest.delete(*topic_path(topic), query={"force": force})
    except Refused as error:
        if error.status != 404 or not _knows_partitions(rest, topic):
            raise
        hint = f"`magnetar topics delete-partitioned-topic {topic}` deletes it with its partitions"
        raise Refused(error.status, error.reason, hint) from error
    return Done(f"deleted {topic}")


def _knows_partitions(rest: Rest, topic: TopicName) -> bool:
    try:
        return is_partitioned(rest, topic)
    except Refused:
        return False


@group.command("delete-partitioned-topic")
def delete_partitioned(rest: Rest, topic: Topic, force: Force = False) -> Done:
    """Delete a partitioned topic with its partitions and their messages."""
    rest.delete(*topic_path(topic, "partitions"), query={"force": force})
    return Done(f"deleted {topic} and its partitions")


@group.command("terminate")
def terminate(rest: Rest, topic: Topic) -> Record:
    """Terminate a topic: reject new messages, and show the last message id."""
    if is_partitioned(rest, topic):
        ids: dict[str, Any] = rest.post(*topic_path(topic, "terminate", "partitions"))
        return Record(ids)
    return Record(rest.post(*topic_path(topic, "terminate")))


@group.command("truncate")
def truncate(rest: Rest, topic: Topic) -> Done:
    """Delete all messages, even unread ones; the subscriptions are kept."""
    rest.delete(*topic_path(topic, "truncate"))
    return Done(f"truncated {topic}")


@group.command("unload")
def unload(rest: Rest, topic: Topic) -> Done:
    """Close a topic; clients reconnect."""
    rest.put(*topic_path(topic, "unload"))
    return Done(f"unloaded {topic}")


@group.command("compact", pulsar_only=True)
def compact(rest: Rest, topic: Topic) -> Done:
    """Start the compaction of a topic, which keeps the last message of each key."""
    rest.put(*topic_path(topic, "compaction"))
    return Done(f"started the compaction of {topic}")


@group.command("compaction-status", pulsar_only=True)
def compaction_status(rest: Rest, topic: Topic) -> Record:
    """Show the status of the last compaction of a topic."""
    return Record(rest.get(*topic_path(topic, "compaction")))


# -- metadata and statistics

group.panel = "Statistics and metadata"


@group.command("get-partitioned-topic-metadata")
def partitioned_metadata(rest: Rest, topic: Topic) -> Record:
    """Show the number of partitions of a topic, 0 if it is not partitioned."""
    return Record(rest.get(*topic_path(topic, "partitions"), query={"checkAllowAutoCreation": False}))


@group.command("stats")
def stats(
    rest: Rest,
    topic: Topic,
    precise_backlog: Annotated[
        bool, typer.Option("--get-precise-backlog", "-gpb", help="Count messages, not entries.")
    ] = False,
) -> Page:
    """Show rates, sizes, producers and subscriptions of a topic."""
    query = {"getPreciseBacklog": precise_backlog or None}
    if is_partitioned(rest, topic):
        value = rest.get(*topic_path(topic, "partitioned-stats"), query={**query, "perPartition": False})
    else:
        value = rest.get(*topic_path(topic, "stats"), query=query)
    return stats_page(topic.full, value)


@group.command("partitioned-stats")
def partitioned_stats(
    rest: Rest,
    topic: Topic,
    per_partition: Annotated[bool, typer.Option("--per-partition", help="Show each partition as well.")] = False,
) -> Page:
    """Show rates, sizes, producers and subscriptions of a partitioned topic."""
    value = rest.get(*topic_path(topic, "partitioned-stats"), query={"perPartition": per_partition})
    return stats_page(topic.full, value)


@group.command("stats-internal")
def internal_stats(rest: Rest, topic: Topic) -> Page:
    """Show the storage of a topic: ledgers, positions, cursors."""
    if is_partitioned(rest, topic):
        value = rest.get(*topic_path(topic, "partitioned-internalStats"))
        partitions = [
            part for name, one in sorted(value.get("partitions", {}).items()) for part in _internal_parts(name, one)
        ]
        return Page(value, partitions)
    value = rest.get(*topic_path(topic, "internalStats"))
    return Page(value, _internal_parts(topic.full, value))


def _internal_parts(name: str, value: dict[str, Any]) -> list[Record | Table]:
    plain = {field: item for field, item in value.items() if not isinstance(item, dict | list)}
    cursors = value.get("cursors") or {}
    rows = [
        (cursor, one.get("markDeletePosition"), one.get("readPosition"), one.get("messagesConsumedCounter"))
        for cursor, one in sorted(cursors.items())
    ]
    parts: list[Record | Table] = [Record(plain, title=name)]
    if rows:
        parts.append(Table(cursors, ("SUBSCRIPTION", "ACKNOWLEDGED UP TO", "READS FROM", "CONSUMED"), rows))
    return parts


@group.command("skip-damaged")
def skip_damaged(rest: Rest, topic: Topic) -> Record:
    """Skip messages that cannot be read, for all subscriptions of a topic that the caller may use."""
    value = rest.post(*topic_path(topic, "skipDamaged"))
    fields = {f"{part} {name}": shown_skip(one) for part, found in value.items() for name, one in found.items()}
    return Record(value, fields=fields, none="the topic has no subscription")


@group.command("lookup")
def lookup(rest: Rest, topic: Topic) -> Record:
    """Show the broker that serves a topic."""
    value = rest.lookup(topic.domain, topic.tenant, topic.namespace, topic.local)
    return Record(value, fields={name: item for name, item in value.items() if item})


@group.command("last-message-id")
def last_message_id(rest: Rest, topic: Topic) -> Record:
    """Show the id of the last message of a topic."""
    return Record(rest.get(*topic_path(topic, "lastMessageId")))


@group.command("get-message-id")
def message_id(
    rest: Rest,
    topic: Topic,
    time: Annotated[
        int,
        typer.Option("--datetime", "-d", metavar="TIME", parser=parse_time, help="The time: 2026-01-31T18:00:00Z."),
    ],
) -> Record:
    """Show the id of the first message published at or after a time."""
    return Record(rest.get(*topic_path(topic, "messageid", str(time))))


@group.command("properties")
def properties(rest: Rest, topic: Topic) -> Record:
    """Show the properties of a topic (`wasAutoCreated` if it was auto-created)."""
    return Record(rest.get(*topic_path(topic, "properties")), none=f"{topic} has no properties")


@group.command("update-properties")
def update_properties(rest: Rest, topic: Topic, properties: Properties = None) -> Done:
    """Set properties of a topic; others are kept."""
    given = properties_of(properties)
    if not given:
        raise typer.BadParameter("give at least one --property key=value")
    rest.put(*topic_path(topic, "properties"), body=given)
    return Done(f"set {', '.join(given)} of {topic}")


@group.command("remove-properties")
def remove_properties(
    rest: Rest, topic: Topic, key: Annotated[str, typer.Option("--key", "-k", help="The key of the property.")]
) -> Done:
    """Remove one property of a topic."""
    rest.delete(*topic_path(topic, "properties"), query={"key": key})
    return Done(f"removed property {key} of {topic}")


# -- permissions

group.panel = "Permissions"


@group.command("permissions")
def permissions(rest: Rest, topic: Topic) -> Record:
    """Show the permissions of roles on a topic, with those they have in its namespace."""
    return Record(rest.get(*topic_path(topic, "permissions")), none=f"{topic} has no permissions")


@group.command("grant-permission")
def grant_permission(rest: Rest, topic: Topic, role: Role, actions: Actions) -> Done:
    """Grant permissions on a topic to a role."""
    rest.post(*topic_path(topic, "permissions", role), body=actions)
    return Done(f"granted {', '.join(actions)} on {topic} to {role}")


@group.command("revoke-permission")
def revoke_permission(rest: Rest, topic: Topic, role: Role) -> Done:
    """Revoke all permissions of a role on a topic; those in its namespace stay."""
    rest.delete(*topic_path(topic, "permissions", role))
    return Done(f"revoked all permissions on {topic} of {role}")


add_topic_policies(group)
