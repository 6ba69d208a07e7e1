"""Commands of a consumer, each built here and nowhere else. Knows nothing of connections and replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.client.connection.protocol import Command
from magnetar.client.message import MessageId
from magnetar.wire import schema_pb2 as pb

Subscribe = pb.CommandSubscribe


def subscribe(
    topic: str,
    subscription: str,
    consumer_id: int,
    request_id: int,
    *,
    start: MessageId | None,
    create_topic: bool,
    subscription_type: Subscribe.SubType.ValueType = Subscribe.Exclusive,
    initial_position: Subscribe.InitialPosition.ValueType = Subscribe.Latest,
    name: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Command:
    """With `start` the cursor lives as long as the consumer; without, the subscription is durable.

    `initial_position` is where a durable subscription starts that does not exist yet.
    """
    command = Subscribe(
        topic=topic,
        subscription=subscription,
        subType=subscription_type,
        consumer_id=consumer_id,
        request_id=request_id,
        durable=start is None,
        initialPosition=initial_position,
        force_topic_creation=create_topic,
        consumer_name=name,
        metadata=[pb.KeyValue(key=key, value=value) for key, value in (properties or {}).items()],
    )
    if start is not None:
        command.start_message_id.CopyFrom(start.to_wire())
    return Command(type=Command.SUBSCRIBE, subscribe=command)


def flow(consumer_id: int, permits: int) -> Command:
    return Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))


def acknowledge(consumer_id: int, ids: Sequence[pb.MessageIdData], *, request_id: int | None = None) -> Command:
    """These entries and no others. With a `request_id` the broker replies once the acknowledgement is stored."""
    return _ack(consumer_id, ids, pb.CommandAck.Individual, request_id)


def acknowledge_up_to(consumer_id: int, last: pb.MessageIdData, *, request_id: int | None = None) -> Command:
    """The entry and all before it. With a `request_id` the broker replies once the acknowledgement is stored."""
    return _ack(consumer_id, [last], pb.CommandAck.Cumulative, request_id)


def _ack(
    consumer_id: int,
    ids: Sequence[pb.MessageIdData],
    ack_type: pb.CommandAck.AckType.ValueType,
    request_id: int | None,
) -> Command:
    ack = pb.CommandAck(consumer_id=consumer_id, ack_type=ack_type, message_id=ids, request_id=request_id)
    return Command(type=Command.ACK, ack=ack)


def redeliver(consumer_id: int, ids: Sequence[pb.MessageIdData]) -> Command:
    command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids)
    return Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)


def get_last_message_id(consumer_id: int, request_id: int) -> Command:
    command = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id)
    return Command(type=Command.GET_LAST_MESSAGE_ID, getLastMessageId=command)


def seek_to_time(consumer_id: int, request_id: int, time_ms: int) -> Command:
    command = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id, message_publish_time=time_ms)
    return Command(type=Command.SEEK, seek=command)


def unsubscribe(consumer_id: int, request_id: int) -> Command:
    command = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id)
    return Command(type=Command.UNSUBSCRIBE, unsubscribe=command)


def close(consumer_id: int, request_id: int) -> Command:
    command = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return Command(type=Command.CLOSE_CONSUMER, close_consumer=command)
