"""Replication with a filter, masks and another name (SP6): two brokers and a pipeline."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import fastavro
import pytest

from magnetar.client import InlineClient, Message, Schema
from magnetar.client.schema import schema_to_wire
from magnetar.replication.model import ROUTE
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob
from tests.pipelines.conftest import NAMESPACE, Cluster, World, full, until

FIRST_S = 90.0
"""The first query of a session takes long on a machine that is busy."""

OVER_ONE = "CAST(get_json_object(CAST(value AS STRING), '$.n') AS INT) > 1"
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "n", "type": "int"}, {"name": "email", "type": ["null", "string"]}],
}


@pytest.fixture
def linked(world: World) -> tuple[Cluster, Cluster]:
    """One direction."""
    a, b = world.mesh("a", "b")
    world.pipeline(a)
    return a, b


def person(number: int, email: str | None) -> bytes:
    return json.dumps({"n": number, "email": email}, separators=(",", ":")).encode()


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def seen(messages: list[Message]) -> list[tuple[bytes, str | None]]:
    return [(message.value, message.properties.get(ROUTE)) for message in messages]


def publish_batch(cluster: Cluster, topic: str, *values: bytes) -> None:
    with cluster.client.producer(full(topic), batch_delay_s=1) as producer:
        sent = [producer.send_async(value, key=str(number)) for number, value in enumerate(values)]
        producer.flush()
        assert len({each.result().entry_id for each in sent}) == 1


def test_sp6_messages_are_filtered_masked_and_renamed(linked: tuple[Cluster, Cluster]) -> None:
    a, b = linked
    masks = [{"field": "email"}]
    a.set_route(b, NAMESPACE, where=OVER_ONE, masks=masks, rename="{tenant}/{namespace}/{topic}-eu")
    a.create("people", 2)
    publish_batch(a, "people-partition-1", *(person(number, f"{number}@x") for number in range(5)))
    a.publish("people-partition-1", person(0, "no@x"), person(9, "9@x"))

    messages = b.read("people-eu-partition-1", 4, FIRST_S)

    route = "where,mask:email,rename"
    assert seen(messages) == [(person(number, sha(f"{number}@x")), route) for number in (2, 3, 4, 9)]
    assert [message.key for message in messages] == ["2", "3", "4", None]
    assert {message.replicated_from for message in messages} == {"a"}
    assert not b.has_more_than("people-eu-partition-1", 4)
    assert b.client.partition_count(full("people-eu")) == 2
    assert b.client.partition_count(full("people")) is None

    until(lambda: a.states("people", b) == ["running"] * 2, "running")
    a.publish("people-partition-1", person(8, "8@x"))  # another round
    assert b.read("people-eu-partition-1", 5)[4].value == person(8, sha("8@x"))


def test_sp6_a_mask_that_does_not_fit_stops_the_topic_until_the_policy_is_changed(
    linked: tuple[Cluster, Cluster],
) -> None:
    a, b = linked
    a.create("people")
    a.set_route(b, f"{NAMESPACE}/people", where="n > 1", masks=[{"field": "n"}])
    publish_avro(a, "people", *({"n": number, "email": f"{number}@x"} for number in range(4)))

    def status() -> dict[str, Any]:
        return a.status("people", b)[0]

    until(lambda: "field n has type int" in status()["reason"], "the refusal", FIRST_S)
    assert status()["state"] == "refused-by-remote"
    assert full("people") in status()["reason"]
    assert not b.has_more_than("people", 0)

    a.set_route(b, f"{NAMESPACE}/people", where="upper(email)")
    until(lambda: "BOOLEAN" in status()["reason"], "what is wrong with the condition")
    assert status()["state"] == "stopped"

    a.set_route(b, f"{NAMESPACE}/people", where="n > 1", masks=[{"field": "email", "kind": "null"}], removeMasks=["n"])
    copied = [avro({"n": number, "email": None}) for number in (2, 3)]
    assert seen(b.read("people", 2)) == [(value, "where,mask:email") for value in copied]
    until(lambda: status()["state"] == "running", "running")


def publish_avro(cluster: Cluster, topic: str, *people: dict[str, Any]) -> None:
    schema = schema_to_wire(Schema(type="AVRO", data=json.dumps(PERSON).encode(), name=topic))
    with InlineClient(cluster.broker.service_url) as inline:
        producer = inline.run(inline.client.entry_producer(full(topic), schema=schema))
        for number, one in enumerate(people):
            metadata = pb.MessageMetadata(
                producer_name="p", sequence_id=number, publish_time=1, schema_version=producer.schema_version
            )
            blob = build_blob(metadata, avro(one))
            inline.run(producer.send(blob, sequence_id=number, highest_sequence_id=number, messages=1))
        inline.run(producer.flush())
        inline.run(producer.close())


def avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PERSON, value)
    return out.getvalue()
