"""Commands of a consumer: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, CLOSE and its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from magnetar.broker.bits import bits_at
from magnetar.broker.broker import Broker
from magnetar.broker.catalog import creation
from magnetar.broker.catalog.failure_policy import DeadLetterPolicy, policy_from
from magnetar.broker.schema.admission import admit_consumer
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.places import Places
from magnetar.broker.subscription.single_messages import SINGLE_ID_MIN, parse_id
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest, TopicSubscription
from magnetar.errors import (
    ConsumerAssignFailed,
    ConsumerNotFound,
    InvalidName,
    MetadataInvalid,
    NotAllowed,
    RouteChanged,
    ServiceNotReady,
)
from magnetar.names import SUBSCRIPTION_NAME_BYTES_MAX, TopicName
from magnetar.replication.model import is_replication_subscription
from magnetar.schema.types import SchemaType
from magnetar.session.dear_schemas import waits_for_examination
from magnetar.session.guards import REFUSED, refusal_of, remove_consumer
from magnetar.session.handles import Command, ConsumerHandle, bits_of
from magnetar.session.limits import check_room, takes_ids
from magnetar.session.schema import schema_of
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import MetadataError, metadata_of

if TYPE_CHECKING:
    from magnetar.session.session import Session

_SIGN = 1 << 63


def signed(value: int) -> int:
    """Ids are unsigned on the wire but signed for clients: -1 is before the first entry."""
    return value - (1 << 64) if value & _SIGN else value


def on_subscribe(session: Session, command: Command) -> None:
    request = command.subscribe
    if request.consumer_id in session.consumers:
        session.reply_success(request.request_id)
        return
    check_room(session, session.consumers, "consumers")
    broker = session.broker
    name = TopicName.parse(request.topic)
    metadata = {pair.key: pair.value for pair in request.metadata}
    policy = _dead_letters_of(broker, request, name, metadata)
    _check_subscribe(broker, name, request)
    if not broker.replication.admits_consumer(name, metadata):
        raise RouteChanged(f"the route policy of {name.full} changed, or it is no longer replicated")
    schema = schema_of(request)
    if waits_for_examination(session, command, name, schema, reads=True):
        return
    topic = broker.topic(name, create=request.force_topic_creation)
    wait_ms = topic.subscribe_wait_ms(session.address, request.consumer_name, request.consumer_id, metadata)
    if wait_ms:
        session.late_subscribes.wait(command, wait_ms)
        return
    admit_consumer(topic, schema)
    key_shared = request.keySharedMeta
    sticky = key_shared.keySharedMode == pb.STICKY
    consumer = Consumer(
        session,
        request.consumer_id,
        request.consumer_name or broker.new_name(),
        SubscriptionType(request.subType),
        priority=request.priority_level,
        metadata=metadata,
        epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
        hash_ranges=[(r.start, r.end) for r in key_shared.hashRanges] if sticky else None,
        allow_out_of_order=key_shared.allowOutOfOrderDelivery,
        connected_at_ms=broker.now_ms(),
        unacked_max=topic.policies.max_unacked_per_consumer,
        takes_any_schema=schema is not None and schema.type is SchemaType.AUTO_CONSUME,
    )
    handle = session.consumers[request.consumer_id] = ConsumerHandle(consumer, topic, session.asked)
    try:
        subscription = topic.subscribe(consumer, _subscribe_request(request))
        if policy is not None and isinstance(subscription, Subscription):
            signed = msgspec.structs.replace(policy, author=session.broker.authorization.author(session.principal))
            subscription.set_dead_letter_policy(signed, f"consumer {consumer.name}")
        session.reply_success(request.request_id)
    except Exception:  # nothing is half done: the client has no consumer, so the subscription has none either
        session.consumers.pop(request.consumer_id, None)
        remove_consumer(session, handle)
        raise


def _dead_letters_of(
    broker: Broker, request: pb.CommandSubscribe, name: TopicName, metadata: dict[str, str]
) -> DeadLetterPolicy | None:
    policy = policy_from(metadata)
    if policy is None:
        return None
    target = policy.declared_topic_for(name, request.subscription)
    creation.check_dead_letter_topic(broker.catalog, target, name)
    if not (request.durable and name.is_persistent):
        raise NotAllowed(
            f"subscription {request.subscription!r} of {name.full} cannot have a dead letter policy:"
            " only durable subscriptions of persistent topics can"
        )
    return policy


def _check_subscribe(broker: Broker, name: TopicName, request: pb.CommandSubscribe) -> None:
    """Raises for invalid requests, before the topic is created."""
    size = len(request.subscription.encode())
    if not 1 <= size <= SUBSCRIPTION_NAME_BYTES_MAX:
        raise InvalidName(f"subscription name of {size} bytes: must be 1 to {SUBSCRIPTION_NAME_BYTES_MAX} bytes")
    type_name = SubscriptionType(request.subType).name
    broker.catalog.check_namespace(name)
    enabled = broker.catalog.policies_of_topic(name).subscription_types
    if type_name not in enabled and not is_replication_subscription(request.subscription):
        raise NotAllowed(
            f"subscription type {type_name} is not enabled for topic {name.full}, only {', '.join(sorted(enabled))}"
        )
    if request.keySharedMeta.keySharedMode == pb.STICKY and not request.keySharedMeta.hashRanges:
        raise ConsumerAssignFailed("a consumer in sticky mode must name at least one hash range")
    # Topics are never compacted here, so a compacted read is a full read, as in Apache Pulsar.
    if request.read_compacted and type_name in ("Shared", "Key_Shared"):
        raise NotAllowed(f"read_compacted is not allowed on a {type_name} subscription")


def _subscribe_request(request: pb.CommandSubscribe) -> SubscribeRequest:
    start = None
    if request.HasField("start_message_id"):
        ledger_id = signed(request.start_message_id.ledgerId)
        entry_id = signed(request.start_message_id.entryId)
        if ledger_id >= 0 and entry_id >= 0:
            entry_id -= 1  # includes that entry: only the client knows whether, and from which index, it wants it
        start = (ledger_id, entry_id)
    return SubscribeRequest(
        request.subscription,
        durable=request.durable,
        from_earliest=request.initialPosition == pb.CommandSubscribe.Earliest,
        start=start,
        rollback_ms=request.start_message_rollback_duration_sec * 1000,
        properties={pair.key: pair.value for pair in request.subscription_properties},
        replicated=request.replicate_subscription_state,
    )


def on_flow(session: Session, command: Command) -> None:
    handle = session.consumers.get(command.flow.consumer_id)
    if handle is not None and handle.consumer.subscription is not None:
        if not handle.is_known:
            session.announce_active(handle)
        handle.consumer.last_flow_ms = session.broker.now_ms()
        handle.consumer.subscription.flow(handle.consumer, command.flow.messagePermits)


def on_ack(session: Session, command: Command) -> None:
    ack = command.ack
    if not takes_ids(session, "ACK", len(ack.message_id)):
        return
    response = pb.CommandAckResponse(consumer_id=ack.consumer_id, request_id=ack.request_id)
    try:
        _acknowledge(session, ack)
    except REFUSED as raised:
        error = refusal_of(session, command, raised)
        response.error = error.wire_code  # type: ignore[assignment]
        response.message = str(error)
    if ack.HasField("request_id"):
        session.send_when_durable(Command(type=Command.ACK_RESPONSE, ackResponse=response))


def _acknowledge(session: Session, ack: pb.CommandAck) -> None:
    if ack.HasField("txnid_least_bits") or ack.HasField("txnid_most_bits"):
        raise NotAllowed("transactions are not supported by this broker")
    handle = _consumer(session, ack.consumer_id)
    subscription = handle.consumer.subscription
    assert subscription is not None
    acknowledge = subscription.ack if ack.ack_type == pb.CommandAck.Individual else subscription.ack_cumulative
    ledger_id = handle.topic.ledger_id
    for message_id in ack.message_id:
        if message_id.ledgerId == ledger_id:  # otherwise of a deleted topic of this name
            open_bits = bits_of(message_id.ack_set) if message_id.ack_set else None
            entry_id, index = message_id.entryId, -1
            if entry_id >= SINGLE_ID_MIN:
                entry_id, index = parse_id(entry_id)
            if index < 0:
                acknowledge(entry_id, open_bits, max(message_id.batch_size, 0))
            else:
                _acknowledge_single(subscription, ack, entry_id, index)


def _acknowledge_single(subscription: TopicSubscription, ack: pb.CommandAck, entry_id: int, index: int) -> None:
    if ack.ack_type != pb.CommandAck.Individual:
        raise NotAllowed(
            "a message that was delivered alone after its batch failed cannot be acknowledged cumulatively"
        )
    subscription.ack(entry_id, ~(1 << index))


def on_redeliver(session: Session, command: Command) -> None:
    redeliver = command.redeliverUnacknowledgedMessages
    handle = session.consumers.get(redeliver.consumer_id)
    if handle is None or handle.consumer.subscription is None:
        return
    if not takes_ids(session, "REDELIVER_UNACKNOWLEDGED_MESSAGES", len(redeliver.message_ids)):
        return
    ledger_id, consumer = handle.topic.ledger_id, handle.consumer
    # No ids means all messages.
    named = [_index_of(m) for m in redeliver.message_ids if m.ledgerId == ledger_id]
    entry_ids = [entry_id for entry_id, _ in named] if redeliver.message_ids else None
    epoch = redeliver.consumer_epoch if redeliver.HasField("consumer_epoch") else None
    subscription = handle.consumer.subscription
    indexes = (
        _indexes_of(named, consumer.pending, subscription.places) if isinstance(subscription, Subscription) else {}
    )
    subscription.redeliver(consumer, entry_ids, epoch, indexes)


def _indexes_of(named: Sequence[tuple[int, int]], held: Mapping[int, int], places: Places) -> dict[int, int]:
    """Messages of batches given by index, as bits by entry; an entry given as a whole has none.

    Only of entries that the consumer holds, and only of messages that they have.
    """
    indexes: dict[int, set[int]] = {}
    whole = {entry_id for entry_id, index in named if index < 0}
    for entry_id, index in named:
        if index >= 0 and entry_id in held and entry_id not in whole:
            indexes.setdefault(entry_id, set()).add(index)
    bits = {}
    for entry_id, those in indexes.items():
        # It holds the open messages of a batch; which ones, only matters where some are acknowledged.
        messages = held[entry_id] if max(those) < held[entry_id] else places.messages_in(entry_id)
        # None left means that nothing of it failed: without bits the whole entry would have.
        bits[entry_id] = bits_at(index for index in those if index < messages)
    return bits


def _index_of(message_id: pb.MessageIdData) -> tuple[int, int]:
    if message_id.entryId < SINGLE_ID_MIN:
        return message_id.entryId, message_id.batch_index
    return parse_id(message_id.entryId)


def on_seek(session: Session, command: Command) -> None:
    seek = command.seek
    handle = _consumer(session, seek.consumer_id)
    subscription, topic = handle.consumer.subscription, handle.topic
    if not seek.HasField("message_id") and not seek.HasField("message_publish_time"):
        raise MetadataInvalid("seek needs a message id or a publish time")
    if isinstance(topic, PersistentTopic) and isinstance(subscription, Subscription):
        if seek.HasField("message_id"):
            target = seek.message_id
            if SINGLE_ID_MIN <= target.entryId < _SIGN - 1:  # LATEST is the largest signed number
                target.entryId = parse_id(target.entryId)[0]
            entry_id = topic.entry_after(signed(target.ledgerId), signed(target.entryId) - 1)
            # The bits select messages of exactly that batch, not of the entry that replaces a trimmed one.
            is_there = (target.ledgerId, target.entryId) == (topic.ledger_id, entry_id)
            subscription.seek(entry_id, bits_of(target.ack_set) if is_there and target.ack_set else None)
        else:
            subscription.seek(topic.log.first_published_from(signed(seek.message_publish_time)))
    session.reply_success(seek.request_id)


def on_get_last_message_id(session: Session, command: Command) -> None:
    request = command.getLastMessageId
    handle = _consumer(session, request.consumer_id)
    topic, subscription = handle.topic, handle.consumer.subscription
    if not isinstance(topic, PersistentTopic) or not isinstance(subscription, Subscription):
        raise NotAllowed("a non-persistent topic has no last message id")
    response = pb.CommandGetLastMessageIdResponse(
        request_id=request.request_id,
        consumer_mark_delete_position=_message_id(topic, subscription.cursor.mark_delete),
    )
    entry = topic.log.read_one(topic.log.confirmed)
    if entry is None:
        # The earliest id, as Apache Pulsar replies for an empty topic.
        response.last_message_id.CopyFrom(pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1))
        response.last_message_id.partition = topic.name.partition
        response.last_message_id.batch_index = -1
    else:
        response.last_message_id.CopyFrom(_message_id(topic, entry[0]))
        response.last_message_id.batch_index = _last_batch_index(entry[3])
    session.send(Command(type=Command.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=response))


def _message_id(topic: PersistentTopic, entry_id: int) -> pb.MessageIdData:
    return pb.MessageIdData(
        ledgerId=topic.ledger_id, entryId=entry_id & ((1 << 64) - 1), partition=topic.name.partition
    )


def _last_batch_index(blob: bytes) -> int:
    try:
        metadata = metadata_of(blob)
    except MetadataError:
        return -1
    return metadata.num_messages_in_batch - 1 if metadata.HasField("num_messages_in_batch") else -1


def on_consumer_stats(session: Session, command: Command) -> None:
    request = command.consumerStats
    handle = _consumer(session, request.consumer_id)
    consumer, subscription = handle.consumer, handle.consumer.subscription
    rate_out, throughput_out, rate_redeliver = consumer.rates
    response = pb.CommandConsumerStatsResponse(
        request_id=request.request_id,
        msgRateOut=rate_out,
        msgThroughputOut=throughput_out,
        msgRateRedeliver=rate_redeliver,
        consumerName=consumer.name,
        availablePermits=max(consumer.permits, 0),
        unackedMessages=consumer.unacked,
        blockedConsumerOnUnackedMsgs=consumer.is_blocked,
        address=consumer.peer.address,
        connectedSince=str(consumer.connected_at_ms),
        type=consumer.type.name,
        msgBacklog=subscription.backlog if isinstance(subscription, Subscription) else 0,
    )
    session.send(Command(type=Command.CONSUMER_STATS_RESPONSE, consumerStatsResponse=response))


def on_unsubscribe(session: Session, command: Command) -> None:
    request = command.unsubscribe
    handle = _consumer(session, request.consumer_id)
    if request.force and handle.consumer.subscription is not None:
        handle.topic.check_not_internal(handle.consumer.subscription)  # before anything is changed
        others = [consumer for consumer in handle.consumer.subscription.consumers if consumer is not handle.consumer]
        for consumer in others:
            consumer.peer.close_consumer(consumer)
            handle.consumer.subscription.remove_consumer(consumer)
    handle.topic.unsubscribe(handle.consumer)
    session.consumers.pop(request.consumer_id, None)
    session.reply_success(request.request_id)


def on_close_consumer(session: Session, command: Command) -> None:
    close = command.close_consumer
    handle = session.consumers.get(close.consumer_id)
    if handle is not None:
        handle.topic.remove_consumer(handle.consumer)
        session.consumers.pop(close.consumer_id, None)
    session.late_subscribes.cancel(close.consumer_id)
    session.reply_success(close.request_id)


def _consumer(session: Session, consumer_id: int) -> ConsumerHandle:
    handle = session.consumers.get(consumer_id)
    if handle is None:
        raise ConsumerNotFound(f"consumer {consumer_id} does not exist on this connection")
    if handle.consumer.subscription is None:
        raise ServiceNotReady(f"consumer {consumer_id} is not subscribed yet")
    return handle
