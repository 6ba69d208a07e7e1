"""Payloads as their schemas describe them, and hostile ones."""

from __future__ import annotations

import base64
import io
import json
import struct
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from magnetar.schema import values
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import Schema, SchemaType
from magnetar.schema.values import UndecodableValue, decode_value

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}},
        {"name": "weight", "type": "double"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {"name": "parent", "type": ["null", "Order"]},
    ],
}


def avro(definition: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return out.getvalue()


def avro_schema(definition: object) -> Schema:
    return Schema(SchemaType.AVRO, json.dumps(definition).encode())


def order(**changes: Any) -> dict[str, Any]:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    return {
        "id": -7,
        "name": "Ada",
        "paid": True,
        "price": Decimal("-12345678901234567890123456789012.05"),
        "weight": 1.5,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "state": "SENT",
        "tags": ["a", "b"],
        "counts": {"x": 1},
        "raw": b"\x00\xff",
        "parent": None,
        **changes,
    }


def test_avro() -> None:
    shown = decode_value(avro_schema(ORDER), avro(ORDER, order(parent=order(name=None))))
    assert shown.pop("parent")["name"] is None
    assert shown == {
        "id": -7,
        "name": "Ada",
        "paid": True,
        "price": "-12345678901234567890123456789012.05",
        "weight": 1.5,
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00Z",
        "state": "SENT",
        "tags": ["a", "b"],
        "counts": {"x": 1},
        "raw": "base64:AP8=",
    }


@pytest.mark.parametrize(
    ("type_", "payload", "shown"),
    [
        (SchemaType.STRING, "ü".encode(), "ü"),
        (SchemaType.BOOLEAN, b"\x01", True),
        (SchemaType.INT8, b"\xff", -1),
        (SchemaType.INT16, b"\x01\x00", 256),
        (SchemaType.INT32, struct.pack(">i", -5), -5),
        (SchemaType.INT64, struct.pack(">q", 1 << 40), 1 << 40),
        (SchemaType.DOUBLE, struct.pack(">d", 0.5), 0.5),
        (SchemaType.DOUBLE, struct.pack(">d", float("inf")), "inf"),
        (SchemaType.TIMESTAMP, struct.pack(">q", 1500), "1970-01-01T00:00:01.500000Z"),
        (SchemaType.INSTANT, struct.pack(">qi", 1, 5000), "1970-01-01T00:00:01.000005Z"),
        (SchemaType.LOCAL_DATE, struct.pack(">q", 1), "1970-01-02"),
        (SchemaType.LOCAL_TIME, struct.pack(">q", 3_600_000_000_001), "01:00:00.000000001"),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", 1, 0), "1970-01-02T00:00:00"),
        (SchemaType.BYTES, b"\x00", "base64:AA=="),
        (SchemaType.JSON, b'{"a": [1]}', {"a": [1]}),
    ],
)
def test_plain_types(type_: SchemaType, payload: bytes, shown: object) -> None:
    assert decode_value(Schema(type_), payload) == shown


def proto() -> tuple[FileDescriptorSet, bytes]:
    """message Order { int64 id = 1; string name = 2; repeated Line lines = 3; } and a value of it."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    line = file.message_type.add(name="Line")
    line.field.add(name="item", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=1)
    message.field.add(name="name", number=2, type=FieldDescriptorProto.TYPE_STRING, label=1)
    message.field.add(name="lines", number=3, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".shop.Line", label=3)
    return FileDescriptorSet(file=[file]), b"\x08\x07\x12\x03Ada\x1a\x05\x0a\x03cup"


def test_protobuf_native() -> None:
    files, payload = proto()
    definition = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": "shop.Order",
        "rootFileDescriptorName": "shop.proto",
    }
    schema = Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(definition).encode())
    assert decode_value(schema, payload) == {"id": "7", "name": "Ada", "lines": [{"item": "cup"}]}
    with pytest.raises(UndecodableValue, match="Protobuf"):
        decode_value(schema, b"\x12\xff")


def test_protobuf_by_the_numbers_of_its_fields() -> None:
    _, payload = proto()
    fields = [
        {"number": 1, "name": "id", "type": "INT64", "label": "LABEL_OPTIONAL", "definition": None},
        {"number": 2, "name": "name", "type": "STRING", "label": "LABEL_OPTIONAL", "definition": None},
        {"number": 3, "name": "lines", "type": "MESSAGE", "label": "LABEL_REPEATED", "definition": None},
    ]
    schema = Schema(SchemaType.PROTOBUF, b"{}", {"__PARSING_INFO__": json.dumps(fields)})
    assert decode_value(schema, payload) == {"id": "7", "name": "Ada", "lines": ["CgNjdXA="]}
    with pytest.raises(UndecodableValue, match="__PARSING_INFO__"):
        decode_value(Schema(SchemaType.PROTOBUF, b"{}"), payload)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_pairs_of_key_and_value(encoding: str) -> None:
    definition = json.dumps(ORDER).encode()
    properties = {"key.schema.type": "INT32", "value.schema.type": "AVRO", "kv.encoding.type": encoding}
    schema = Schema(SchemaType.KEY_VALUE, encode_key_value(b"", definition), properties)
    key, value = struct.pack(">i", 3), avro(ORDER, order())
    payload = encode_key_value(key, value) if encoding == "INLINE" else value
    shown = decode_value(schema, payload, key)
    assert (shown["key"], shown["value"]["name"]) == (3, "Ada")


@pytest.mark.parametrize(
    ("schema", "payload", "words"),
    [
        (avro_schema(ORDER), b"\x01", "Avro needs"),
        (avro_schema("int"), b"\x02\x02", "1 bytes are left"),
        (avro_schema(["null", "int"]), b"\x08", "member of a union 4"),
        (avro_schema("long"), b"\xff" * 12, "longer than 10 bytes"),
        (avro_schema("string"), b"\x01", "Avro needs -1"),
        (Schema(SchemaType.AVRO, b"{"), b"", "not JSON"),
        (Schema(SchemaType.JSON), b"not json", "JSON"),
        (Schema(SchemaType.JSON), b"[" * 100_000, "Recursion"),
        (Schema(SchemaType.INT32), b"\x01", "4 bytes"),
        (Schema(SchemaType.LOCAL_DATE), b"\x7f" * 8, "Overflow"),
        (Schema(SchemaType.EXTERNAL), b"", "EXTERNAL"),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"[]"), b"", "not an object"),
        (Schema(SchemaType.PROTOBUF, b"", {"__PARSING_INFO__": "[1]"}), b"", "TypeError"),
        (Schema(SchemaType.KEY_VALUE, b"\x00"), b"", "KEY_VALUE"),
    ],
)
def test_what_cannot_be_decoded_has_a_reason(schema: Schema, payload: bytes, words: str) -> None:
    with pytest.raises(UndecodableValue, match=words):
        decode_value(schema, payload)


def test_bound_decoded_values_of_a_few_bytes_that_claim_many() -> None:
    many_nulls = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x00"  # half of all longs
    with pytest.raises(UndecodableValue, match=f"more than {values.VALUES_MAX} values"):
        decode_value(avro_schema({"type": "array", "items": "null"}), many_nulls)
    endless = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    with pytest.raises(UndecodableValue, match="more than 100 levels"):
        decode_value(avro_schema(endless), b"")


TYPES = st.sampled_from([Schema(type_, b"{}") for type_ in SchemaType] + [avro_schema(ORDER), avro_schema("string")])


@given(schema=TYPES, payload=st.binary(max_size=100))
def test_any_payload_is_a_value_or_has_a_reason(schema: Schema, payload: bytes) -> None:
    try:
        json.dumps(decode_value(schema, payload))
    except UndecodableValue as error:
        assert str(error)
