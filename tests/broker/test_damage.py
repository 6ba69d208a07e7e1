"""A record or block that cannot be read makes exactly that topic, subscription or schema damaged, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.bounds import DAMAGE_LISTED, DAMAGE_SKIPPED
from magnetar.broker import keys
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import ClusterRecord, NamespaceRecord, TopicRecord, encode
from magnetar.broker.damage import skip
from magnetar.broker.damage.skip import skip_damaged
from magnetar.broker.damage_list import DAMAGE_KINDS, DamageList
from magnetar.broker.stored_globals import GlobalRecordDamaged
from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import SchemaDamaged, SubscriptionDamaged, TopicDamaged, TopicNotFound
from magnetar.log.events import DAMAGE_SKIPPED as SKIPPED
from magnetar.log.events import DAMAGED
from magnetar.names import TopicName
from magnetar.replication.route_parts import RouteParts
from magnetar.schema.types import Schema, SchemaType
from magnetar.storage.api import Space, StorageError
from magnetar.storage.memory import MemoryStorage

from .test_isolation import Collector
from .world import World

NAMESPACE = "public/default"
FULL = f"persistent://{NAMESPACE}/"
GARBAGE = b"\xc1\xff garbage"  # 0xc1 is never used in msgpack


def overwrite(storage: MemoryStorage, key: bytes, value: bytes = GARBAGE, space: Space = Space.STATE) -> None:
    batch = storage.batch()
    if space is Space.STATE:
        batch.put(key, value)
    else:
        batch.put_entry(key, value)
    storage.write(batch)
    storage.sync()


def two_topics() -> World:
    """Topics a and b, each with a subscription s and three messages."""
    world = World()
    for name in "ab":
        world.topic(name).create_subscription(SubscribeRequest("s"))
        world.publish(3, name)
    return world


def restarted(world: World, **settings: object) -> tuple[World, Collector]:
    host = Collector()
    return World(world.storage.crash(), host=host, **settings), host


def is_served(world: World, topic: str) -> bool:
    """Whether a topic takes and delivers messages."""
    world.client.take()
    consumer = world.consumer("check", topic)
    world.publish(1, topic)
    world.topic(topic).remove_consumer(consumer)
    return bool(world.client.take())


def subscription_key(world: World, topic: str, name: str = "s") -> bytes:
    return keys.under(keys.SUBSCRIPTION, world.topic(topic).ledger_id, name.encode())


# -- records of the catalog


def test_fault_topic_record_that_cannot_be_read_costs_that_topic_only() -> None:
    world = two_topics()
    topic_id = world.topic("a").ledger_id
    overwrite(world.storage, keys.named(keys.TOPIC, FULL + "a"))
    again, host = restarted(world)
    assert is_served(again, "b")
    with pytest.raises(TopicDamaged, match="its record cannot be decoded"):
        again.topic("a")
    assert FULL + "a" in again.broker.catalog.topics_of[NAMESPACE], "it is listed"
    (damage,) = again.broker.damage.all()
    assert (damage.kind, damage.name) == ("topic", FULL + "a")
    assert len(again.logged(DAMAGED)) == 1
    for _ in range(3):
        again.advance(minutes=10)
    assert host.faults == [] and len(again.logged(DAMAGED)) == 1
    with pytest.raises(TopicDamaged):
        again.broker.delete_topic(TopicName.parse("a"))
    again.broker.delete_topic(TopicName.parse("a"), force=True)
    again.settle()
    assert not again.broker.damage and again.storage.get(Space.STATE, keys.named(keys.TOPIC, FULL + "a")) is None
    again.publish(1, "a")  # created anew
    assert again.topic("a").ledger_id != topic_id and again.topic("a").log.last == 0


def test_everything_of_a_topic_is_erased_if_its_record_has_an_id() -> None:
    world = two_topics()
    topic_id = world.topic("a").ledger_id
    cursor_id = world.topic("a").cursors[0].record.id
    wrong = {"id": topic_id, "properties": {"k": b"\xff"}}  # as an earlier version stored what is not text
    overwrite(world.storage, keys.named(keys.TOPIC, FULL + "a"), encode(wrong))
    again, _ = restarted(world)
    with pytest.raises(TopicDamaged):
        again.topic("a")
    again.broker.delete_topic(TopicName.parse("a"), force=True)
    again.settle()
    rows = [key for key, _ in again.storage.scan(Space.ENTRIES, b"", b"\xff" * 20)]
    assert rows and not any(key.startswith(keys.ID.pack(topic_id)) for key in rows)
    state = [key for key, _ in again.storage.scan(Space.STATE, b"", b"\xff" * 20)]
    assert not any(key[1:9] in (keys.ID.pack(topic_id), keys.ID.pack(cursor_id)) for key in state)


def test_a_record_with_fields_of_a_later_version_is_not_damaged() -> None:
    world = two_topics()
    topic_id = world.topic("a").ledger_id
    overwrite(world.storage, keys.named(keys.TOPIC, FULL + "a"), encode({"id": topic_id, "later": [1, {"x": 2}]}))
    again, _ = restarted(world)
    assert is_served(again, "a") and not again.broker.damage


def test_a_topic_whose_name_is_not_one_is_listed_and_costs_nothing() -> None:
    world = two_topics()
    for name in (b"\xff\xfe", b"no-domain", b"persistent://a/b/" + b"x" * 5000):
        overwrite(world.storage, keys.TOPIC + name, encode(TopicRecord(id=99)))
    again, _ = restarted(world)
    assert is_served(again, "a") and again.broker.damage.counts()["topic"] == 3


def test_fault_namespace_record_that_cannot_be_read_keeps_every_message() -> None:
    world = World(defaultRetentionTimeInMinutes=0, ttlDurationDefaultInSeconds=60)
    world.broker.catalog.create_namespace("public/other")
    for name in ("public/other/t", "t"):
        world.topic(name).create_subscription(SubscribeRequest("s"))
        world.publish(3, name)
    overwrite(world.storage, keys.named(keys.NAMESPACE, "public/other"))
    again, host = restarted(world, defaultRetentionTimeInMinutes=0, ttlDurationDefaultInSeconds=60)
    assert is_served(again, "t") and is_served(again, "public/other/t")
    for _ in range(6):
        again.advance(minutes=10)
    assert again.topic("t").cursors[0].backlog == 0, "expired by the policies of the broker"
    assert again.topic("public/other/t").cursors[0].backlog == 4, "its own policies are not known"
    assert again.topic("public/other/t").log.first == 0 and host.faults == []
    assert again.broker.damage.of("namespace", "public/other") is not None
    again.broker.catalog.save_namespace("public/other", NamespaceRecord())
    assert not again.broker.damage
    again.advance(minutes=10)
    assert again.topic("public/other/t").cursors[0].backlog == 0


def test_a_namespace_that_cannot_be_read_can_be_deleted() -> None:
    world = World()
    world.broker.catalog.create_namespace("public/other")
    overwrite(world.storage, keys.named(keys.NAMESPACE, "public/other"))
    overwrite(world.storage, keys.named(keys.TENANT, "public"))
    again, _ = restarted(world)
    assert again.broker.damage.counts() == {"namespace": 1, "tenant": 1}
    again.broker.catalog.delete_namespace("public/other")
    assert again.broker.damage.counts() == {"tenant": 1}


def test_a_partitioned_topic_without_its_record_has_the_partitions_that_exist() -> None:
    world = World()
    world.broker.catalog.create_partitioned(TopicName.parse("p"), 3, {})
    world.settle()
    overwrite(world.storage, keys.named(keys.PARTITIONED, FULL + "p"))
    again, _ = restarted(world)
    assert again.broker.catalog.partitioned[FULL + "p"].partitions == 3
    assert is_served(again, "p-partition-2")
    assert again.broker.damage.of("topic", FULL + "p") is not None
    again.broker.delete_partitioned(TopicName.parse("p"), force=True)
    again.settle()
    assert not again.broker.damage and FULL + "p" not in again.broker.catalog.partitioned


def test_replication_waits_and_keeps_its_position_while_records_cannot_be_read() -> None:
    world = World()
    world.broker.catalog.save_cluster("b", ClusterRecord(service_url="http://b:8080"))
    overrides = Overrides(replication_clusters=["standalone", "b"])
    world.broker.catalog.save_namespace(NAMESPACE, NamespaceRecord(overrides=overrides))
    world.publish(3)
    assert [one.name for one in world.topic().cursors] == ["pulsar.repl.b"]
    for key in (keys.named(keys.CLUSTER, "b"), keys.named(keys.NAMESPACE, NAMESPACE)):
        storage = world.storage.crash()
        overwrite(storage, key)
        again = World(storage, host=Collector())
        assert [(one.name, one.backlog) for one in again.topic().cursors] == [("pulsar.repl.b", 3)], key


def test_a_route_policy_that_cannot_be_read_pauses_the_route() -> None:
    world = World()
    world.broker.catalog.save_cluster("b", ClusterRecord(service_url="http://b:8080"))
    world.broker.replication.set_route("b", NAMESPACE, RouteParts(dead_letters=True))
    world.settle()
    overwrite(world.storage, keys.named(keys.ROUTE, f"b\0{NAMESPACE}"))
    again, _ = restarted(world)
    assert again.broker.replication.policies.of_namespace(NAMESPACE, "b").paused
    assert again.broker.damage.counts() == {"route policy": 1}
    again.broker.replication.set_route("b", NAMESPACE, RouteParts(dead_letters=True))
    assert not again.broker.damage


# -- subscriptions


def damage_record(world: World) -> None:
    overwrite(world.storage, subscription_key(world, "a"))


def damage_cursor(world: World) -> None:
    overwrite(world.storage, keys.under(keys.CURSOR, world.topic("a").cursors[0].record.id), b"abc")


def damage_position(world: World) -> None:
    cursor_id = world.topic("a").cursors[0].record.id
    overwrite(world.storage, keys.under(keys.POSITION, cursor_id, keys.ID.pack(1)), b"o" + GARBAGE)


@pytest.mark.parametrize("damage", [damage_record, damage_cursor, damage_position])
def test_fault_subscription_record_that_cannot_be_read_costs_that_subscription_only(
    damage: Callable[[World], None],
) -> None:
    world = two_topics()
    world.topic("a").create_subscription(SubscribeRequest("other", from_earliest=True))
    world.settle()
    damage(world)
    again, host = restarted(world)
    again.consumer("other", "a")
    assert again.client.take() == [0, 1, 2]
    assert is_served(again, "b")
    with pytest.raises(SubscriptionDamaged, match="'s' of topic persistent://public/default/a is damaged"):
        again.consumer("s", "a")
    assert again.topic("a").damaged.reasons.keys() == {"s"}
    for _ in range(3):
        again.advance(hours=10)
    assert again.topic("a").log.first == 0, "its position is not known: nothing is trimmed"
    assert host.faults == []
    with pytest.raises(SubscriptionDamaged):
        again.topic("a").delete_subscription("s")
    again.topic("a").delete_subscription("s", force=True)
    again.settle()
    assert not again.broker.damage
    again.consumer("s", "a")


@pytest.mark.parametrize("damage", [damage_record, damage_cursor])
def test_a_subscription_without_a_position_starts_over_on_request(damage: Callable[[World], None]) -> None:
    world = two_topics()
    damage(world)
    again, _ = restarted(world)
    assert skip_damaged(again.topic("a"), "s").started_over
    assert len(again.logged(SKIPPED)) == 1 and not again.broker.damage
    again.consumer("s", "a")
    assert again.client.take() == [0, 1, 2]
    third, _ = restarted(again)
    assert not third.topic("a").damaged


def test_a_topic_with_a_damaged_subscription_is_deleted_with_it() -> None:
    world = two_topics()
    key = subscription_key(world, "a")
    overwrite(world.storage, key)
    again, _ = restarted(world)
    again.topic("a")
    again.broker.delete_topic(TopicName.parse("a"), force=True)
    again.settle()
    assert again.storage.get(Space.STATE, key) is None and not again.broker.damage


# -- other state of a topic


@pytest.mark.parametrize("kind", [keys.FIRST, keys.DELAYED])
def test_state_that_cannot_be_read_costs_its_topic_only(kind: bytes) -> None:
    world = two_topics()
    key = keys.under(kind, world.topic("a").ledger_id, b"" if kind == keys.FIRST else b"x")
    overwrite(world.storage, key, b"x")
    again, _ = restarted(world)
    assert is_served(again, "b")
    with pytest.raises(TopicDamaged):
        again.topic("a")
    with pytest.raises(TopicDamaged):
        again.producer("a")
    again.broker.delete_topic(TopicName.parse("a"), force=True)
    again.settle()
    assert is_served(again, "a") and not again.broker.damage


def test_a_topic_that_can_be_read_again_is_not_damaged_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = two_topics()
    again, _ = restarted(world)
    with monkeypatch.context() as failing:
        failing.setattr(type(again.storage), "scan", fails)
        with pytest.raises(TopicDamaged, match="input/output error"):
            again.topic("a")
    assert is_served(again, "a") and not again.broker.damage


def fails(*arguments: object, **options: object) -> None:
    raise StorageError("input/output error")


# -- schemas


def with_schema() -> World:
    world = two_topics()
    for name in "ab":
        schema = Schema(SchemaType.JSON, b'{"type":"record","name":"r","fields":[]}')
        world.broker.schemas.put(f"{NAMESPACE}/{name}", schema, "FULL")
    world.settle()
    overwrite(world.storage, keys.named(keys.SCHEMA, f"{NAMESPACE}/a") + b"\0" + keys.ID.pack(0))
    return restarted(world)[0]


def test_fault_schema_record_that_cannot_be_read_costs_that_schema_only() -> None:
    world = with_schema()
    assert world.broker.schemas.latest(f"{NAMESPACE}/b") is not None
    with pytest.raises(SchemaDamaged, match="schema public/default/a is damaged"):
        world.broker.schemas.latest(f"{NAMESPACE}/a")
    assert is_served(world, "a"), "messages need no schema here"
    assert world.broker.damage.counts() == {"schema": 1}
    assert world.broker.schemas.delete(f"{NAMESPACE}/a") == 1, "the number of version 0 is not used again"
    world.settle()
    assert world.broker.schemas.versions(f"{NAMESPACE}/a") == [] and not world.broker.damage
    again, _ = restarted(world)
    assert again.broker.schemas.versions(f"{NAMESPACE}/a") == []


def test_a_topic_with_a_damaged_schema_can_be_deleted() -> None:
    world = with_schema()
    world.broker.delete_topic(TopicName.parse("a"), force=True)
    world.settle()
    start = keys.named(keys.SCHEMA, f"{NAMESPACE}/a\0")
    assert world.storage.scan(Space.STATE, start, keys.after(start)) == []
    with pytest.raises(TopicNotFound):
        world.broker.topic(TopicName.parse("a"))


# -- messages


def damage_run(world: World, topic: str, entry_id: int) -> None:
    """Overwrites the run that ends with this entry."""
    overwrite(world.storage, keys.PAIR.pack(world.topic(topic).ledger_id, entry_id), GARBAGE, Space.ENTRIES)


def published_one_by_one(count: int) -> World:
    world = World()
    world.topic("a").create_subscription(SubscribeRequest("s", from_earliest=True))
    world.topic("b")
    for _ in range(count):
        world.publish(1, "a")
    return world


@pytest.mark.parametrize("type", list(SubscriptionType))
def test_fault_unreadable_block_stops_the_subscription_with_a_reason(type: SubscriptionType) -> None:
    world = published_one_by_one(10)
    damage_run(world, "a", 4)
    damage_run(world, "a", 5)
    again, host = restarted(world)
    again.consumer("s", "a", type=type)
    assert again.client.take() == [0, 1, 2, 3], "what is before the damage is delivered"
    assert is_served(again, "b")
    row = again.broker.damage.of("subscription", FULL + "a", "s")
    assert row is not None and row.position.endswith(":4") and "cannot be read" in row.reason
    assert again.broker.damage.of("topic", FULL + "a") is not None
    again.publish(1, "a")  # wakes it
    again.advance(minutes=5)
    assert again.client.take() == [] and host.faults == []
    assert len(again.logged(DAMAGED)) == 2, "topic and subscription, once each"
    skipped = skip_damaged(again.topic("a"), "s")
    again.settle()
    assert (skipped.entries, skipped.first[-2:], skipped.last[-2:], skipped.is_left) == (2, ":4", ":5", False)
    assert again.client.take() == [6, 7, 8, 9, 10]
    assert again.broker.damage.of("subscription", FULL + "a", "s") is None
    assert len(again.logged(SKIPPED)) == 1


def test_pending_entries_are_not_lost_between_two_reads() -> None:
    world = published_one_by_one(6)
    damage_run(world, "a", 3)
    again, _ = restarted(world)
    consumer = again.consumer("s", "a", type=SubscriptionType.Shared, permits=3)
    assert again.client.take() == [0, 1, 2]
    subscription = again.topic("a").cursors[0]
    subscription.redeliver(consumer, [0, 2])
    subscription.flow(consumer, 10)
    again.settle()
    assert sorted(again.client.take()) == [0, 2]


def test_maintenance_goes_on_up_to_what_cannot_be_read() -> None:
    world = published_one_by_one(10)
    damage_run(world, "a", 4)
    again, host = restarted(world, defaultRetentionTimeInMinutes=0)
    again.topic("a").cursors[0].advance(3)
    again.settle()
    for _ in range(6):
        again.advance(minutes=10)
    assert again.topic("a").log.first == 4 and host.faults == []
    skip_damaged(again.topic("a"), "s")
    again.topic("a").cursors[0].advance(9)
    for _ in range(6):
        again.advance(minutes=10)
    assert again.topic("a").log.first == 10, "an unreadable entry is as old as the next one"
    assert not again.broker.damage, "it is gone with what it concerned"


def test_messages_expire_across_what_cannot_be_read() -> None:
    world = published_one_by_one(10)
    damage_run(world, "a", 4)
    again, _ = restarted(world, ttlDurationDefaultInSeconds=60)
    for _ in range(2):
        again.advance(minutes=10)
    assert again.topic("a").cursors[0].backlog == 0


def test_a_damage_that_was_momentary_is_over_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    world = published_one_by_one(4)
    again, _ = restarted(world)
    again.topic("a")
    with monkeypatch.context() as failing:
        failing.setattr(type(again.storage), "scan", fails)
        again.consumer("s", "a")
        assert again.client.take() == []
    assert again.broker.damage.counts() == {"topic": 1, "subscription": 1}
    again.advance(minutes=2)
    assert again.client.take() == [0, 1, 2, 3] and not again.broker.damage


def test_bound_damage_skipped_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip, "DAMAGE_SKIPPED", DAMAGE_SKIPPED._replace(limit=3))
    world = published_one_by_one(8)
    for entry_id in range(5):
        damage_run(world, "a", entry_id)
    again, _ = restarted(world)
    again.consumer("s", "a")
    first, second, third = (skip_damaged(again.topic("a"), "s") for _ in range(3))
    again.settle()
    assert [(one.entries, one.is_left) for one in (first, second, third)] == [(3, True), (2, False), (0, False)]
    assert again.client.take() == [5, 6, 7]


# -- the list


def test_bound_damage_listed() -> None:
    logged: list[object] = []
    listed = DamageList(lambda event, **values: logged.append(values), lambda: 5)
    for number in range(DAMAGE_LISTED.limit + 7):
        assert listed.note("topic", f"t{number}", "x") == "x"
    assert len(listed.all()) == DAMAGE_LISTED.limit and listed.unlisted == 7
    assert len(logged) == DAMAGE_LISTED.limit and len(listed) == DAMAGE_LISTED.limit + 7


def test_the_list_says_what_since_when_and_once() -> None:
    logged: list[dict[str, object]] = []
    listed = DamageList(lambda event, **values: logged.append(values), iter(range(100)).__next__)
    assert not listed
    listed.note("subscription", "t", ValueError("bad\nline"), "s", "1:2")
    listed.note("subscription", "t", ValueError("bad\nline"), "s", "1:2")
    (row,) = listed.all()
    assert (row.kind, row.name, row.subscription, row.position, row.since_ms) == ("subscription", "t", "s", "1:2", 0)
    assert row.reason == "its record cannot be decoded (ValueError: bad\\nline)"
    assert logged == [{"kind": "subscription", "name": "s of t", "reason": row.reason}]
    listed.clear_topic("t")
    assert not listed and set(DAMAGE_KINDS) >= {"topic", "subscription", "schema"}


# -- records that the whole broker needs


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (keys.LAST_ID, "'#' (the last id given to a topic or a subscription)"),
        (keys.OWN_CLUSTER, "'@' (the name of the cluster)"),
        (keys.named(keys.DYNAMIC_SETTING, "ttlDurationDefaultInSeconds"), "a dynamic setting"),
    ],
)
def test_fault_global_record_that_cannot_be_read_refuses_the_start_with_its_key(key: bytes, what: str) -> None:
    world = two_topics()
    overwrite(world.storage, key, b"\xff\xfe\xfd")
    with pytest.raises(GlobalRecordDamaged) as caught:
        World(world.storage.crash())
    assert what in str(caught.value) and "\\xff\\xfe\\xfd" in str(caught.value)
    assert isinstance(world.broker, Broker)
