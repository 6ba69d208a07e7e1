"""GR6: `verify` between two real brokers, with faults injected as handmade copies. One test needs Spark."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import msgspec
import pytest

from magnetar import testing
from magnetar.client import EARLIEST, LATEST, Client, Entry, InlineClient, Message
from magnetar.names import TopicName
from magnetar.pipelines.clusters import Clusters
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copy_encoder import CopyEncoder, parse_entry
from magnetar.pipelines.verify import verify as verifying
from magnetar.pipelines.verify.comparison import Compared
from magnetar.pipelines.verify.repair import REPAIRED
from magnetar.pipelines.verify.verify import Pair, compare
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import AS_IT_IS, SOURCE_POSITION, Mask, RoutePolicy

ORDERS = "persistent://public/default/orders"


class Two:
    """Two clusters, `a` and `b`, and a topic of `a` with its copies in `b`."""

    def __init__(self, a: testing.TestBroker, b: testing.TestBroker) -> None:
        self.brokers = a, b
        self.a, self.b = (ClusterEndpoint(name, one.service_url, one.http_url) for name, one in (("a", a), ("b", b)))

    def publish(self, count: int, *, batching: bool = False, topic: str = ORDERS) -> None:
        with Client(self.a.service_url) as client, client.producer(topic, batching=batching) as producer:
            for index in range(count):
                producer.send_async(f"value {index}".encode())
            producer.flush()

    def entries(self, endpoint: ClusterEndpoint, topic: str = ORDERS) -> list[Entry]:
        with Client(endpoint.service_url) as client:
            return [entry for some in client.entries(topic, EARLIEST, LATEST) for entry in some]

    def copy(
        self,
        chosen: list[int],
        *,
        payload: bytes | None = None,
        name: str = "by hand",
        topic: str = ORDERS,
        target: str = ORDERS,
        is_placed: bool = True,
        offset: int = 0,
    ) -> None:
        """Copies these entries in this order; `offset` shifts their recorded source position."""
        entries = self.entries(self.a, topic)
        with InlineClient(self.b.service_url) as inline:
            producer = inline.run(inline.client.entry_producer(target, name=name))
            for number, index in enumerate(chosen):
                entry = entries[index]
                found = parse_entry(entry.blob)
                copies = CopyEncoder("a", entry.id.ledger_id, None)
                if payload is not None:
                    found = found._replace(payload=payload)
                blob = copies.special(found, entry.id.entry_id + offset, b"")
                if not is_placed:
                    blob = blob.replace(SOURCE_POSITION.encode(), SOURCE_POSITION.lower().encode())
                    blob = b"\x0e\x01" + _checksum(blob[6:]) + blob[6:]
                sending = producer.send(blob, sequence_id=number, highest_sequence_id=number, messages=found.messages)
                inline.run(sending)
            inline.run(producer.flush())
            inline.run(producer.close())

    def pair(
        self,
        *,
        policy: RoutePolicy = AS_IT_IS,
        mark: tuple[int, int] | None = None,
        repairs: bool = False,
        topic: str = ORDERS,
        target: str = ORDERS,
    ) -> Pair:
        return Pair(Assignment(self.a, self.b, topic, target, "pulsar.repl.b", policy), mark, repairs=repairs)

    def compared(self, pair: Pair | None = None) -> Compared:
        result = compare(pair or self.pair())
        assert result.error == ""
        return result


def _checksum(data: bytes) -> bytes:
    import google_crc32c

    return int(google_crc32c.value(data)).to_bytes(4, "big")


def ranges(result: Compared) -> dict[str, list[str]]:
    """By entry id: there is one ledger."""
    return {kind: [f"{one.first[1]}-{one.last[1]}" for one in found.ranges] for kind, found in result.found.items()}


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    own = Clusters()
    monkeypatch.setattr(verifying, "clusters", lambda: own)
    with testing.broker(clusterName="a") as a, testing.broker(clusterName="b") as b:
        for broker in (a, b):
            # So that read messages are kept.
            url = f"{broker.http_url}/admin/v2/namespaces/public/default/retention"
            body = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            httpx.post(url, json=body, trust_env=False).raise_for_status()
        yield Two(a, b)
        own.loop.close(*own._clients.values())


def test_gr6_faithful_copies_including_batches(two: Two) -> None:
    two.publish(5)
    two.publish(50, batching=True)
    count = len(two.entries(two.a))
    two.copy(list(range(count)))
    result = two.compared()
    assert (result.found, result.originals, result.copies) == ({}, count, count)
    assert (result.topic, result.target) == (ORDERS, ORDERS)


def test_gr6_missing_duplicated_different_and_late_entries(two: Two) -> None:
    two.publish(12)
    two.copy([0, 1, 5, 6, 6, 3], name="first")
    two.copy([7], name="second", payload=b"other")
    two.copy([8, 0], name="third")
    result = two.compared()
    assert ranges(result) == {
        "missing": ["2-2", "4-4", "9-11"],
        "duplicated": ["0-0", "6-6"],
        "different": ["7-7"],
        "late": ["3-3"],
    }


def test_gr6_extra_entries_and_entries_without_a_source_position(two: Two) -> None:
    two.publish(3)
    two.copy([0, 1, 2], name="first")
    two.copy([2], name="second", offset=5)
    two.copy([2], name="third", is_placed=False)
    result = two.compared()
    assert (ranges(result), result.unplaced) == ({"extra": ["7-7"]}, 1)


def test_gr6_entries_not_meant_for_the_target_are_not_missing(two: Two) -> None:
    """Copies from elsewhere, messages for other clusters only; and copies by others in the target."""
    two.publish(2)
    with Client(two.a.service_url) as client, client.producer(ORDERS, batching=False) as producer:
        producer.send(b"not for b", replicate_to=["c"])
        producer.send(b"for b", replicate_to=["b", "c"])
    with InlineClient(two.a.service_url) as inline:
        entry = two.entries(two.a)[0]
        producer = inline.run(inline.client.entry_producer(ORDERS, name="from c"))
        foreign = CopyEncoder("c", 77, None).special(parse_entry(entry.blob), 1, b"")
        inline.run(producer.send(foreign, sequence_id=1, highest_sequence_id=1, messages=1))
        inline.run(producer.flush())
        inline.run(producer.close())
    two.copy([0, 1, 3])
    with InlineClient(two.b.service_url) as inline:
        producer = inline.run(inline.client.entry_producer(ORDERS, name="from c"))
        inline.run(producer.send(foreign, sequence_id=1, highest_sequence_id=1, messages=1))
        inline.run(producer.flush())
        inline.run(producer.close())
    result = two.compared()
    assert (result.found, result.originals, result.copies) == ({}, 3, 3)


def test_gr6_entries_not_replicated_yet_are_not_missing(two: Two) -> None:
    two.publish(6)
    ledger_id = two.entries(two.a)[0].id.ledger_id
    two.copy([0, 2])
    result = two.compared(two.pair(mark=(ledger_id, 2)))
    assert (ranges(result), result.not_yet) == ({"missing": ["1-1"]}, 3)
    result = two.compared(two.pair(mark=(ledger_id, 2), target=f"{ORDERS}-elsewhere"))
    assert (ranges(result), result.not_yet) == ({"missing": ["0-2"]}, 3)


def test_gr6_entries_deleted_on_either_side(two: Two) -> None:
    two.publish(4)
    two.copy([0, 1, 2, 3])
    truncate = "/admin/v2/persistent/public/default/orders/truncate"
    httpx.delete(two.brokers[0].http_url + truncate, trust_env=False).raise_for_status()
    two.publish(2)
    result = two.compared()
    assert (ranges(result), result.older) == ({"missing": ["4-5"]}, 4)
    httpx.delete(two.brokers[1].http_url + truncate, trust_env=False).raise_for_status()
    result = two.compared()
    assert (ranges(result), result.trimmed) == ({}, 2)
    wanted = msgspec.structs.replace(two.pair(), restores_trimmed=True, repairs=True)
    result = two.compared(wanted)
    assert (result.trimmed, result.missing.entries) == (0, 2)
    assert ranges(two.compared(wanted)) == {}, "they are there again, once"


def test_gr6_a_transformed_topic(two: Two) -> None:
    two.publish(4)
    two.copy([0, 1, 3], payload=b"masked", target=f"{ORDERS}-eu")
    masked = two.pair(policy=RoutePolicy(masks=(Mask("email"),)), target=f"{ORDERS}-eu")
    assert ranges(two.compared(masked)) == {"missing": ["2-2"]}
    filtered = two.compared(two.pair(policy=RoutePolicy(where="true"), target=f"{ORDERS}-eu"))
    assert (filtered.found, filtered.filtered) == ({}, 1)


def test_gr6_an_unreadable_topic_does_not_stop_the_others(two: Two) -> None:
    result = compare(two.pair(topic="persistent://public/default/nowhere"))
    assert "nowhere" in result.error
    assert result.topic == "persistent://public/default/nowhere"


def test_gr6_a_repair_publishes_missing_entries_in_order_and_once(two: Two) -> None:
    two.publish(3)
    two.publish(30, batching=True)
    two.publish(3)
    count = len(two.entries(two.a))
    two.copy([0, count - 1])
    repaired = two.compared(two.pair(repairs=True))
    assert (repaired.missing.entries, repaired.published) == (count - 2, count - 2)
    result = two.compared(two.pair(repairs=True))
    assert (result.found, result.repaired, result.published) == ({}, count - 2, 0)
    with Client(two.b.service_url) as client, client.reader(ORDERS, EARLIEST) as reader:
        messages = [reader.read(timeout_s=5) for _ in range(36)]
    assert [message.value for message in messages if isinstance(message, Message)] == [
        b"value 0",
        b"value 2",
        *(f"value {index}".encode() for index in (1, 2, *range(30), 0, 1)),
    ]
    entry = two.entries(two.b)[2]
    properties = {pair.key: pair.value for pair in parse_entry(entry.blob).metadata.properties}
    assert set(properties) == {SOURCE_POSITION, REPAIRED}
    assert parse_entry(entry.blob).metadata.replicated_from == "a"


def test_gr6_a_repair_copies_schemas(two: Two) -> None:
    body = {"type": "STRING", "schema": "", "properties": {}}
    url = f"{two.brokers[0].http_url}/admin/v2/schemas/public/default/orders/schema"
    httpx.post(url, json=body, trust_env=False).raise_for_status()
    entries = _with_version(two)
    assert parse_entry(entries[0].blob).version
    httpx.put(f"{two.brokers[1].http_url}/admin/v2/persistent/public/default/orders", trust_env=False)
    repaired = two.compared(two.pair(repairs=True))
    assert repaired.published == 1
    with Client(two.b.service_url) as client:
        schema = client.schema(ORDERS)
    assert schema is not None
    assert schema.type == "STRING"
    assert parse_entry(two.entries(two.b)[0].blob).version


def _with_version(two: Two) -> list[Entry]:
    from magnetar.wire import schema_pb2 as pb

    two.publish(1, topic=f"{ORDERS}-plain")
    found = parse_entry(two.entries(two.a, f"{ORDERS}-plain")[0].blob)
    with InlineClient(two.a.service_url) as inline:
        schema = pb.Schema(name="", type=pb.Schema.String, schema_data=b"")
        producer = inline.run(inline.client.entry_producer(ORDERS, schema=schema))
        found.metadata.schema_version = producer.schema_version or b""
        from magnetar.wire.metadata import build_blob

        blob = build_blob(found.metadata, found.payload)
        inline.run(producer.send(blob, sequence_id=1, highest_sequence_id=1, messages=1))
        inline.run(producer.flush())
        inline.run(producer.close())
    return two.entries(two.a)


def test_partitions_are_compared_one_by_one(two: Two) -> None:
    for broker in two.brokers:
        url = f"{broker.http_url}/admin/v2/persistent/public/default/parts/partitions"
        httpx.put(url, json=2, trust_env=False).raise_for_status()
    parts = TopicName.parse("parts")
    for index in range(2):
        two.publish(4, topic=parts.with_partition(index).full)
    for index, chosen in ((0, [0, 1, 2, 3]), (1, [0, 3])):
        name = parts.with_partition(index).full
        two.copy(chosen, topic=name, target=name, name=f"by hand {index}")
        found = ranges(two.compared(two.pair(topic=name, target=name)))
        assert found == ({} if index == 0 else {"missing": ["1-2"]})
