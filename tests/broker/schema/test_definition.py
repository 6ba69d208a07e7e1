"""Definitions of every type: well formed or refused, equal or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.schema import avro as avro_definition
from magnetar.broker.schema import compatibility, definition
from magnetar.broker.schema.definition import are_same, key_and_value
from magnetar.errors import InvalidSchema, MagnetarError
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType
from tests.broker.schema.builders import ONE, WITH_DEFAULT, avro, field, native, pair, record

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


def test_bound_schema_size() -> None:
    with pytest.raises(InvalidSchema, match="1048577 bytes exceeds the limit of 1048576"):
        definition.check(Schema(SchemaType.AVRO, b" " * (definition.SCHEMA_SIZE_MAX + 1)))
    definition.check(Schema(SchemaType.AVRO, b'"string"' + b" " * (definition.SCHEMA_SIZE_MAX - 8)))


def test_bound_schema_names() -> None:
    fields = [field(f"f{number}") for number in range(avro_definition.NAMES_MAX)]
    with pytest.raises(InvalidSchema, match="it has 2001 names, the limit is 2000"):
        definition.check(avro(record(*fields)))
    definition.check(avro(record(*fields[1:])))
