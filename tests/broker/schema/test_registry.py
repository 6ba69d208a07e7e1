"""The registry: versions, crashes, deletion with a topic, the cache."""

from __future__ import annotations

import json

import pytest

from magnetar.broker import keys
from magnetar.broker.schema import registry as schemas
from magnetar.broker.schema.admission import admit_producer
from magnetar.broker.schema.registry import schema_id
from magnetar.errors import IncompatibleSchema, InvalidSchema
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from magnetar.storage.api import Space
from tests.broker.schema.registered import ID, INT32, ONE, STRING, THREE, TWO, avro, put, schemas_of
from tests.broker.world import START_MS, World


def rows(world: World) -> list[bytes]:
    return [key for key, _ in world.storage.scan(Space.STATE, keys.SCHEMA, keys.after(keys.SCHEMA))]


# -- versions


def test_versions_count_from_zero_and_a_known_schema_keeps_its_version() -> None:
    world = World()
    assert put(world, ONE, TWO, ONE, THREE, TWO) == [0, 1, 0, 2, 1]
    assert schemas_of(world) == {0: ONE, 1: TWO, 2: THREE}
    latest = world.broker.schemas.latest(ID)
    assert latest is not None and (latest.number, latest.created_ms) == (2, START_MS)
    assert world.broker.schemas.at(ID, 1) == world.broker.schemas.find(ID, TWO)
    assert world.broker.schemas.at(ID, 3) is world.broker.schemas.at(ID, -1) is None


def test_a_schema_in_another_notation_is_the_same() -> None:
    world = World()
    put(world, ONE)
    spaced = Schema(SchemaType.AVRO, json.dumps(json.loads(ONE.data), indent=8).encode(), {"other": "properties"})
    assert put(world, spaced) == [0]
    assert schemas_of(world) == {0: ONE}


def test_a_refused_schema_leaves_nothing() -> None:
    world = World()
    put(world, ONE)
    with pytest.raises(IncompatibleSchema):
        put(world, avro("z"))
    with pytest.raises(InvalidSchema):
        put(world, Schema(SchemaType.AVRO, b"{"))
    world.settle()
    assert schemas_of(world) == {0: ONE} == schemas_of(world.restart())


def test_names_with_a_common_prefix_do_not_mix() -> None:
    world = World()
    put(world, ONE, TWO)
    put(world, STRING, schema=ID + "t")
    put(world, INT32, schema=ID[:-1])
    world.settle()
    again = world.restart()
    assert (len(schemas_of(again)), len(schemas_of(again, ID + "t")), len(schemas_of(again, ID[:-1]))) == (2, 1, 1)


# -- disk


def test_versions_survive_a_crash_once_they_are_durable() -> None:
    world = World()
    put(world, ONE)
    world.settle()
    put(world, TWO)
    assert schemas_of(world.restart()) == {0: ONE}
    world.settle()
    again = world.restart()
    assert schemas_of(again) == {0: ONE, 1: TWO}
    assert put(again, TWO, THREE) == [1, 2]


def test_a_deleted_schema_keeps_its_number_reserved() -> None:
    world = World()
    put(world, ONE, TWO)
    assert world.broker.schemas.delete(ID) == 2
    assert world.broker.schemas.delete(ID) == 3  # as in Apache Pulsar
    assert schemas_of(world) == {}
    world.settle()
    assert len(rows(world)) == 1
    again = world.restart()
    assert again.broker.schemas.latest(ID) is None
    assert put(again, STRING) == [4]  # incompatible with the deleted one, which is allowed
    assert again.broker.schemas.delete("public/default/other") == 0


def test_a_schema_deleted_before_it_is_written_is_gone() -> None:
    world = World()
    put(world, ONE)
    world.broker.schemas.forget(ID, world.broker.commits.batch())
    assert put(world, STRING) == [0]
    world.settle()
    assert schemas_of(world.restart()) == {0: STRING}


def test_bound_schema_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "HISTORY_SIZE_MAX", 1200)
    world = World()
    put(world, ONE, TWO)
    with pytest.raises(InvalidSchema, match=r"would have \d+ bytes, the limit is 1200"):
        put(world, THREE)
    assert put(world, TWO) == [1]


# -- memory


