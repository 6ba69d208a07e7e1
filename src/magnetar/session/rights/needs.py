"""What each command needs: the rights on the topics that it names, and on those that it lets the broker write to.

Owns how a command becomes rights. The rules are in `access.decision`; the session asks before a handler is called, so
that handlers know no roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from magnetar.access.needs import Need, Right, right_on_namespace, right_on_topic
from magnetar.broker.catalog.catalog import Catalog
from magnetar.broker.catalog.failure_policy import policy_from
from magnetar.broker.moves.move import MoveNames
from magnetar.names import TopicName, parse_namespace
from magnetar.replication.model import (
    PIPELINE,
    ROUTE_FINGERPRINT,
    is_pipeline_producer,
    is_pulsar_replicator,
    is_replication_subscription,
)
from magnetar.schema.types import SchemaType
from magnetar.session.handles import Command

if TYPE_CHECKING:
    from magnetar.session.session import Session

_ANY_SCHEMA = SchemaType.AUTO_CONSUME.value

Rights: TypeAlias = Callable[[Command, Catalog], Iterator[Right]]


class CommandNeeds(NamedTuple):
    """`text` is for the reference page."""

    text: str
    rights: Rights


def check_rights(session: Session, command: Command, needs: CommandNeeds) -> None:
    """Raises `RightMissing`. What the command opens keeps the rights that it was opened with, see `revocation`."""
    authorization = session.broker.authorization
    if authorization.is_enabled:
        session.asked = tuple(needs.rights(command, session.broker.catalog))
        authorization.require(session.principal, session.asked)


def _none(command: Command, catalog: Catalog) -> Iterator[Right]:
    return iter(())


OPEN = CommandNeeds(Need.OPEN.value, _none)
HANDLE = CommandNeeds(Need.HANDLE.value, _none)
"""The right was asked for when the producer or consumer was opened; it is closed when the right ends."""


def _lookup(command: Command, catalog: Catalog) -> Iterator[Right]:
    yield right_on_topic(Need.LOOKUP, TopicName.parse(command.lookupTopic.topic))


def _metadata(command: Command, catalog: Catalog) -> Iterator[Right]:
    yield right_on_topic(Need.LOOKUP, TopicName.parse(command.partitionMetadata.topic))


def _topics(command: Command, catalog: Catalog) -> Iterator[Right]:
    namespace = command.getTopicsOfNamespace.namespace
    parse_namespace(namespace)
    yield right_on_namespace(Need.LIST_TOPICS, namespace)


def _read_schema(command: Command, catalog: Catalog) -> Iterator[Right]:
    for topic in _with_schema_owner(TopicName.parse(command.getSchema.topic).base, catalog):
        yield right_on_topic(Need.LOOKUP, topic)


def _write_schema(command: Command, catalog: Catalog) -> Iterator[Right]:
    for topic in _with_schema_owner(TopicName.parse(command.getOrCreateSchema.topic).base, catalog):
        yield right_on_topic(Need.PRODUCE, topic)


def _with_schema_owner(name: TopicName, catalog: Catalog) -> tuple[TopicName, ...]:
    """A schema may belong to another topic than the one that is named: then the right is needed on both."""
    owner = catalog.schema_owner(name)
    return (name,) if owner == name else (name, owner)


def _produce(command: Command, catalog: Catalog) -> Iterator[Right]:
    request = command.producer
    name, producer = TopicName.parse(request.topic), request.producer_name
    for topic in _with_schema_owner(name, catalog) if request.HasField("schema") else (name,):
        yield right_on_topic(Need.PRODUCE, topic)
    if is_pipeline_producer(producer) or is_pulsar_replicator(producer):
        yield right_on_topic(Need.REPLICATE, name)
    if request.initial_subscription_name:
        yield _consume_on(name, request.initial_subscription_name)
    names = MoveNames.of({pair.key: pair.value for pair in request.metadata})
    if names is not None:
        yield right_on_topic(Need.CONSUME, names.source) if names.is_for_all else _consume_on(*names[:2])


def may_use(session: Session, name: TopicName, subscription: str) -> bool:
    """Whether what a client does for all subscriptions of a topic may be done for this one."""
    return session.broker.authorization.allows(session.principal, (_consume_on(name, subscription),))


def _consume(command: Command, catalog: Catalog) -> Iterator[Right]:
    request = command.subscribe
    name = TopicName.parse(request.topic)
    brings_schema = request.HasField("schema") and request.schema.type != _ANY_SCHEMA
    for topic in _with_schema_owner(name, catalog) if brings_schema else (name,):
        yield _consume_on(topic, request.subscription)
    metadata = {pair.key: pair.value for pair in request.metadata}
    if metadata.keys() & {ROUTE_FINGERPRINT, PIPELINE}:
        yield right_on_topic(Need.REPLICATE, name)
    policy = policy_from(metadata)
    if policy is not None:
        target = policy.declared_topic_for(name, request.subscription)
        yield right_on_topic(Need.PRODUCE, target)
        if policy.initial_subscription:
            yield _consume_on(target, policy.initial_subscription)


def _consume_on(name: TopicName, subscription: str) -> Right:
    """The position of a route is not for everyone who may consume."""
    need = Need.REPLICATE if is_replication_subscription(subscription) else Need.CONSUME
    return right_on_topic(need, name, subscription)


_BOTH = ", with a schema also on the topic that the schema belongs to"

LOOKUP = CommandNeeds(Need.LOOKUP.value, _lookup)
METADATA = CommandNeeds(Need.LOOKUP.value, _metadata)
TOPICS = CommandNeeds(Need.LIST_TOPICS.value, _topics)
READ_SCHEMA = CommandNeeds(Need.LOOKUP.value, _read_schema)
WRITE_SCHEMA = CommandNeeds(Need.PRODUCE.value, _write_schema)
PRODUCER = CommandNeeds(
    f"{Need.PRODUCE.value}{_BOTH}; {Need.CONSUME.value} for an initial subscription, and on the topic and subscription"
    f" that messages are moved from; {Need.REPLICATE.value} for the name of a replicator",
    _produce,
)
SUBSCRIBE = CommandNeeds(
    f"{Need.CONSUME.value}{_BOTH}; {Need.PRODUCE.value} on the dead letter topic of a policy, and {Need.CONSUME.value}"
    f" there for its initial subscription; {Need.REPLICATE.value} for the position of a route and for what a pipeline"
    " says of itself",
    _consume,
)
