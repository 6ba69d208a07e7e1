"""Schemas are copied with the messages; refused messages stop the topic, are dead-lettered or skipped (GR8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar.client import EARLIEST, Client
from magnetar.deadletter.properties import DEATH_DESCRIPTION, DEATH_REASON, ORIGIN_MESSAGE_ID, REAL_TOPIC
from magnetar.pipelines import clusters
from magnetar.pipelines.copy import schemas
from magnetar.pipelines.copy.refused import REASON, refused_topic
from magnetar.replication.model import Mask, Refusal, RoutePolicy, State
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from tests.pipelines.two_clusters import (
    ask,
    assignment,
    batch,
    copy_one,
    create,
    message,
    metadata_of,
    new_topic,
    path_of,
    payloads,
    position_of,
    positions,
    source_positions,
    store,
    stored,
)

STOP, PARK, SKIP = (
    RoutePolicy(refused=Refusal.STOP),
    RoutePolicy(refused=Refusal.PARK),
    RoutePolicy(refused=Refusal.SKIP),
)


def json_schema(*fields: str, optional: bool = True) -> pb.Schema:
    kind = '["null", "string"], "default": null' if optional else '"string"'
    listed = ", ".join(f'{{"name": "{field}", "type": {kind}}}' for field in fields)
    text = f'{{"type": "record", "name": "R", "fields": [{listed}]}}'
    return pb.Schema(name="s", type=pb.Schema.Json, schema_data=text.encode())


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """A test starts like a new process, without cached state."""
    yield
    for own in clusters._clusters.values():
        own.loop.close(*own._clients.values())
    clusters._clusters.clear()
    schemas._schemas.clear()
    schemas._versions.clear()


def store_versions(a: TestBroker, topic: str, first: pb.Schema, second: pb.Schema) -> None:
    """0 and 1 with the first schema, 2 and 3 with the second, 4 without."""
    version = store(a, topic, [], first)
    store(a, topic, [message(0, schema_version=version), message(1, schema_version=version)])
    version = store(a, topic, [], second)
    store(a, topic, [message(2, schema_version=version), batch(3, 2, schema_version=version), message(5)])


def schema_texts(running: TestBroker, topic: str) -> list[bytes | None]:
    """The definition of each entry's version in its own cluster."""
    with Client(running.service_url) as client:
        versions = [metadata_of(entry).schema_version for entry in stored(running, topic)]
        found = [client.schema(topic, version) if version else None for version in versions]
    return [None if schema is None else schema.data for schema in found]


# -- schemas


def test_gr8_schemas_are_copied(a: TestBroker, b: TestBroker) -> None:
    """The remote has its own version numbers: here one more."""
    topic = create(b, new_topic())
    store(b, topic, [], json_schema("x", "y", "z"))
    first, second = json_schema("x"), json_schema("x", "y")
    store_versions(a, topic, first, second)
    outcome = copy_one(assignment(a, b, topic))
    assert (outcome.state, outcome.reason, outcome.entries) == (State.RUNNING, "", 5)
    expected = [first.schema_data, first.schema_data, second.schema_data, second.schema_data, None]
    assert schema_texts(a, topic) == schema_texts(b, topic) == expected
    versions = [metadata_of(entry).schema_version for entry in stored(b, topic)]
    assert versions != [metadata_of(entry).schema_version for entry in stored(a, topic)]


