"""Compatibility: every strategy and every type."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.schema import compatibility, definition
from magnetar.broker.schema.avro import COMPARISONS_MAX
from magnetar.broker.schema.definition import are_same
from magnetar.errors import IncompatibleSchema, InvalidSchema
from magnetar.schema.types import Schema, SchemaType
from tests.broker.schema.builders import ONE, WITH_DEFAULT, WITHOUT_DEFAULT, avro, field, native, pair, record

STRATEGIES = (
    "ALWAYS_COMPATIBLE",
    "ALWAYS_INCOMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)


def allowed(new: Schema, *earlier: Schema) -> set[str]:
    """The strategies under which `new` is compatible."""
    found = set()
    for strategy in STRATEGIES:
        try:
            compatibility.check(new, list(enumerate(earlier)), strategy)
        except IncompatibleSchema:
            continue
        found.add(strategy)
    return found


def refusal(new: Schema, *earlier: Schema, strategy: str = "FULL") -> str:
    with pytest.raises(IncompatibleSchema) as refused:
        compatibility.check(new, list(enumerate(earlier)), strategy)
    assert refused.value.wire_code == 18
    assert refused.value.http_status == 409
    return str(refused.value)


BACKWARD = {"ALWAYS_COMPATIBLE", "BACKWARD", "BACKWARD_TRANSITIVE"}
FORWARD = {"ALWAYS_COMPATIBLE", "FORWARD", "FORWARD_TRANSITIVE"}
ALL = set(STRATEGIES) - {"ALWAYS_INCOMPATIBLE"}

# -- Avro


@pytest.mark.parametrize("type", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
@pytest.mark.parametrize(
    ("old", "new", "strategies"),
    [
        pytest.param(ONE, WITH_DEFAULT, ALL, id="a field with a default comes"),
        pytest.param(WITH_DEFAULT, ONE, ALL, id="a field with a default goes"),
        pytest.param(ONE, WITHOUT_DEFAULT, FORWARD, id="a field without a default comes"),
        pytest.param(WITHOUT_DEFAULT, ONE, BACKWARD, id="a field without a default goes"),
        pytest.param(ONE, record(field("a", "long")), BACKWARD, id="int grows to long"),
        pytest.param(record(field("a", "double")), record(field("a", "float")), FORWARD, id="double shrinks to float"),
        pytest.param(record(field("a", "string")), record(field("a", "bytes")), ALL, id="string and bytes"),
        pytest.param(ONE, record(field("a", "string")), {"ALWAYS_COMPATIBLE"}, id="another type"),
        pytest.param(ONE, record(field("a", ["null", "int"])), BACKWARD, id="may be null now"),
        pytest.param(record(field("a", ["null", "int"])), ONE, FORWARD, id="is never null now"),
        pytest.param(ONE, record(field("b"), aliases=[]), {"ALWAYS_COMPATIBLE"}, id="a field is renamed"),
        pytest.param(ONE, record(field("b", aliases=["a"])), BACKWARD, id="a field is renamed with an alias"),
        pytest.param(ONE, record(field("a"), name="Other"), ALL, id="the record is renamed"),
        pytest.param(
            record(field("e", {"type": "enum", "name": "E", "symbols": ["X", "Y"]})),
            record(field("e", {"type": "enum", "name": "E", "symbols": ["X", "Z"]})),
            ALL,
            id="other symbols of an enum",
        ),
        pytest.param(
            record(field("f", {"type": "fixed", "name": "F", "size": 4})),
            record(field("f", {"type": "fixed", "name": "F", "size": 5})),
            {"ALWAYS_COMPATIBLE"},
            id="another size of a fixed",
        ),
        pytest.param(
            record(field("l", {"type": "array", "items": record(field("x"), name="Item")})),
            record(field("l", {"type": "array", "items": record(field("x", "long"), name="Item")})),
            BACKWARD,
            id="inside of an array",
        ),
        pytest.param(
            record(field("m", {"type": "map", "values": "long"})),
            record(field("m", {"type": "map", "values": "int"})),
            FORWARD,
            id="inside of a map",
        ),
        pytest.param(
            record(field("next", ["null", "R"])),
            record(field("next", ["null", "R"]), field("b", default=0)),
            ALL,
            id="a record that contains itself",
        ),
    ],
)
def test_avro_notation(old: Any, new: Any, strategies: set[str], type: SchemaType) -> None:
    assert allowed(avro(new, type), avro(old, type)) == strategies


def test_transitive_strategies_check_every_version() -> None:
    first, second = avro(record(field("a"))), avro(record(field("a"), field("b", "int", default=1)))
    third = avro(record(field("a"), field("b", "int")))  # reads the second, not the first
    assert allowed(third, first, second) >= {"BACKWARD", "FULL", "FORWARD", "FORWARD_TRANSITIVE"}
    assert allowed(third, first, second).isdisjoint({"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"})
    assert "version 0" in refusal(third, first, second, strategy="FULL_TRANSITIVE")


def test_the_rejection_names_the_field_the_version_and_the_direction() -> None:
    old, new = avro(record(field("name", "string"), field("age"))), avro(record(field("name"), field("age")))
    text = refusal(new, avro(ONE), old, strategy="BACKWARD")
    assert text.startswith("the schema is incompatible with version 1, the strategy is BACKWARD:")
    assert "it cannot read what that version wrote: field name: reader type: int" in text
    assert "writer type: string" in text and "age" not in text
    assert "that version cannot read what it writes: field b:" in refusal(
        avro(ONE), avro(record(field("a"), field("b"))), strategy="FORWARD"
    )


def test_the_rejection_names_the_field_inside_a_record() -> None:
    def address(type: str) -> Schema:
        return avro(record(field("address", ["null", record(field("street", type), name="Address")])))

    assert "field address: field street: reader type: int" in refusal(address("int"), address("string"))
    plain = [avro(record(field("address", record(field("street", type), name="A")))) for type in ("int", "string")]
    assert "field address: field street: reader type: int" in refusal(*plain)


def test_at_most_five_fields_are_named() -> None:
    def wide(type: str) -> Schema:
        return avro(record(*(field(f"f{index}", type) for index in range(500))))

    assert refusal(wide("int"), wide("string")).count("field f") == 5


def test_bound_schema_comparisons_end_early() -> None:
    def union(prefix: str) -> Schema:
        branches = [record(field(f"x{index}"), name=f"{prefix}{index}") for index in range(400)]
        return avro(record(field("u", branches)))

    start = time.monotonic()
    with pytest.raises(InvalidSchema, match=f"more than {COMPARISONS_MAX} comparisons"):
        compatibility.check(union("B"), [(0, union("A"))], "FULL")
    assert time.monotonic() - start < 20


def test_a_consumer_only_has_to_be_able_to_read() -> None:
    old, wider = [(0, avro(ONE)), (1, avro(record(field("a", "long"))))], avro(record(field("a", "double")))
    for strategy in ("BACKWARD", "FORWARD", "FULL", "FORWARD_TRANSITIVE", "BACKWARD_TRANSITIVE", "ALWAYS_COMPATIBLE"):
        compatibility.check_reader(wider, old, strategy)
    with pytest.raises(IncompatibleSchema):
        compatibility.check_reader(wider, old, "FULL_TRANSITIVE")
    with pytest.raises(IncompatibleSchema):
        compatibility.check_reader(avro(ONE), old, "FORWARD")


# -- other types


def test_another_type_is_incompatible() -> None:
    assert allowed(Schema(SchemaType.INT32), Schema(SchemaType.STRING)) == {"ALWAYS_COMPATIBLE"}
    assert allowed(avro(ONE, SchemaType.JSON), avro(ONE)) == {"ALWAYS_COMPATIBLE"}
    text = refusal(Schema(SchemaType.INT32), Schema(SchemaType.STRING))
    assert text == "the schema is of type INT32, version 0 is STRING"


def test_types_without_a_definition_are_compatible() -> None:
    assert allowed(Schema(SchemaType.INT64), Schema(SchemaType.INT64)) == ALL
    assert allowed(Schema(SchemaType.EXTERNAL, b"1"), Schema(SchemaType.EXTERNAL, b"2")) == ALL


def test_key_and_value_are_compared_one_by_one() -> None:
    old = pair(avro(ONE), avro(ONE, SchemaType.JSON))
    assert allowed(pair(avro(WITH_DEFAULT), avro(ONE, SchemaType.JSON)), old) == ALL
    assert allowed(pair(avro(ONE), avro(WITHOUT_DEFAULT, SchemaType.JSON)), old) == FORWARD
    assert "value: it cannot read" in refusal(pair(avro(ONE), avro(WITHOUT_DEFAULT, SchemaType.JSON)), old)
    assert "its key is of type STRING, not AVRO" in refusal(pair(Schema(SchemaType.STRING), avro(ONE)), old)


def test_protobuf_native_keeps_its_message_type() -> None:
    assert allowed(native("shop.Order", package="shop"), native("shop.Order")) == ALL
    assert "its message is shop.Invoice, not shop.Order" in refusal(native("shop.Invoice"), native("shop.Order"))


def test_json_schema_documents_of_old_clients() -> None:
    def jackson(id: str) -> Schema:
        return avro({"type": "object", "id": id, "properties": {"a": {"type": "integer"}}}, SchemaType.JSON)

    definition.check(jackson("urn:a"))
    assert allowed(jackson("urn:a"), jackson("urn:a")) == ALL
    assert allowed(avro(ONE, SchemaType.JSON), jackson("urn:a")) == ALL
    assert allowed(jackson("urn:a"), avro(ONE, SchemaType.JSON)) == ALL
    assert "its id is urn:b, not urn:a" in refusal(jackson("urn:b"), jackson("urn:a"))


# -- verdicts of Apache Pulsar's broker

VERDICTS = [json.loads(line) for line in (Path(__file__).parent / "avro_verdicts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("verdict", VERDICTS, ids=range(len(VERDICTS)))
def test_verdicts_of_the_java_library_that_apache_pulsar_uses(verdict: dict[str, Any]) -> None:
    """Random pairs with the verdicts of `SchemaValidator` and `Schema.equals` of Avro 1.12 for Java."""
    new, old = avro(verdict["new"]), avro(verdict["old"])
    found = allowed(new, old)
    assert ("BACKWARD" in found, "FORWARD" in found) == (verdict["backward"], verdict["forward"])
    assert ("FULL" in found) == (verdict["backward"] and verdict["forward"])
    assert are_same(new, old) == verdict["same"]
