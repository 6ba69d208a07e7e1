"""Topics: list, create, unload, truncate, terminate, delete, properties and statistics.

The catalog has the rules of creation. A change of a partitioned topic is checked on all partitions first.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest, Conflict, OperationNotAllowed
from magnetar.admin.http.request import Call, check_map
from magnetar.admin.opened import (
    open_partitions,
    open_persistent,
    open_persistent_partitions,
    open_topic,
    require_exists,
    require_persistent,
    require_topic,
    topic_names,
)
from magnetar.admin.resource.namespaces import BUNDLE, topics_of
from magnetar.admin.stats.internal import (
    InternalStats,
    LedgerRecord,
    PartitionedLedgerRecord,
    StoredBacklog,
    internal_stats,
    ledger_record,
    stored_backlog,
)
from magnetar.admin.stats.topic import StatsOptions, TopicStats, topic_stats
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import NamespaceNotFound, NotAllowed
from magnetar.names import TopicName, is_system_topic
from magnetar.replication.model import COPY_OF
from magnetar.wire.metadata import MetadataError, metadata_of


class MessageIdReply(msgspec.Struct, rename="camel"):
    """`batch_index` and `batch_size` are set for messages in a batch."""

    ledger_id: int
    entry_id: int
    partition_index: int
    batch_index: int = -1
    batch_size: int = 0


COPY_OF_SIZE_MAX = 4096
_properties: BodyReader[dict[str, str]] = BodyReader(dict[str, str])


# -- lists


def list_topics(call: Call) -> list[str]:
    """List topics, each partition by itself; `bundle`, `includeSystemTopic` and `properties` filter them."""
    bundle, with_system_topics = call.query.get("bundle", ""), call.flag("includeSystemTopic")
    wanted, catalog = _wanted_properties(call).items(), call.broker.catalog
    topics = topics_of(call, (call.path["domain"],)) if bundle in ("", BUNDLE) else []
    if not with_system_topics:
        topics = [full for full in topics if "/__" not in full or not is_system_topic(TopicName.parse(full))]
    if wanted:
        topics = [full for full in topics if wanted <= catalog.properties_of(TopicName.parse(full)).items()]
    return topics


def _wanted_properties(call: Call) -> dict[str, str]:
    """The parameter `properties=key=value,key=value`."""
    pairs = [pair.partition("=") for pair in call.query.get("properties", "").split(",")]
    return {key.strip(): value.strip() for key, separator, value in pairs if separator and key.strip()}


def list_partitioned(call: Call) -> list[str]:
    """List partitioned topics."""
    namespace, catalog = call.namespace, call.broker.catalog
    if namespace not in catalog.namespaces:
        raise NamespaceNotFound("Namespace does not exist")
    prefix = f"{call.path['domain']}://{namespace}/"
    return sorted(full for full in catalog.partitioned if full.startswith(prefix))


# -- topics without partitions


def create(call: Call) -> None:
    """Create a topic without partitions, or a missing partition; the body is its properties."""
    name, catalog = call.topic, call.broker.catalog
    properties = call.body_as(_properties) or {}
    catalog.check_namespace(name)
    if name.is_partition:
        _check_partition(call)
    check_map("properties of the topic", properties)
    catalog.create(name, {**properties, **copy_mark(call)})


def copy_mark(call: Call) -> dict[str, str]:
    """The property of a topic that a pipeline or a broker of another cluster creates for its copies."""
    copy_of = call.query.get("copyOf", "")
    if len(copy_of) > COPY_OF_SIZE_MAX:
        raise BadRequest(f"parameter copyOf has {len(copy_of)} characters, more than {COPY_OF_SIZE_MAX}")
    return {COPY_OF: copy_of} if copy_of else {}


def _check_partition(call: Call) -> None:
    """AC6: a partition needs its partitioned topic, and an index below the number of partitions."""
    name = call.topic
    base = call.broker.catalog.partitioned.get(name.base.full)
    refusal = f'Can\'t create topic {name.local} with "-partition-" followed by'
    if base is None:
        raise NotAllowed(f"{refusal} numeric value if there isn't a partitioned topic {name.base.local} created.")
    if name.partition >= base.partitions:
        raise NotAllowed(
            f"{refusal} a number that is not smaller than the number of partitions of partitioned topic"
            f" {name.base.local}, which is {base.partitions}"
        )


def delete(call: Call) -> None:
    """Delete a topic without partitions, or one partition; one in use only with `force`."""
    name, force = call.topic, call.flag("force")
    if name.full in call.broker.catalog.partitioned:
        raise Conflict(
            f"{name.full} is a partitioned topic, instead of calling delete topic,"
            " please call delete-partitioned-topic."
        )
    require_exists(call)
    call.broker.delete_topic(name, force=force)


def unload(call: Call) -> None:
    """Close a topic: its clients are disconnected, reconnect, and it is opened from disk again."""
    for name in topic_names(call):
        call.broker.unload(name)


def truncate(call: Call) -> None:
    """Delete all messages, including those that retention or a subscription would keep."""
    if not call.topic.is_persistent:
        raise NotAllowed("unsupport truncate")
    for topic in open_partitions(call):
        assert isinstance(topic, PersistentTopic)
        topic.truncate()


def trim(call: Call) -> Response:
    """Delete messages that retention does not keep, now and not at the next interval."""
    if not call.topic.is_persistent:
        raise OperationNotAllowed("Trim on a non-persistent topic is not allowed")
    for topic in open_partitions(call):
        assert isinstance(topic, PersistentTopic)
        if topic.trim(call.broker.steady.now_ms()):
            call.broker.commits.batch()  # periodic trims do not wait for the disk, this one does
    return Response()  # as in Apache Pulsar, not 204


def terminate(call: Call) -> MessageIdReply:
    """Terminate a topic: no more messages; consumers that have read all are notified. Returns the last message id."""
    require_persistent(call)
    topic = open_persistent(
        call,
        partitioned="Termination of a partitioned topic is not allowed",
        non_persistent="Termination of a non-persistent topic is not allowed",
    )
    return terminated(topic)


def terminated(topic: PersistentTopic) -> MessageIdReply:
    return MessageIdReply(topic.ledger_id, topic.terminate(), topic.name.partition)


def last_message_id(call: Call) -> MessageIdReply:
    """Show the id of the last message."""
    topic = open_topic(call)
    if not isinstance(topic, PersistentTopic):
        raise OperationNotAllowed("GetLastMessageId on a non-persistent topic is not allowed")
    message_id = MessageIdReply(topic.ledger_id, topic.log.confirmed, topic.name.partition)
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
    """Show the properties of a topic."""
    name, catalog = call.topic, call.broker.catalog
    require_topic(call)
    return catalog.properties_of(name)


def update_properties(call: Call) -> None:
    """Set properties of a topic; others are kept."""
    name, catalog, more = call.topic, call.broker.catalog, call.body_as(_properties) or {}
    require_topic(call)
    if more:
        properties = {**catalog.properties_of(name), **more}
        check_map("properties of the topic", properties)
        catalog.set_properties(name, properties)


def remove_property(call: Call) -> None:
    """Remove the property `key` of a topic."""
    name, catalog, key = call.topic, call.broker.catalog, call.query.get("key")
    if key is None:
        raise BadRequest("parameter key is missing: name the property to remove")
    require_topic(call)
    kept = catalog.properties_of(name)
    if key in kept:
        catalog.set_properties(name, {other: value for other, value in kept.items() if other != key})


# -- statistics


def stats_options(call: Call) -> StatsOptions:
    call.flag("getPreciseBacklog")  # the backlog is always precise
    return StatsOptions(
        backlog_size=call.flag("subscriptionBacklogSize", default=True),
        earliest_time=call.flag("getEarliestTimeInBacklog"),
        publishers=not call.flag("excludePublishers"),
        consumers=not call.flag("excludeConsumers"),
    )


def get_stats(call: Call) -> TopicStats:
    """Show counters, rates and backlogs of a topic with its producers, subscriptions and consumers."""
    return topic_stats(open_topic(call), stats_options(call), owner=call.http_address)


def get_internal_stats(call: Call) -> InternalStats:
    """Show the positions of a topic and of its subscriptions."""
    return internal_stats(open_topic(call))


def get_internal_info(call: Call) -> LedgerRecord | PartitionedLedgerRecord:
    """Show how a topic and its subscriptions are stored."""
    if not call.topic.is_persistent:
        raise OperationNotAllowed("Internal info of a non-persistent topic is not allowed: it is not stored")
    topics = open_persistent_partitions(call)
    if call.topic.full in call.broker.catalog.partitioned:
        return PartitionedLedgerRecord({topic.name.full: ledger_record(topic) for topic in topics})
    return ledger_record(topics[0])


def get_backlog(call: Call) -> StoredBacklog:
    """Show the size of a topic and the backlog of each subscription."""
    topic = open_persistent(
        call,
        partitioned="Get backlog of a partitioned topic is not allowed, request it for each partition",
        non_persistent="Get backlog of a non-persistent topic is not allowed",
    )
    return stored_backlog(topic, owner=call.broker.settings.advertisedAddress or call.host)
