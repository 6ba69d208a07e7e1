"""Compatibility: every strategy, every type, and malformed definitions."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.schema import avro as avro_definition
from magnetar.broker.schema import compatibility, definition
from magnetar.broker.schema.definition import are_same, key_and_value
from magnetar.errors import IncompatibleSchema, InvalidSchema, MagnetarError
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType

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


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def avro(definition: Any, type: SchemaType = SchemaType.AVRO) -> Schema:
    return Schema(type, json.dumps(definition).encode())


def pair(key: Schema, value: Schema) -> Schema:
    types = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
    return Schema(SchemaType.KEY_VALUE, encode_key_value(key.data, value.data), types)


def native(message: str, file: str = "a.proto", package: str = "shop", **other: Any) -> Schema:
    proto = FileDescriptorProto(name="a.proto", package=package, dependency=other.get("dependency", []))
    order = proto.message_type.add(name="Order")
    order.nested_type.add(name="Line")
    proto.message_type.add(name="Invoice")
    described = {
        "fileDescriptorSet": base64.b64encode(FileDescriptorSet(file=[proto]).SerializeToString()).decode(),
        "rootMessageTypeName": message,
        "rootFileDescriptorName": file,
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(described).encode())


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

ONE = record(field("a"))
WITH_DEFAULT = record(field("a"), field("b", default=1))
WITHOUT_DEFAULT = record(field("a"), field("b"))


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


def test_a_comparison_that_takes_too_long_is_aborted() -> None:
    def union(prefix: str) -> Schema:
        branches = [record(field(f"x{index}"), name=f"{prefix}{index}") for index in range(400)]
        return avro(record(field("u", branches)))

    start = time.monotonic()
    with pytest.raises(InvalidSchema, match=f"more than {avro_definition.COMPARISONS_MAX} comparisons"):
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


# -- well formed


@pytest.mark.parametrize(
    "good",
    [
        *(Schema(type) for type in PRIMITIVE),
        Schema(SchemaType.STRING, b"null"),  # as the Python client writes it
        avro("string"),
        avro(record(name="Outer$Inner", namespace="com.example")),
        avro(record(field("größe"))),
        avro(record(field("when", {"type": "long", "logicalType": "local-timestamp-nanos"}))),
        avro(record(field("d", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}))),
        avro(record(field("bad", "int", default="not a number"))),  # Apache Pulsar does not check defaults
        avro(["null", "string"], SchemaType.JSON),
        native("shop.Order"),
        native("shop.Order.Line"),
        native("Order", package=""),
        pair(Schema(SchemaType.STRING), avro(ONE)),
        pair(Schema(SchemaType.BYTES), Schema(SchemaType.INT32)),
        Schema(SchemaType.KEY_VALUE, b"\xff\xff\xff\xff" * 2, {"key.schema.type": "STRING"}),  # as the C++ client does
        Schema(SchemaType.EXTERNAL, b"\xff\x00"),
    ],
)
def test_accepted_definitions(good: Schema) -> None:
    definition.check(good)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Schema(SchemaType.AVRO, b""), "AVRO schema is not a valid Avro definition"),
        (Schema(SchemaType.AVRO, b"\xff"), "not a valid Avro definition"),
        (Schema(SchemaType.JSON, b"{"), "JSON schema is not a valid Avro definition"),
        (Schema(SchemaType.PROTOBUF, b"[]]"), "PROTOBUF schema is not a valid Avro definition"),
        (avro({"type": {"type": "string"}}), "not a valid Avro definition"),
        (avro({"type": "object"}), "Undefined type: object"),
        (avro(record(field("a b"))), "name 'a b' is not made of letters"),
        (avro(record(field("1a"))), "name '1a'"),
        (avro(record(field("a"), field("a"))), "already in use"),
        (avro(record(field("a", "Missing"))), "Missing"),
        (avro(record(field("a", ["null", "R", "R"]))), "a union has two branches of one name"),
        (Schema(SchemaType.AVRO, b'{"type": "record", "\\u006eame": "R S", "fields": []}'), "name 'R S'"),
        (avro(["null", "string"]), "AVRO schema is a union"),
        (Schema(SchemaType.AVRO, b"[" * 100_000), "nested too deeply"),
        (Schema(SchemaType.INT32, b"x"), "INT32 schema has no definition, but 1 bytes are given"),
        (Schema(SchemaType.STRING, b'"s"'), "STRING schema has no definition"),
        (Schema(SchemaType.AUTO_CONSUME), "AUTO_CONSUME schema is for consumers only"),
        (
            Schema(SchemaType.AVRO, b" " * (definition.SCHEMA_SIZE_MAX + 1)),
            "1048577 bytes exceeds the limit of 1048576",
        ),
        (
            avro(record(*(field(f"f{i}") for i in range(avro_definition.NAMES_MAX)))),
            "it has 5001 names, the limit is 5000",
        ),
        (Schema(SchemaType.KEY_VALUE, b""), "ends before the length of the key"),
        (Schema(SchemaType.KEY_VALUE, b"\0\0\0\5abc"), "ends before the 5 bytes of the key"),
        (Schema(SchemaType.KEY_VALUE, b"\0" * 9), "1 bytes after the value"),
        (
            Schema(SchemaType.KEY_VALUE, b"\0" * 8, {"key.schema.type": "NONSENSE"}),
            "unknown key.schema.type 'NONSENSE'",
        ),
        (
            Schema(SchemaType.KEY_VALUE, b"\0" * 8, {"value.schema.properties": "{"}),
            "malformed value.schema.properties",
        ),
        (pair(Schema(SchemaType.STRING), Schema(SchemaType.AVRO, b"{")), "AVRO schema is not a valid"),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"{}"), "fileDescriptorSet"),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"nonsense"), "cannot be read"),
        (native("shop.Nothing"), "no message 'shop.Nothing' in file 'a.proto'"),
        (native("shop.Order", file="b.proto"), "lacks the file 'b.proto'"),
        (native("shop.Order", dependency=["c.proto"]), "lacks the file 'c.proto'"),
    ],
)
def test_rejected_definitions(bad: Schema, reason: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        definition.check(bad)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 500
    assert refused.value.wire_code == 18
    assert refused.value.http_status == 422


@given(st.sampled_from(SchemaType), st.binary(max_size=60), st.dictionaries(st.text(max_size=20), st.text(max_size=9)))
def test_any_input_is_accepted_or_refused(type: SchemaType, data: bytes, properties: dict[str, str]) -> None:
    given_schema = Schema(type, data, properties)
    try:
        definition.check(given_schema)
    except MagnetarError:
        return
    assert are_same(given_schema, given_schema)
    compatibility.check(given_schema, [(0, given_schema)], "FULL_TRANSITIVE")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["string", "int", "record", "array", "map", "enum", "fixed", "error", "error_union", "R", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "logicalType"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(_json, _json)
def test_odd_definitions_are_accepted_or_rejected(one: Any, other: Any) -> None:
    schemas = [avro(one), avro(other), avro(record(field("x", one))), avro(record(field("x", other)))]
    for new in schemas:
        for old in schemas:
            try:
                definition.check(new)
                definition.check(old)
                are_same(new, old)
                compatibility.check(new, [(0, old)], "FULL")
            except MagnetarError:
                continue


# -- equality


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (avro(ONE), Schema(SchemaType.AVRO, json.dumps(ONE, indent=4).encode()), True),
        (avro(ONE), avro(dict(reversed(ONE.items()))), True),
        (avro(ONE), avro(record(field("a", doc="the first"), doc="of things", aliases=["Q"])), True),
        (avro(ONE), avro(record(field("a", {"type": "int"}))), True),
        (avro(ONE), avro(record(field("a", default=1))), False),
        (avro(ONE), avro(record(field("a"), name="Q")), False),
        (avro(ONE), avro(record(field("a"), namespace="n")), False),
        (avro(ONE), avro(ONE, SchemaType.JSON), False),
        (avro(WITH_DEFAULT), avro(record(*reversed(WITH_DEFAULT["fields"]))), False),
        (Schema(SchemaType.STRING), Schema(SchemaType.STRING, b"null"), True),
        (Schema(SchemaType.STRING), Schema(SchemaType.BYTES), False),
        (Schema(SchemaType.EXTERNAL, b"1"), Schema(SchemaType.EXTERNAL, b"2"), False),
        (
            pair(avro(ONE), Schema(SchemaType.STRING)),
            pair(Schema(SchemaType.AVRO, json.dumps(ONE, indent=4).encode()), Schema(SchemaType.STRING, b"null")),
            True,
        ),
        (  # the same bytes
            pair(Schema(SchemaType.STRING), Schema(SchemaType.INT32)),
            pair(Schema(SchemaType.INT32), Schema(SchemaType.STRING)),
            False,
        ),
    ],
)
def test_equal_schemas(one: Schema, other: Schema, same: bool) -> None:
    assert are_same(one, other) == are_same(other, one) == same


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_key_and_value_round_trip(key: bytes, value: bytes) -> None:
    both = Schema(SchemaType.KEY_VALUE, encode_key_value(key, value), {"key.schema.type": "AVRO"})
    assert key_and_value(both) == (Schema(SchemaType.AVRO, key), Schema(SchemaType.BYTES, value))


def test_a_key_value_inside_a_key_value() -> None:
    inner = pair(Schema(SchemaType.STRING), avro(ONE))
    outer = Schema(
        SchemaType.KEY_VALUE,
        encode_key_value(b"", inner.data),
        {
            "key.schema.type": "INT32",
            "value.schema.type": "KEY_VALUE",
            "value.schema.properties": json.dumps(inner.properties),
        },
    )
    definition.check(outer)
    assert key_and_value(key_and_value(outer)[1]) == (Schema(SchemaType.STRING), avro(ONE))


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
