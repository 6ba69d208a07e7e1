"""PRODUCER and CLOSE_PRODUCER. SEND itself is in the session: it is the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.moves.move import Move, MoveNames
from magnetar.broker.schema.admission import admit_producer
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import AccessMode, Producer
from magnetar.broker.topic.topic import SubscribeRequest, Topic
from magnetar.errors import MagnetarError, NotAllowed
from magnetar.names import TopicName
from magnetar.replication.model import is_pipeline_producer, is_pulsar_replicator
from magnetar.session.dear_schemas import waits_for_examination
from magnetar.session.guards import remove_producer
from magnetar.session.handles import Command, ProducerHandle
from magnetar.session.limits import check_room
from magnetar.session.refusals import report_refusal
from magnetar.session.rights.needs import may_use
from magnetar.session.schema import schema_of, version_bytes
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session


def on_producer(session: Session, command: Command) -> None:
    request = command.producer
    existing = session.producers.get(request.producer_id)
    if existing is not None:
        # The client timed out waiting for the first reply and sent the request again.
        if existing.is_ready:
            _send_success(session, existing, request.request_id, ready=True)
        return
    check_room(session, session.producers, "producers")
    broker = session.broker
    name, schema = TopicName.parse(request.topic), schema_of(request)
    if waits_for_examination(session, command, name, schema):
        return
    metadata = {pair.key: pair.value for pair in request.metadata}
    topic = broker.topic(name, create=True)
    move = _move_of(session, topic, request.producer_name, metadata)
    schema_version = version_bytes(admit_producer(topic, schema))
    producer = Producer(
        session,
        request.producer_id,
        request.producer_name or broker.new_name(),
        name_is_given=bool(request.producer_name) and request.user_provided_producer_name,
        access_mode=AccessMode(request.producer_access_mode),
        epoch=request.epoch,
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        metadata=metadata,
        knows_positions=session.knows_positions,
        move=move,
        connected_at_ms=broker.now_ms(),
        on_ready=lambda: _on_turn(session, handle, request.request_id),
        on_failed=lambda error: _on_fenced(session, command, error),
    )
    handle = ProducerHandle(producer, topic, schema_version, session.asked)
    handle.is_ready = topic.add_producer(producer)
    try:
        if request.initial_subscription_name:
            _create_initial_subscription(topic, request.initial_subscription_name)
        session.producers[request.producer_id] = handle
        _send_success(session, handle, request.request_id, ready=handle.is_ready)
    except Exception:  # nothing is half done: the client has no producer, so the topic has none either
        session.producers.pop(request.producer_id, None)
        remove_producer(session, handle)
        raise


def _move_of(session: Session, topic: Topic, producer_name: str, metadata: Mapping[str, str]) -> Move | None:
    names = MoveNames.of(metadata)
    if names is None:
        return None
    if is_pipeline_producer(producer_name) or is_pulsar_replicator(producer_name):
        raise NotAllowed(f"producer {producer_name!r} replicates: it cannot move messages too")
    return Move.open(topic, names, partial(may_use, session))


def _send_success(session: Session, handle: ProducerHandle, request_id: int, *, ready: bool) -> None:
    producer, topic = handle.producer, handle.topic
    success = pb.CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer.name,
        # The identity of what moves is its positions: sequence ids begin anew.
        last_sequence_id=-1 if producer.move else topic.last_sequence_id(producer.name),
        schema_version=handle.schema_version,
        producer_ready=ready,
    )
    if producer.topic_epoch is not None:
        success.topic_epoch = producer.topic_epoch
    session.send_when_durable(Command(type=Command.PRODUCER_SUCCESS, producer_success=success))


def _on_turn(session: Session, handle: ProducerHandle, request_id: int) -> None:
    """Called by the producer that leaves: an error here is none of its own."""
    handle.is_ready = True
    try:
        _send_success(session, handle, request_id, ready=True)
    except Exception as error:
        session.close_later("command", error, handle.topic.name.full)


def _on_fenced(session: Session, command: Command, refusal: MagnetarError) -> None:
    try:
        report_refusal(session, command, refusal)
        session.forget_producer(command.producer.producer_id)
        session.reply_error(command.producer.request_id, refusal)
    except Exception as error:
        session.close_later("command", error, command.producer.topic)


def _create_initial_subscription(topic: Topic, name: str) -> None:
    """A dead letter producer requests a subscription, so that its messages are kept (DL10)."""
    if not isinstance(topic, PersistentTopic) or name in topic.subscriptions:
        return
    if not topic.policies.auto_subscription_creation:
        raise NotAllowed(
            f"initial subscription {name!r} cannot be created on topic {topic.name.full}:"
            " auto-creation of subscriptions is off"
        )
    topic.create_subscription(SubscribeRequest(name, from_earliest=True))


def on_close_producer(session: Session, command: Command) -> None:
    close = command.close_producer
    handle = session.producers.get(close.producer_id)
    if handle is not None:
        handle.topic.producers.remove(handle.producer)
        session.forget_producer(close.producer_id)
    session.reply_success(close.request_id)