def test_bound_schema_cache_keeps_what_was_used_recently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "CACHE_SIZE_MAX", 20_000)
    world = World()
    names = [f"public/default/t{index}" for index in range(200)]
    for name in names:
        put(world, ONE, schema=name)
        assert schemas_of(world, name) == {0: ONE}
    # Nothing is durable yet, so nothing may be read from disk.
    assert [schemas_of(world, name) for name in names] == [{0: ONE}] * 200
    world.settle()
    assert [schemas_of(world, name) for name in names] == [{0: ONE}] * 200
    assert 0 < world.broker.schemas.cached_bytes <= 20_000


def test_the_counted_memory_is_the_used_memory() -> None:
    world = World()
    put(world, ONE, TWO)
    put(world, STRING, schema="public/default/u")
    world.broker.schemas.delete(ID)
    world.broker.schemas.forget("public/default/u", world.broker.commits.batch())
    world.settle()
    before = world.broker.schemas.cached_bytes
    world.broker.schemas.latest("public/default/empty")
    assert before == 2 * (world.broker.schemas.cached_bytes - before)  # two that are empty now


# -- with its topic


def test_a_schema_is_deleted_with_its_topic_in_one_transaction() -> None:
    world = World()
    admit_producer(world.topic(), ONE)
    world.settle()
    world.broker.delete_topic(TopicName.parse("t"))
    group = world.broker.commits.take()
    assert group is not None and world.broker.commits.take() is None
    world.storage.write(group.batch)
    assert rows(world) == []
    group.complete()
    assert admit_producer(world.topic(), STRING) == 0


def test_partitions_share_a_schema_until_the_last_is_deleted() -> None:
    world = World()
    name = TopicName.parse("t")
    world.broker.catalog.create_partitioned(name, 2, {})
    first, second = (world.broker.topic(name.with_partition(index)) for index in range(2))
    assert admit_producer(first, ONE) == admit_producer(second, ONE) == 0
    assert admit_producer(second, TWO) == 1
    world.settle()
    assert len(rows(world)) == 2
    world.broker.delete_topic(name.with_partition(0))
    world.settle()
    assert len(rows(world)) == 2
    world.broker.delete_partitioned(name)
    world.settle()
    assert rows(world) == [] and schemas_of(world) == {}


def test_topics_of_one_name_in_both_domains_share_a_schema() -> None:
    world = World()
    volatile = TopicName.parse("non-persistent://public/default/t")
    admit_producer(world.broker.topic(volatile, create=True), ONE)
    assert admit_producer(world.topic(), TWO) == 1
    world.broker.delete_topic(TopicName.parse("t"))
    assert len(schemas_of(world)) == 2
    world.broker.delete_topic(volatile)
    world.settle()
    assert schemas_of(world) == {} and rows(world) == []


def test_an_orphaned_partition_keeps_the_schema() -> None:
    world = World()
    name = TopicName.parse("t")
    world.broker.catalog.create_partitioned(name, 2, {})
    admit_producer(world.broker.topic(name.with_partition(0)), ONE)
    world.broker.catalog.forget_partitioned(name)
    world.broker.delete_topic(name.with_partition(0))
    assert len(schemas_of(world)) == 1
    world.broker.delete_topic(name.with_partition(1))
    assert schemas_of(world) == {}


def test_a_topic_without_a_schema_leaves_no_keys() -> None:
    world = World()
    world.topic()
    world.settle()
    world.broker.delete_topic(TopicName.parse("t"))
    size = len(world.broker.commits.open().batch)
    other = World()
    other.topic()
    other.settle()
    put(other, ONE)
    other.settle()
    other.broker.delete_topic(TopicName.parse("t"))
    assert len(other.broker.commits.open().batch) == size + 1


def test_the_schemas_of_a_deleted_namespace_are_deleted() -> None:
    world = World()
    for namespace in ("public/a", "public/ab"):
        world.broker.catalog.create_namespace(namespace)
        put(world, ONE, schema=f"{namespace}/uploaded")
    world.settle()
    put(world, TWO, schema="public/a/uploaded")
    world.broker.catalog.delete_namespace("public/a")
    world.broker.catalog.create_namespace("public/a")
    assert schemas_of(world, "public/a/uploaded") == {}
    world.settle()
    again = world.restart()
    assert schemas_of(again, "public/a/uploaded") == {}
    assert len(schemas_of(again, "public/ab/uploaded")) == 1


def test_the_id_of_a_schema_has_no_domain_and_partition() -> None:
    for name in ("t", "persistent://public/default/t", "non-persistent://public/default/t-partition-7"):
        assert schema_id(TopicName.parse(name)) == ID
