"""Admission: the schemas that producers and consumers may bring."""

from __future__ import annotations

import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import NamespaceRecord
from magnetar.broker.schema.admission import admit_consumer, admit_producer
from magnetar.errors import IncompatibleSchema, InvalidSchema
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from tests.broker.schema.registered import AUTO, ONE, STRING, THREE, TWO, put, schemas_of
from tests.broker.world import World


def test_producers_without_a_schema_are_admitted_unless_enforced() -> None:
    world = World()
    assert admit_producer(world.topic(), None) is None
    admit_producer(world.topic(), ONE)
    assert admit_producer(world.topic(), None) is None
    strict = World(isSchemaValidationEnforced=True)
    assert admit_producer(strict.topic(), None) is None  # it has no schema
    assert admit_producer(strict.topic(), ONE) == 0
    with pytest.raises(IncompatibleSchema, match="the producer has none, and isSchemaValidationEnforced is on"):
        admit_producer(strict.topic(), None)


def test_without_auto_update_only_registered_schemas_are_accepted() -> None:
    world = World(isAllowAutoUpdateSchemaEnabled=False)
    with pytest.raises(IncompatibleSchema, match="does not have this AVRO schema, and auto-update of schemas is off"):
        admit_producer(world.topic(), ONE)
    put(world, ONE, TWO)
    assert admit_producer(world.topic(), ONE) == 0
    with pytest.raises(IncompatibleSchema):
        admit_producer(world.topic(), THREE)
    with pytest.raises(IncompatibleSchema):
        admit_consumer(world.topic("other"), ONE)
    admit_consumer(world.topic(), THREE)  # registers nothing and can read


def test_the_strategy_is_the_namespaces() -> None:
    world = World()
    admit_producer(world.topic(), ONE)
    with pytest.raises(IncompatibleSchema):
        admit_producer(world.topic(), STRING)
    overrides = Overrides(schema_compatibility="ALWAYS_COMPATIBLE")
    world.broker.catalog.save_namespace("public/default", NamespaceRecord(overrides=overrides))
    assert admit_producer(world.topic(), STRING) == 1


def test_the_first_consumer_of_an_idle_topic_registers_its_schema() -> None:
    world = World()
    admit_consumer(world.topic(), ONE)
    assert schemas_of(world) == {0: ONE}
    admit_consumer(world.topic(), TWO)  # can read, and registers nothing
    assert schemas_of(world) == {0: ONE}
    with pytest.raises(IncompatibleSchema):
        admit_consumer(world.topic(), STRING)


def test_a_consumer_registers_no_schema_for_a_topic_in_use() -> None:
    def rejected(world: World) -> bool:
        try:
            admit_consumer(world.topic(), ONE)
        except IncompatibleSchema as error:
            assert "has no schema and is in use" in str(error)
            return True
        return False

    with_producer = World()
    with_producer.producer()
    assert rejected(with_producer)
    admit_consumer(with_producer.topic(), Schema(SchemaType.NONE))  # it has plain bytes
    with_consumer = World()
    with_consumer.consumer()
    assert rejected(with_consumer)
    with_data = World()
    with_data.publish(1)
    with_data.topic().producers.remove(with_data.topic().producers.by_name["p"])
    assert rejected(with_data)
    with_any = World()
    with_any.consumer(takes_any_schema=True)
    assert not rejected(with_any)
    lenient = World(schemaCompatibilityStrategy="ALWAYS_COMPATIBLE")
    lenient.producer()
    assert not rejected(lenient)
    assert schemas_of(lenient) == {}


def test_a_non_persistent_topic_is_in_use_after_its_first_message() -> None:
    world = World()
    topic = world.broker.topic(TopicName.parse("non-persistent://public/default/v"), create=True)
    topic.messages_in = 1
    with pytest.raises(IncompatibleSchema):
        admit_consumer(topic, ONE)
    topic.messages_in = 0
    admit_consumer(topic, ONE)


def test_consumers_without_a_schema_are_always_accepted() -> None:
    world = World(isSchemaValidationEnforced=True)
    admit_producer(world.topic(), ONE)
    admit_consumer(world.topic(), None)
    admit_consumer(world.topic(), AUTO)
    with pytest.raises(InvalidSchema):
        admit_producer(world.topic(), AUTO)


def test_with_always_incompatible_registered_schemas_are_still_accepted() -> None:
    world = World(schemaCompatibilityStrategy="ALWAYS_INCOMPATIBLE")
    assert admit_producer(world.topic(), ONE) == 0 == admit_producer(world.topic(), ONE)
    admit_consumer(world.topic(), ONE)
    for new in (TWO, STRING):
        with pytest.raises(IncompatibleSchema):
            admit_producer(world.topic(), new)
        with pytest.raises(IncompatibleSchema):
            admit_consumer(world.topic(), new)
