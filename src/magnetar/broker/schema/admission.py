"""Schema admission: the schemas that producers and consumers may bring to a topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.schema import compatibility
from magnetar.broker.schema.examination import Examination
from magnetar.broker.schema.registry import schema_id
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import IncompatibleSchema
from magnetar.names import TopicName
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.topic.topic import Topic


def admit_producer(topic: Topic, schema: Schema | None) -> int | None:
    """The version of a producer's schema, registered if it is new; None for a producer without one. Raises."""
    registry, policies, name = topic.broker.schemas, topic.policies, schema_id(topic.name)
    if schema is None:
        if policies.schema_validation_enforced and registry.latest(name) is not None:
            raise IncompatibleSchema(
                f"topic {topic.name.full} has a schema, the producer has none, and isSchemaValidationEnforced is on"
            )
        return None
    if policies.allow_auto_update_schema:
        return registry.put(name, schema, policies.schema_compatibility)
    found = registry.find(name, schema)
    if found is None:
        raise IncompatibleSchema(
            f"topic {topic.name.full} does not have this {schema.type.name} schema, and auto-update of schemas is off"
        )
    return found.number


def admit_consumer(topic: Topic, schema: Schema | None) -> None:
    """Registers a consumer's schema as the first of an unused topic; otherwise it has to read the existing ones."""
    if schema is None or schema.type is SchemaType.AUTO_CONSUME:
        return
    registry, name = topic.broker.schemas, schema_id(topic.name)
    if registry.latest(name) is not None:
        registry.check_reader(name, schema, topic.policies.schema_compatibility)
    elif not _is_in_use(topic):
        admit_producer(topic, schema)
    elif topic.policies.schema_compatibility != compatibility.ALWAYS_COMPATIBLE and schema.type is not SchemaType.NONE:
        raise IncompatibleSchema(
            f"topic {topic.name.full} has no schema and is in use: a consumer cannot add one ({schema.type.name})"
        )


def examination_ahead(
    broker: Broker, name: TopicName, schema: Schema | None, *, reads: bool = False
) -> tuple[Examination, Callable[[], object]] | None:
    """What a producer's or (`reads`) a consumer's schema needs before it is admitted, and the work, if it takes long
    and was not done yet. Raises ServiceNotReady when the versions of the topic changed each time that it was done.
    """
    if schema is None or schema.type in PRIMITIVE or schema.type is SchemaType.AUTO_CONSUME:
        return None
    if name.namespace_full not in broker.catalog.namespaces:
        return None
    examination = broker.schemas.examination(schema_id(name), schema)
    if examination.is_ready or not examination.is_large:
        return None
    policies = broker.catalog.policies_of_topic(name)
    strategy = policies.schema_compatibility
    if reads and examination.versions:
        if examination.is_read_by_itself(strategy):
            return None
        examination.check_attempt()
        return examination, partial(examination.check_reader, strategy)
    if examination.literal is not None:
        return None
    examination.check_attempt()
    if not policies.allow_auto_update_schema:
        return examination, examination.find
    return examination, partial(examination.find_or_check, strategy)


def _is_in_use(topic: Topic) -> bool:
    consumers = (consumer for subscription in topic.subscriptions.values() for consumer in subscription.consumers)
    if len(topic.producers) or any(not consumer.takes_any_schema for consumer in consumers):
        return True
    if isinstance(topic, PersistentTopic):
        return topic.log.last >= topic.log.first
    return topic.messages_in > 0
