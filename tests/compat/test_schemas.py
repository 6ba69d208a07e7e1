"""Schemas with the official Python client: Avro, JSON, text, evolution, and rejected schemas.

It has no schemas of numbers, and cannot declare the types of a key and a value: see the Java and Go tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import _pulsar
import httpx
import pulsar
import pytest
from pulsar.schema import (
    Array,
    AvroSchema,
    BytesSchema,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    Schema,
    String,
    StringSchema,
)

from magnetar.testing import TestBroker
from tests.compat.stage import PATIENCE_MS, connect, serving


class Line(Record):
    article = String()
    pieces = Integer()


class Order(Record):
    number = Long(required=True)
    customer = String()
    lines = Array(Line())
    notes = Map(String())


class OrderWithDiscount(Record):
    """The next version: one more field, with a default."""

    number = Long(required=True)
    customer = String()
    lines = Array(Line())
    notes = Map(String())
    discount = Integer(default=5, required_default=True)


class Stranger(Record):
    number = String(required=True)


ORDER = Order(number=7, customer="ann", lines=[Line(article="x", pieces=2)], notes={"a": "b"})


class PlainSchema(Schema):
    """A schema type without a class in the Python client."""

    def __init__(self, type: _pulsar.SchemaType, definition: str = "") -> None:
        self._schema_info = _pulsar.SchemaInfo(type, type.name, definition)
        self._record_cls = bytes

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


def schema_of(running: TestBroker, topic: str, rest: str = "schema") -> dict[str, object]:
    answer = httpx.get(f"{running.http_url}/admin/v2/schemas/public/default/{topic}/{rest}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def received(consumer: pulsar.Consumer) -> object:
    message = consumer.receive(PATIENCE_MS)
    consumer.acknowledge(message)
    return message.value()


@pytest.fixture
def elsewhere(shared_broker: TestBroker) -> Iterator[pulsar.Client]:
    """A client with its own connection."""
    client = connect(shared_broker)
    yield client
    client.close()


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_records_are_received_unchanged(
    client: pulsar.Client, shared_broker: TestBroker, topic: str, kind: type[Schema]
) -> None:
    consumer = client.subscribe(topic, "s", schema=kind(Order))
    producer = client.create_producer(topic, schema=kind(Order))
    producer.send(ORDER)
    assert received(consumer) == ORDER
    stored = schema_of(shared_broker, topic)
    assert (stored["type"], stored["version"]) == (kind.__name__.removesuffix("Schema").upper(), 0)
    assert json.loads(str(stored["data"])) == Order.schema()


def test_text(client: pulsar.Client, shared_broker: TestBroker, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=StringSchema())
    client.create_producer(topic, schema=StringSchema()).send("größer")
    assert received(consumer) == "größer"
    assert schema_of(shared_broker, topic)["type"] == "STRING"


def test_plain_bytes_have_no_schema(client: pulsar.Client, shared_broker: TestBroker, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=BytesSchema())
    client.create_producer(topic, schema=BytesSchema()).send(b"x")
    assert received(consumer) == b"x"
    url = f"{shared_broker.http_url}/admin/v2/schemas/public/default/{topic}/schema"
    assert httpx.get(url).status_code == 404


# -- evolution


def test_old_and_new_versions_of_a_record_side_by_side(
    client: pulsar.Client, elsewhere: pulsar.Client, shared_broker: TestBroker, topic: str
) -> None:
    """Each side reads with its own definition messages written with the other: every message has its version."""
    old = client.subscribe(topic, "old", schema=AvroSchema(Order))
    client.create_producer(topic, schema=AvroSchema(Order)).send(ORDER)
    newer = elsewhere.create_producer(topic, schema=AvroSchema(OrderWithDiscount))
    newer.send(OrderWithDiscount(number=8, customer="bob", discount=50))
    new = elsewhere.subscribe(
        topic, "new", schema=AvroSchema(OrderWithDiscount), initial_position=pulsar.InitialPosition.Earliest
    )
    first, second = received(new), received(new)
    assert (first.number, first.discount) == (7, 5)  # type: ignore[attr-defined]
    assert (second.number, second.discount) == (8, 50)  # type: ignore[attr-defined]
    assert [received(old).number, received(old).number] == [7, 8]  # type: ignore[attr-defined]
    versions = schema_of(shared_broker, topic, "schemas")["getSchemaResponses"]
    assert [version["version"] for version in versions] == [0, 1]  # type: ignore[index, attr-defined]


def test_every_message_names_the_version_it_was_written_with(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    for kind in (Order, OrderWithDiscount, Order):
        producer = client.create_producer(topic, schema=JsonSchema(kind))
        producer.send(kind(number=1))
        producer.close()
    versions = [consumer.receive(PATIENCE_MS).schema_version() for _ in range(3)]
    assert versions == [f"{chr(0) * 7}{chr(number)}" for number in (0, 1, 0)]


def test_partitions_share_schema_versions(client: pulsar.Client, shared_broker: TestBroker, topic: str) -> None:
    url = f"{shared_broker.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
    assert httpx.put(url, json=3).status_code == 204
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Order))
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    for _ in range(6):
        producer.send(ORDER)
    assert [received(consumer) for _ in range(6)] == [ORDER] * 6
    assert len(schema_of(shared_broker, topic, "schemas")["getSchemaResponses"]) == 1  # type: ignore[arg-type]


def test_schemas_survive_a_restart(tmp_path: Path, topic: str) -> None:
    for number in range(2):
        with serving(tmp_path) as (running, client):
            client.create_producer(topic, schema=AvroSchema(Order)).send(ORDER)
            assert schema_of(running, topic)["version"] == 0
            with pytest.raises(pulsar.IncompatibleSchema):
                client.create_producer(topic, schema=AvroSchema(Stranger))
            reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AvroSchema(Order))
            assert [reader.read_next(PATIENCE_MS).value() for _ in range(number + 1)] == [ORDER] * (number + 1)


# -- rejected schemas


def test_an_incompatible_producer_is_rejected_and_others_are_unaffected(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Order))
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    for schema in (AvroSchema(Stranger), JsonSchema(Order), StringSchema()):
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=schema)
    producer.send(ORDER)
    assert received(consumer) == ORDER


def test_an_incompatible_consumer_is_rejected_and_others_are_unaffected(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Order))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "other", schema=AvroSchema(Stranger))
    producer.send(ORDER)
    assert received(consumer) == ORDER


def test_an_invalid_definition_is_rejected(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=PlainSchema(_pulsar.SchemaType.AVRO, "nonsense"))
    client.create_producer(topic, schema=AvroSchema(Order)).send(ORDER)


def test_a_consumer_adds_no_schema_to_a_topic_of_bytes(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).send(b"x")
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=AvroSchema(Order))


def test_producers_without_a_schema_where_validation_is_enforced(topic: str) -> None:
    with serving(isSchemaValidationEnforced=True) as (_, client):
        client.create_producer(topic).send(b"it has no schema yet")
        client.create_producer(topic, schema=JsonSchema(Order)).send(ORDER)
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic)
        client.subscribe(topic, "s")


def test_without_auto_update_an_administrator_adds_schemas(topic: str) -> None:
    with serving(isAllowAutoUpdateSchemaEnabled=False) as (running, client):
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=AvroSchema(Order))
        url = f"{running.http_url}/admin/v2/schemas/public/default/{topic}/schema"
        body = {"type": "AVRO", "schema": json.dumps(Order.schema()), "properties": {}}
        assert httpx.post(url, json=body).json() == {"version": {"version": 0}}
        client.create_producer(topic, schema=AvroSchema(Order)).send(ORDER)


def test_the_example_in_the_docs_runs(shared_broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "schemas.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- test: schemas -->\n```python\n(.*?)```", page, re.DOTALL)
    exec(block.replace("pulsar://127.0.0.1:6650", shared_broker.service_url), {"__name__": "example"})
    assert capsys.readouterr().out.splitlines()[-2:] == ["['ann', 'bob']", "refused"]
