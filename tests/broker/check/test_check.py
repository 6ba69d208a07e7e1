"""Each kind of damage is found by name, repaired on the safe side, and costs nothing else anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker import accepted_loss, keys
from magnetar.broker.catalog import record
from magnetar.broker.topic import run
from magnetar.storage.api import Space
from magnetar.storage.memory import MemoryStorage
from tests.broker.check.damage import change, findings, populated, repaired, rows
from tests.formats.content import StoredWorld, described

PREFIX = "persistent://public/default/"
GARBAGE = b"\xc1garbage"  # a byte that msgpack never has


def topic_id(storage: MemoryStorage, name: str) -> int:
    value = storage.get(Space.STATE, keys.named(keys.TOPIC, PREFIX + name))
    assert value is not None
    return record.decode_topic(value).id


def subscription_id(storage: MemoryStorage) -> int:
    ((_, value),) = rows(storage, Space.STATE, keys.under(keys.SUBSCRIPTION, topic_id(storage, "t")))
    return record.decode_subscription(value).id


def check_repair(storage: MemoryStorage, *kinds: str) -> Any:
    """The damage is found as these kinds, and nothing else; after the repair the broker opens everything."""
    found = findings(storage)
    assert [finding.kind for finding in found] == list(kinds), [finding.described() for finding in found]
    assert all(finding.name and finding.what and finding.repair for finding in found)
    repaired(storage)
    assert findings(storage) == []
    seen = described(storage.crash())
    assert findings(storage) == []
    return seen


def without(seen: Any, *path: str) -> Any:
    """A copy of a description without one part."""
    copied = msgspec.json.decode(msgspec.json.encode(seen))
    part = copied
    for name in path[:-1]:
        part = part[name]
    part.pop(path[-1])
    return copied


def test_a_healthy_folder_has_no_findings() -> None:
    assert findings(populated()) == []
    assert findings(MemoryStorage()) == []
    storage = MemoryStorage()
    StoredWorld(storage)
    assert findings(storage) == []


@pytest.mark.parametrize(
    ("kind", "name", "what", "lost"),
    [
        (keys.CLUSTER, "away", "cluster", ("cluster", "away")),
        (keys.TENANT, "acme", "tenant", ("tenants", "acme")),
        (keys.NAMESPACE, "acme/shop", "namespace", None),
        (
            keys.PARTITIONED,
            "persistent://acme/shop/split",
            "partitioned topic",
            ("partitioned", "persistent://acme/shop/split"),
        ),
        (keys.ROUTE, "away\0acme/shop", "route policy", ("routes", "away acme/shop")),
        (keys.PIPELINE, "acme/shop/fix", "pipeline", ("pipelines", "acme/shop/fix")),
        (keys.DYNAMIC_SETTING, "maxConsumersPerTopic", "dynamic setting", ("dynamic settings", "maxConsumersPerTopic")),
    ],
)
def test_fault_repaired_record_of_the_catalog(kind: bytes, name: str, what: str, lost: tuple[str, str] | None) -> None:
    storage = populated()
    before = described(storage.crash())
    change(storage, Space.STATE, keys.named(kind, name), GARBAGE)
    after = check_repair(storage, what)
    if kind == keys.PARTITIONED:
        del before["publish rates"], after["publish rates"]  # policies are what is lost
    assert (before if lost is None else without(before, *lost)) == (
        after if lost is None else without(after, *lost) if lost[1] in after[lost[0]] else after
    )


def test_a_route_policy_that_is_lost_is_paused() -> None:
    """Without it, masked or filtered messages would be copied."""
    storage = populated()
    change(storage, Space.STATE, keys.named(keys.ROUTE, "away\0acme/shop"), GARBAGE)
    repaired(storage)
    assert StoredWorld(storage).broker.replication.policies.at("away", "acme/shop").paused is True


def test_a_namespace_or_topic_that_is_lost_keeps_every_message() -> None:
    storage = populated()
    change(storage, Space.STATE, keys.named(keys.NAMESPACE, "public/default"), GARBAGE)
    value = msgspec.msgpack.encode({"id": topic_id(storage, "t"), "overrides": 3})
    change(storage, Space.STATE, keys.named(keys.TOPIC, PREFIX + "t"), value)
    check_repair(storage, "namespace", "topic")
    world = StoredWorld(storage)
    for name in ("t", "late"):
        policies = world.topic(name).policies
        assert (policies.retention_ms, policies.ttl_ms) == (-60_000, 0)


def test_fault_repaired_record_of_a_topic_is_rebuilt_from_its_data() -> None:
    storage = populated()
    before = described(storage.crash())
    change(storage, Space.STATE, keys.named(keys.TOPIC, PREFIX + "t"), GARBAGE)
    assert "topic" in [finding.kind for finding in findings(storage)]
    repaired(storage)
    assert findings(storage) == []
    assert described(storage) == before


def test_two_lost_topics_give_their_messages_to_recovered_ones() -> None:
    storage = populated()
    before = described(storage.crash())
    ids = [topic_id(storage, name) for name in ("t", "late")]
    for name in ("t", "late"):
        change(storage, Space.STATE, keys.named(keys.TOPIC, PREFIX + name), GARBAGE)
    repaired(storage)
    assert findings(storage) == []
    after = described(storage)
    for number, name in zip(ids, ("t", "late"), strict=True):
        assert after["topics"].pop(f"{PREFIX}recovered-{number}") == before["topics"].pop(PREFIX + name)
    assert after == before


def test_fault_repaired_record_of_a_subscription_keeps_its_position() -> None:
    storage = populated()
    before = described(storage.crash())
    ((key, _),) = rows(storage, Space.STATE, keys.under(keys.SUBSCRIPTION, topic_id(storage, "t")))
    change(storage, Space.STATE, key, msgspec.msgpack.encode({"id": subscription_id(storage), "properties": 7}))
    after = check_repair(storage, "subscription")
    path = ("topics", PREFIX + "t", "subscriptions", "s", "policy")
    assert without(after, *path) == without(before, *path)


def test_a_subscription_without_a_readable_id_starts_over() -> None:
    storage = populated()
    ((key, _),) = rows(storage, Space.STATE, keys.under(keys.SUBSCRIPTION, topic_id(storage, "t")))
    change(storage, Space.STATE, key, GARBAGE)
    repaired(storage)
    assert findings(storage) == []
    world = StoredWorld(storage)
    world.consumer()
    assert world.client.take() == list(range(10))


def test_a_name_that_is_not_text_is_renamed() -> None:
    """What a subscription of before was called when names were not checked."""
    storage = populated()
    ((key, value),) = rows(storage, Space.STATE, keys.under(keys.SUBSCRIPTION, topic_id(storage, "t")))
    change(storage, Space.STATE, key, None)
    change(storage, Space.STATE, key[:9] + b"s\xff", value)
    check_repair(storage, "subscription")
    assert list(StoredWorld(storage).topic().subscriptions) == ["s\\xff"]


@pytest.mark.parametrize("value", [b"", b"short", b"\x7f" * 8, b"\xff" * 7 + b"\xf0", None])
def test_fault_repaired_position_is_within_bounds_again(value: bytes | None) -> None:
    storage = populated()
    change(storage, Space.STATE, keys.under(keys.CURSOR, subscription_id(storage)), value)
    assert "position" in {finding.kind for finding in findings(storage)}
    repaired(storage)
    assert findings(storage) == []
    subscription = StoredWorld(storage).subscription()
    assert -1 <= subscription.cursor.mark_delete <= 9


@pytest.mark.parametrize("value", [b"", b"x", b"o", b"o" + GARBAGE])
def test_a_damaged_entry_state_is_forgotten(value: bytes) -> None:
    storage = populated()
    key = keys.POSITION + keys.PAIR.pack(subscription_id(storage), 5)
    change(storage, Space.STATE, key, value)
    after = check_repair(storage, "entry state")
    assert after["topics"][PREFIX + "t"]["subscriptions"]["s"]["failures of 5"] is None


def test_entry_states_out_of_bounds_are_removed() -> None:
    storage = populated()
    for entry in (0, 1, 77):
        change(storage, Space.STATE, keys.POSITION + keys.PAIR.pack(subscription_id(storage), entry), b"a")
    check_repair(storage, "entry state", "entry state", "entry state")


def test_a_position_that_lags_is_moved() -> None:
    storage = populated()
    change(storage, Space.STATE, keys.POSITION + keys.PAIR.pack(subscription_id(storage), 4), b"a")
    after = check_repair(storage, "position")
    assert after["topics"][PREFIX + "t"]["subscriptions"]["s"]["mark-delete"] == 4


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (keys.DEDUPLICATION, "sequence id"),
        (keys.REPLICATED, "position of a pipeline"),
        (keys.PULSAR_REPLICATED, "position of a replicator"),
        (keys.SCHEMA, "schema"),
        (keys.DELAYED, "delayed message"),
    ],
)
def test_damaged_indexes_are_forgotten(kind: bytes, what: str) -> None:
    storage = populated()
    key = rows(storage, Space.STATE, kind)[0][0]
    change(storage, Space.STATE, key, b"x")
    check_repair(storage, what)


def test_a_first_entry_that_is_lost_is_found_again() -> None:
    storage = populated()
    before = described(storage.crash())
    change(storage, Space.STATE, keys.under(keys.FIRST, topic_id(storage, "trimmed")), b"x")
    repaired(storage)
    assert findings(storage) == []
    assert described(storage) == before


@pytest.mark.parametrize("value", [b"", b"x", keys.ID.pack(3), keys.ID.pack(1 << 63), None])
def test_the_last_id_is_never_below_one_in_use(value: bytes | None) -> None:
    storage = populated()
    highest = keys.ID.unpack(storage.get(Space.STATE, keys.LAST_ID) or b"")[0]
    change(storage, Space.STATE, keys.LAST_ID, value)
    check_repair(storage, "last id")
    in_use = [record.decode_topic(value).id for _, value in rows(storage, Space.STATE, keys.TOPIC)]
    assert keys.ID.unpack(storage.get(Space.STATE, keys.LAST_ID) or b"")[0] >= max(in_use)
    assert highest >= max(in_use)


def test_keys_of_no_kind_are_exported() -> None:
    storage = populated()
    for key in (b"\0", b"z", b"@x", b"#\0"):
        change(storage, Space.STATE, key, b"?")
    change(storage, Space.ENTRIES, b"short", b"?")
    found = findings(storage)
    assert sorted(finding.kind for finding in found) == ["entries", *["unknown"] * 4]
    kept = repaired(storage)
    assert sorted(change.key for _, change, _ in kept) == [b"\0", b"#\0", b"@x", b"short", b"z"]
    assert {value for _, _, value in kept} == {b"?"}
    assert findings(storage) == []


def test_data_of_no_topic_is_removed_and_its_messages_are_not() -> None:
    storage = populated()
    batch = storage.batch()
    for kind in (keys.SUBSCRIPTION, keys.DEDUPLICATION, keys.REPLICATED):
        batch.put(keys.under(kind, 999, b"x"), record.encode(record.SubscriptionRecord(998)))
    batch.put(keys.under(keys.CURSOR, 998), keys.SIGNED.pack(3))
    batch.put(keys.under(keys.FIRST, 997), keys.PAIR.pack(3, 3))
    batch.put_entry(keys.PAIR.pack(996, 0), rows(storage, Space.ENTRIES)[0][1][:0] + one_run(b"kept"))
    storage.write(batch)
    repaired(storage)
    assert findings(storage) == []
    world = StoredWorld(storage)
    assert len(world.topic(f"{PREFIX}recovered-996").log.read(0, 10, 1 << 20)) == 1
    assert 999 not in {topic.id for topic in world.broker.catalog.topics.values()}


def one_run(payload: bytes) -> bytes:
    from magnetar.wire.metadata import build_blob
    from magnetar.wire.schema_pb2 import MessageMetadata

    blob = build_blob(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), payload)
    return run.encode([(1, 0, blob)], 1, 0)


# -- entries

Damage = Callable[[bytes], bytes]


def flipped(at: int) -> Damage:
    def damage(value: bytes) -> bytes:
        content = bytearray(value)
        content[at % len(content)] ^= 0x10
        return bytes(content)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: b"",
        lambda value: b"x" * 7,
        lambda value: value[:-1],
        lambda value: value + b"x",
        flipped(3),
        flipped(35),
    ],
    ids=["empty", "short", "cut", "long", "count", "table"],
)
def test_fault_repaired_run_costs_its_own_entries(damage: Damage) -> None:
    storage = populated()
    before = described(storage.crash())
    prefix = keys.ID.pack(topic_id(storage, "second"))
    ((key, value),) = rows(storage, Space.ENTRIES, prefix)
    change(storage, Space.ENTRIES, key, damage(value))
    after = check_repair(storage, "entries")
    path = ("topics", PREFIX + "second", "messages")
    assert without(after, *path) == without(before, *path)
    assert after["topics"][PREFIX + "second"]["bounds"] == [0, 2]


def test_fault_repaired_run_message_costs_no_other_of_its_run() -> None:
    storage = populated()
    prefix = keys.ID.pack(topic_id(storage, "second"))
    ((key, value),) = rows(storage, Space.ENTRIES, prefix)
    entries = run.parts(value)
    assert len(entries) == 3
    change(storage, Space.ENTRIES, key, flipped(len(value) - len(entries[2][2]) - 3)(value))  # in the second one
    after = check_repair(storage, "entries")
    assert [message[0] for message in after["topics"][PREFIX + "second"]["messages"]] == [0, 2]
    world = StoredWorld(storage)
    world.consumer(topic="second")
    assert world.client.take() == [0, 2]
    assert world.subscription(topic="second").backlog == 2


def test_missing_runs_leave_their_ids_empty() -> None:
    storage = MemoryStorage()
    world = StoredWorld(storage)
    for _ in range(6):
        world.publish(1, producer=world.producer(name=f"p{_}"))
    prefix = keys.ID.pack(world.topic().record.id)
    for entry in (2, 3):
        change(storage, Space.ENTRIES, prefix + keys.ID.pack(entry), None)
    found = findings(storage)
    assert [finding.what for finding in found] == ["entries 2 to 3 are missing"]
    repaired(storage)
    assert findings(storage) == []
    world = StoredWorld(storage)
    world.consumer()
    assert world.client.take() == [0, 1, 4, 5]
    change(storage, Space.ENTRIES, prefix + keys.ID.pack(0), None)
    repaired(storage)
    assert findings(storage) == []
    assert StoredWorld(storage).topic().log.first == 1


def test_void_entries_of_an_accepted_loss_are_no_damage() -> None:
    storage = MemoryStorage()
    world = StoredWorld(storage)
    for number in range(200):
        world.publish(1, producer=world.producer(name=f"p{number}"))
    prefix = keys.ID.pack(world.topic().record.id)
    for entry in range(10, 190):
        change(storage, Space.ENTRIES, prefix + keys.ID.pack(entry), None)
    assert len(findings(storage)) == 1
    batch = storage.batch()
    accepted_loss._fill(batch, prefix, range(10, 190), 1, 77)
    storage.write(batch)
    assert findings(storage) == []


# -- anything

ALL_ROWS = [(space, key, value) for space in Space for key, value in populated().scan(space, b"", b"\xff" * 64)]


@given(
    index=st.integers(0, len(ALL_ROWS) - 1),
    value=st.one_of(
        st.binary(max_size=40),
        st.tuples(st.integers(0, 10_000), st.integers(1, 255)),
        st.none(),
        st.integers(0, len(ALL_ROWS) - 1),
    ),
)
def test_any_single_value_may_be_anything(index: int, value: bytes | tuple[int, int] | int | None) -> None:
    """Random bytes, a flipped byte, no value, or the value of another key: it is found, or the broker does not care."""
    storage = populated()
    space, key, before = ALL_ROWS[index]
    if isinstance(value, tuple):
        content = bytearray(before or b"\0")
        content[value[0] % len(content)] ^= value[1]
        damaged: bytes | None = bytes(content)
    else:
        damaged = ALL_ROWS[value][2] if isinstance(value, int) else value
    change(storage, space, key, damaged)
    repaired(storage)
    assert findings(storage) == []
    described(storage)
    world = StoredWorld(storage)
    for full in list(world.broker.catalog.topics):
        world.consumer("everything", full)
        world.publish(1, full, producer=world.producer(full, "later"))
    world.broker.invariants()
    world.settle()
    assert findings(storage) == []
