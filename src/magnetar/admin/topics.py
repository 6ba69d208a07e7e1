"""Topics: create, grow, delete, terminate, and what is known of one. The rules of creation are the catalog's."""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.admin import stats
from magnetar.admin.call import Call
from magnetar.admin.namespaces import topics_of
from magnetar.admin.refusal import BadRequest, Conflict, DomainNotAcceptable, OperationNotAllowed, PartitionCountRefused
from magnetar.broker.persistent import PersistentTopic
from magnetar.broker.topic import SubscribeRequest, Topic
from magnetar.errors import NamespaceNotFound, NotAllowed, PartitionCountInvalid, TopicNotFound
from magnetar.names import TopicName
from magnetar.wire.metadata import MetadataError, metadata_of

PARTITIONS_MAX = 10_000
"""Where maxNumPartitionsPerPartitionedTopic sets no limit: partitions are made in one transaction, in memory."""


class PartitionedMetadata(msgspec.Struct):
    partitions: int
    deleted: bool = False


class MessageId(msgspec.Struct, rename="camel", omit_defaults=True):
    """`batch_index` and `batch_size` are there for a batch only."""

    ledger_id: int
    entry_id: int
    partition_index: int
    batch_index: int | None = None
    batch_size: int | None = None


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]  # what other brokers and clients can hold


