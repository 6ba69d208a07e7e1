"""Partitioned topics: create, grow, terminate, delete, and statistics over all partitions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest, Conflict, OperationNotAllowed, PartitionCountRefused
from magnetar.admin.http.request import Call, check_map
from magnetar.admin.opened import open_partitions, open_persistent_partitions, require_persistent
from magnetar.admin.policy.checks import PARTITIONS_MAX
from magnetar.admin.resource.topics import MessageIdReply, copy_mark, stats_options, terminated
from magnetar.admin.stats.internal import PartitionedInternalStats, internal_stats
from magnetar.admin.stats.topic import PartitionedMetadataStats, PartitionedStats, partitioned_stats, topic_stats
from magnetar.broker.catalog import creation
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import NotAllowed, PartitionCountInvalid, TopicNotFound
from magnetar.names import TopicName


class PartitionedMetadata(msgspec.Struct):
    partitions: int
    deleted: bool = False


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]  # Java's int


class PartitionsBody(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Int32
    properties: dict[str, str] | None = None
    deleted: bool = False


_partitions: BodyReader[int | PartitionsBody] = BodyReader(Int32 | PartitionsBody)


def count(call: Call) -> PartitionedMetadata:
    """Show the number of partitions; with `checkAllowAutoCreation` creates a missing topic if auto-creation allows."""
    create_it = call.flag("checkAllowAutoCreation")
    if create_it:  # what clients with an http:// address send before they create a producer or a consumer
        call.check_program("checkAllowAutoCreation")
    return PartitionedMetadata(creation.partitions(call.broker.catalog, call.topic, create=create_it))


def create(call: Call) -> None:
    """Create a partitioned topic; the body is their number; `copyOf` marks a topic for copies."""
    name, body = call.topic, _partitions_body(call)
    call.broker.catalog.check_namespace(name)
    limit = _partitions_max(call)
    if body.partitions > limit:
        raise PartitionCountInvalid(f"Number of partitions should be less than or equal to {limit}")
    properties = body.properties or {}
    check_map("properties of the topic", properties)
    call.broker.catalog.create_partitioned(name, body.partitions, {**properties, **copy_mark(call)})


def grow(call: Call) -> None:
    """Add partitions; the body is the new total."""
    name, catalog, wanted = call.topic, call.broker.catalog, _partitions_body(call).partitions
    catalog.check_namespace(name)
    if name.is_partition:
        raise NotAllowed("Partitioned Topic Name should not contain '-partition-'")
    if name.full not in catalog.partitioned:
        raise Conflict(f"Topic {name.full} is not the partitioned topic.")
    current, limit = catalog.partitioned[name.full].partitions, _partitions_max(call)
    if wanted < current:
        raise PartitionCountRefused(f"Desired partitions {wanted} can't be less than the current partitions {current}.")
    if wanted > limit:
        raise PartitionCountRefused(
            f"Desired partitions {wanted} can't be greater than the maximum partitions per topic {limit}."
        )
    catalog.grow_partitioned(name, wanted)
    _copy_subscriptions(call, name, wanted)


def _copy_subscriptions(call: Call, name: TopicName, count: int) -> None:
    """New partitions get the durable subscriptions of the first: consumers that find them late miss nothing."""
    if not name.is_persistent:
        return
    first, *others = (call.broker.topic(name.with_partition(index)) for index in range(count))
    assert isinstance(first, PersistentTopic)
    durable = [subscription for subscription in first.cursors if subscription.durable]
    for topic in others:
        assert isinstance(topic, PersistentTopic)
        for subscription in durable:
            if subscription.name not in topic.subscriptions:
                record = subscription.record
                created = topic.create_subscription(
                    SubscribeRequest(
                        subscription.name,
                        from_earliest=True,
                        properties=dict(record.properties),
                        replicated=record.replicated,
                    )
                )
                kept = {"id": created.record.id, "properties": created.record.properties}
                topic.save_subscription(created, msgspec.structs.replace(record, **kept))


def create_missed(call: Call) -> None:
    """Create missing partitions."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    partitioned = catalog.partitioned.get(name.full)
    if partitioned is None:
        raise TopicNotFound(f"Topic {name.full} does not exist")
    catalog.grow_partitioned(name, partitioned.partitions)


def delete(call: Call) -> None:
    """Delete a partitioned topic with all its partitions; one in use only with `force`."""
    name, catalog, force = call.topic, call.broker.catalog, call.flag("force")
    catalog.check_namespace(name)
    if name.full not in catalog.partitioned and catalog.exists(name):
        raise Conflict(
            f"{name.full} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
        )
    call.broker.delete_partitioned(name, force=force)


def _partitions_body(call: Call) -> PartitionsBody:
    body = call.body_as(_partitions)
    if body is None:
        raise BadRequest("the request body is empty: the number of partitions is expected")
    return PartitionsBody(body) if isinstance(body, int) else body


def _partitions_max(call: Call) -> int:
    return call.broker.settings.maxNumPartitionsPerPartitionedTopic or PARTITIONS_MAX


def terminate(call: Call) -> dict[int, MessageIdReply]:
    """Terminate all partitions; returns the last message id of each."""
    require_persistent(call)
    call.broker.catalog.check_namespace(call.topic)
    if call.topic.full not in call.broker.catalog.partitioned:
        raise OperationNotAllowed(
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate,"
            " please use terminate commands"
        )
    topics = open_persistent_partitions(call)
    return {topic.name.partition: terminated(topic) for topic in topics}


# -- statistics


def _partition_count(call: Call) -> int:
    """Raises if the topic is not partitioned."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    if name.full not in catalog.partitioned:
        raise TopicNotFound(f"Partitioned Topic {name.full} not found")
    return catalog.partitioned[name.full].partitions


def get_stats(call: Call) -> PartitionedStats:
    """Show the sum of the statistics of all partitions, and with `perPartition` those of each."""
    per_partition, options = call.flag("perPartition", default=True), stats_options(call)
    count, owner = _partition_count(call), call.http_address
    topics = {topic.name.full: topic_stats(topic, options, owner=owner) for topic in open_partitions(call)}
    return partitioned_stats(count, topics, per_partition=per_partition)


def get_internal_stats(call: Call) -> PartitionedInternalStats:
    """Show the positions of all partitions."""
    metadata = PartitionedMetadataStats(_partition_count(call))
    topics = {topic.name.full: internal_stats(topic) for topic in open_partitions(call)}
    return PartitionedInternalStats(metadata=metadata, partitions=topics)