def test_gr8_a_recreated_remote_topic_gets_its_schemas_again(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(b, topic, [], json_schema("q"))
    version = store(a, topic, [], json_schema("x"))
    store(a, topic, [message(0, schema_version=version)])
    copy_one(assignment(a, b, topic))
    ask(b, "DELETE", f"{path_of(topic)}?force=true&deleteSchema=true")
    ask(b, "DELETE", f"schemas/{topic.partition('://')[2]}/schema?force=true")
    create(b, topic)
    store(a, topic, [message(1, schema_version=version)])
    copy_one(assignment(a, b, topic))
    assert payloads(stored(b, topic)) == [b"1"]
    assert schema_texts(b, topic) == [json_schema("x").schema_data]


def reject_the_second(a: TestBroker, b: TestBroker) -> str:
    """A topic whose second version the remote rejects: its readers would miss a field in older messages."""
    topic = create(b, new_topic())
    ask(a, "PUT", "namespaces/public/default/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    ask(b, "PUT", f"{path_of(topic)}/schemaCompatibilityStrategy", "BACKWARD")
    store_versions(a, topic, json_schema("x"), json_schema("y", optional=False))
    return topic


def test_gr8_a_refused_schema_stops_before_its_message(a: TestBroker, b: TestBroker) -> None:
    topic = reject_the_second(a, b)
    for _ in range(2):
        outcome = copy_one(assignment(a, b, topic, policy=STOP))
        assert outcome.state is State.REFUSED
        assert "refuses schema version 1" in outcome.reason and f"{outcome.acked}"[:-3].endswith(":1")
        assert payloads(stored(b, topic)) == [b"0", b"1"]
    assert position_of(a, topic) == stored(a, topic)[1].id


def test_gr8_refused_messages_are_dead_lettered_once(a: TestBroker, b: TestBroker) -> None:
    topic = reject_the_second(a, b)
    outcome = copy_one(assignment(a, b, topic, policy=PARK))
    assert (outcome.state, outcome.entries, outcome.dead_lettered) == (State.RUNNING, 3, 2)
    assert "refuses schema version 1" in outcome.error
    # A copier without its position repeats everything, without duplicates.
    copy_one(assignment(a, b, topic, policy=PARK, subscription="magnetar.repl.again"))
    assert payloads(stored(b, topic)) == [b"0", b"1", b"5"]
    letters = refused_topic(topic, "b")
    assert letters.endswith("-b-REPL-DLQ")
    with Client(a.service_url) as client, client.reader(letters, EARLIEST) as reader:
        parked = [reader.read(10) for _ in range(3)]
        assert not reader.has_next()
    ids = [stored(a, topic)[index].id for index in (2, 3)]
    assert [m.properties[ORIGIN_MESSAGE_ID] for m in parked] == [f"{ids[0]}", f"{ids[1]}:0", f"{ids[1]}:1"]
    for letter in parked:
        assert letter.properties[REAL_TOPIC] == topic
        assert letter.properties[DEATH_REASON] == REASON
        assert "schema version 1" in letter.properties[DEATH_DESCRIPTION]
    assert [m.value for m in parked] == [b"2", b"3", b"4"]


def test_gr8_refused_messages_are_skipped_and_counted(a: TestBroker, b: TestBroker) -> None:
    topic = reject_the_second(a, b)
    outcome = copy_one(assignment(a, b, topic, policy=SKIP))
    assert (outcome.state, outcome.entries, outcome.skipped) == (State.RUNNING, 3, 2)
    assert payloads(stored(b, topic)) == [b"0", b"1", b"5"]
    assert outcome.acked == stored(a, topic)[-1].id


# -- sizes and delays, known only to the broker


def with_a_large_one(a: TestBroker, b: TestBroker) -> str:
    topic = create(b, new_topic())
    ask(b, "POST", f"{path_of(topic)}/maxMessageSize", 1000)
    small = [message(number, b"s%d" % number * 100) for number in range(50)]
    store(a, topic, [*small, message(50, b"L" * 2000), *small, message(101, b"L" * 3000), message(102)])
    return topic


def test_gr8_nothing_after_a_refused_message_is_stored(a: TestBroker, b: TestBroker) -> None:
    """The target remembers the last position: with a gap, the refused message would count as copied."""
    topic = with_a_large_one(a, b)
    for _ in range(2):
        outcome = copy_one(assignment(a, b, topic, policy=STOP))
        assert outcome.state is State.REFUSED and "exceeds maxMessageSize 1000" in outcome.reason
        assert len(stored(b, topic)) == 50
    ask(b, "POST", f"{path_of(topic)}/maxMessageSize", 5000)
    assert copy_one(assignment(a, b, topic, policy=STOP)).state is State.RUNNING
    assert source_positions(stored(b, topic)) == positions(stored(a, topic))


@pytest.mark.parametrize("policy", [PARK, SKIP])
def test_gr8_large_messages_are_dead_lettered_or_skipped(a: TestBroker, b: TestBroker, policy: RoutePolicy) -> None:
    topic = with_a_large_one(a, b)
    outcome = copy_one(assignment(a, b, topic, policy=policy))
    assert outcome.state is State.RUNNING
    assert (outcome.dead_lettered, outcome.skipped) == ((2, 0) if policy is PARK else (0, 2))
    expected = [position for index, position in enumerate(positions(stored(a, topic))) if index not in (50, 101)]
    assert source_positions(stored(b, topic)) == expected
    if policy is PARK:
        assert payloads(stored(a, refused_topic(topic, "b"))) == [b"L" * 2000, b"L" * 3000]


def test_gr8_a_broker_with_a_smaller_limit(a: TestBroker) -> None:
    """The limit of the connection is known before anything is sent."""
    with broker(clusterName="b", maxMessageSize=20_000) as b:
        topic = create(b, new_topic())
        store(a, topic, [message(0), message(1, b"x" * 100_000), message(2)])
        stopped = copy_one(assignment(a, b, topic, policy=STOP))
        assert stopped.state is State.REFUSED and "exceeds the broker's limit of 20000" in stopped.reason
        skipped = copy_one(assignment(a, b, topic, policy=SKIP))
        assert (skipped.entries, skipped.skipped) == (1, 1)
        assert payloads(stored(b, topic)) == [b"0", b"2"]


def test_gr8_a_delay_above_the_remote_limit(a: TestBroker) -> None:
    far_ms = 4_000_000_000_000
    with broker(clusterName="b", delayedDeliveryMaxDelayInMillis=60_000) as b:
        topic = create(b, new_topic())
        store(a, topic, [message(0), message(1, deliver_at_time=far_ms), message(2)])
        stopped = copy_one(assignment(a, b, topic, policy=STOP))
        assert stopped.state is State.REFUSED and "delayedDeliveryMaxDelayInMillis" in stopped.reason
        assert payloads(stored(b, topic)) == [b"0"]
        assert copy_one(assignment(a, b, topic, policy=PARK)).dead_lettered == 1
        assert payloads(stored(b, topic)) == [b"0", b"2"]
        assert payloads(stored(a, refused_topic(topic, "b"))) == [b"1"]


def test_gr8_a_message_that_cannot_be_masked_is_not_copied_unmasked(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    secret = message(0, b"{}", encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")])
    store(a, topic, [secret, message(1, b'{"name": "Ann"}')])
    policy = RoutePolicy(masks=(Mask(field="name"),), refused=Refusal.SKIP)
    outcome = copy_one(assignment(a, b, topic, policy=policy))
    assert (outcome.entries, outcome.skipped) == (1, 1) and "encrypted" in outcome.error
    [copied] = stored(b, topic)
    assert b"Ann" not in copied.blob