class PartitionsBody(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Int32
    properties: dict[str, str] | None = None
    deleted: bool = False


_partitions: msgspec.json.Decoder[int | PartitionsBody] = msgspec.json.Decoder(Int32 | PartitionsBody)
_properties = msgspec.json.Decoder(dict[str, str])


# -- finding


def opened(call: Call) -> Topic:
    """The called topic or partition itself; it has to exist, and asking never creates it."""
    return _opened(call, call.topic)


def _opened(call: Call, name: TopicName) -> Topic:
    catalog = call.broker.catalog
    catalog.check_namespace(name)
    if name.full in catalog.partitioned:
        raise TopicNotFound(f"Topic {name.full} not found: it is partitioned, ask for its partitions")
    if not catalog.exists(name):
        raise TopicNotFound(f"Topic {name.full} not found")
    return call.broker.topic(name)


def opened_partitions(call: Call) -> list[Topic]:
    """All partitions of the called topic that exist, or the topic itself when it is not partitioned."""
    name, catalog = call.topic, call.broker.catalog
    partitioned = catalog.partitioned.get(name.full)
    if partitioned is None:
        return [opened(call)]
    names = (name.with_partition(index) for index in range(partitioned.partitions))
    return [call.broker.topic(one) for one in names if catalog.exists(one)]


def _partition_count(call: Call) -> int:
    """Of a topic that is partitioned."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    if name.full not in catalog.partitioned:
        raise TopicNotFound(f"Partitioned Topic {name.full} not found")
    return catalog.partitioned[name.full].partitions


def _persistent(call: Call, operation: str) -> PersistentTopic:
    if call.topic.full in call.broker.catalog.partitioned:
        raise OperationNotAllowed(f"{operation} of a partitioned topic is not allowed")
    topic = opened(call)
    if not isinstance(topic, PersistentTopic):
        raise OperationNotAllowed(f"{operation} of a non-persistent topic is not allowed")
    return topic


def list_topics(call: Call) -> list[str]:
    return topics_of(call, (call.path["domain"],))


def list_partitioned(call: Call) -> list[str]:
    namespace, catalog = call.namespace, call.broker.catalog
    if namespace not in catalog.namespaces:
        raise NamespaceNotFound("Namespace does not exist")
    prefix = f"{call.path['domain']}://{namespace}/"
    return sorted(full for full in catalog.partitioned if full.startswith(prefix))


# -- plain topics


def create(call: Call) -> None:
    name, catalog = call.topic, call.broker.catalog
    properties = call.body_as(_properties) or {}
    catalog.check_namespace(name)
    if name.is_partition:
        base = catalog.partitioned.get(name.base.full)
        if base is None or name.partition >= base.partitions:
            count = 0 if base is None else base.partitions
            raise NotAllowed(f"topic {name.full} cannot be created: {name.base.full} has {count} partitions")
    catalog.create(name, properties)


def delete(call: Call) -> None:
    force = call.flag("force")
    opened(call)
    call.broker.delete_topic(call.topic, force=force)


def terminate(call: Call) -> MessageId:
    if not call.topic.is_persistent:
        raise DomainNotAcceptable("Need to provide a persistent topic name")
    topic = _persistent(call, "Termination")
    return MessageId(topic.ledger_id, topic.terminate(), topic.name.partition)


def last_message_id(call: Call) -> MessageId:
    topic = _persistent(call, "GetLastMessageId")
    message_id = MessageId(topic.ledger_id, topic.log.confirmed, topic.name.partition)
    entry = topic.log.read_one(topic.log.confirmed)
    if entry is not None:
        try:
            metadata = metadata_of(entry[3])
        except MetadataError:
            return message_id
        if metadata.HasField("num_messages_in_batch"):
            message_id.batch_size = metadata.num_messages_in_batch
            message_id.batch_index = message_id.batch_size - 1
    return message_id


def properties(call: Call) -> dict[str, str]:
    partitioned = call.broker.catalog.partitioned.get(call.topic.full)
    if partitioned is not None:
        return partitioned.properties
    topic = opened(call)
    return topic.record.properties if isinstance(topic, PersistentTopic) else {}


# -- partitioned topics


def partitions(call: Call) -> PartitionedMetadata:
    """How many there are; with checkAllowAutoCreation a missing topic comes to be where clients may create it."""
    create_it = call.flag("checkAllowAutoCreation")
    return PartitionedMetadata(call.broker.catalog.partitions(call.topic, create=create_it))


def create_partitioned(call: Call) -> None:
    name, body = call.topic, _partitions_body(call)
    call.broker.catalog.check_namespace(name)
    limit = _partitions_max(call)
    if body.partitions > limit:
        raise PartitionCountInvalid(f"Number of partitions should be less than or equal to {limit}")
    call.broker.catalog.create_partitioned(name, body.partitions, body.properties or {})


def grow_partitioned(call: Call) -> None:
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
    """New partitions start with the durable subscriptions of the first: consumers find them late and miss nothing."""
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
                topic.create_subscription(
                    SubscribeRequest(
                        subscription.name,
                        from_earliest=True,
                        properties=dict(record.properties),
                        replicated=record.replicated,
                    )
                )


def delete_partitioned(call: Call) -> None:
    name, catalog, force = call.topic, call.broker.catalog, call.flag("force")
    catalog.check_namespace(name)
    if name.full not in catalog.partitioned and catalog.exists(name):
        raise Conflict(f"{name.full} is a non-partitioned topic: delete it without /partitions")
    call.broker.delete_partitioned(name, force=force)


def _partitions_body(call: Call) -> PartitionsBody:
    body = call.body_as(_partitions)
    if body is None:
        raise BadRequest("the request body is empty: the number of partitions is expected")
    return PartitionsBody(body) if isinstance(body, int) else body


def _partitions_max(call: Call) -> int:
    return call.broker.settings.maxNumPartitionsPerPartitionedTopic or PARTITIONS_MAX


# -- numbers


def get_stats(call: Call) -> stats.TopicStats:
    return stats.topic_stats(opened(call))


def get_internal_stats(call: Call) -> stats.InternalStats:
    return stats.internal_stats(opened(call))


def get_partitioned_stats(call: Call) -> stats.PartitionedStats:
    per_partition = call.flag("perPartition", default=True)
    count = _partition_count(call)
    return stats.partitioned_stats(count, opened_partitions(call), per_partition=per_partition)
