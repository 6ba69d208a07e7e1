"""SP1: typed columns are encoded by the topic's schema, and decode to the same columns."""

from __future__ import annotations

import datetime
import io
import json
import struct
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulsar.schema import AvroSchema, Boolean, Double, Integer, JsonSchema, Long, Record, String
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.client.schema import Schema
from magnetar.spark.codec.avro.fields import UnsupportedSchema
from magnetar.spark.codec.frame_schema import schema_of
from magnetar.spark.codec.value_decoder import ValueDecoder, fields_of
from magnetar.spark.codec.value_encoder import UnencodableValue, ValueEncoder
from magnetar.spark.errors import InvalidOption

UTC = datetime.UTC


def schema(definition: Any, type: str = "AVRO") -> Schema:
    return Schema(type=type, data=json.dumps(definition).encode())


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}


def batch_of(of: Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """A batch as Spark passes it."""
    return pa.RecordBatch.from_pylist(rows, to_arrow_schema(spark.StructType(fields_of(of)), timezone="UTC"))


def payloads_of(encoder: ValueEncoder, batch: pa.RecordBatch) -> list[bytes | None]:
    payloads: list[bytes | None] = encoder.encode(batch).to_pylist()
    return payloads


def encode(of: Schema, rows: list[dict[str, Any]]) -> list[bytes | None]:
    return payloads_of(ValueEncoder(of), batch_of(of, rows))


def read(of: Schema, payloads: list[bytes | None], keys: list[bytes | None] | None = None) -> list[dict[str, Any]]:
    of_keys = None if keys is None else pa.array(keys, pa.binary())
    columns, errors = ValueDecoder(of, lambda _: None).decode(pa.array(payloads, pa.binary()), None, keys=of_keys)
    assert errors == {}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return batch.to_pylist(maps_as_pydicts="strict")


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name} | more


INNER = record(("x", "long"), ("y", ["string", "null"]), name="Inner")
WIDE = record(
    ("i", "int"),
    ("l", ["null", "long"]),
    ("s", ["null", "string"]),
    ("by", ["null", "bytes"]),
    ("fl", ["null", "float"]),
    ("d", "double"),
    ("b", ["boolean", "null"]),
    ("e", ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]),
    ("u", ["string", "null", "long"]),
    ("r", ["null", INNER]),
    ("date", ["null", logical("int", "date")]),
    ("tm", ["null", logical("int", "time-millis")]),
    ("tu", ["null", logical("long", "time-micros")]),
    ("ms", ["null", logical("long", "timestamp-millis")]),
    ("us", ["null", logical("long", "timestamp-micros")]),
    ("ns", ["null", logical("long", "timestamp-nanos")]),
    ("lms", ["null", logical("long", "local-timestamp-millis")]),
    ("lus", ["null", logical("long", "local-timestamp-micros")]),
    ("dec", ["null", logical("bytes", "decimal", precision=38, scale=6)]),
    ("id", ["null", logical("string", "uuid")]),
)
FIXED = (
    ("fx", {"type": "fixed", "name": "Fx", "size": 2}),
    ("fd", ["null", {"type": "fixed", "name": "Fd", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}]),
    ("fu", ["null", {"type": "fixed", "name": "Fu", "size": 16, "logicalType": "uuid"}]),
)
NESTED = (
    ("list", ["null", {"type": "array", "items": ["null", logical("long", "timestamp-millis")]}]),
    ("map", ["null", {"type": "map", "values": ["string", record(("q", ["null", "int"]), name="Q")]}]),
)
WITH_FIXED = record(*((each["name"], each["type"]) for each in WIDE["fields"]), *FIXED)
WITH_NESTED = record(*((each["name"], each["type"]) for each in WITH_FIXED["fields"]), *NESTED)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
moments = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
millis = moments.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
members = st.one_of(
    text.map(lambda each: {"member0": each, "member1": None}),
    longs.map(lambda each: {"member0": None, "member1": each}),
)
ROWS = {
    "i": st.integers(-(1 << 31), (1 << 31) - 1),
    "l": st.none() | longs,
    "s": st.none() | text,
    "by": st.none() | st.binary(max_size=9),
    "fl": st.none() | st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False),
    "b": st.none() | st.booleans(),
    "e": st.none() | st.sampled_from("AB"),
    "u": st.none() | members,
    "r": st.none() | st.fixed_dictionaries({"x": longs, "y": st.none() | text}),
    "date": st.none() | st.dates(),
    "tm": st.none() | st.times().map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
    "tu": st.none() | st.times(),
    "ms": st.none() | millis.map(lambda each: each.replace(tzinfo=UTC)),
    "us": st.none() | moments.map(lambda each: each.replace(tzinfo=UTC)),
    "ns": st.none() | moments.map(lambda each: each.replace(tzinfo=UTC)),
    "lms": st.none() | millis,
    "lus": st.none() | moments,
    "dec": st.none() | st.integers(1 - 10**38, 10**38 - 1).map(lambda each: Decimal((each < 0, _digits(each), -6))),
    "id": st.none() | st.uuids().map(str),
    "fx": st.binary(min_size=2, max_size=2),
    "fd": st.none() | st.decimals(-9999999, 9999999, places=2),
    "fu": st.none() | st.uuids().map(str),
    "list": st.none() | st.lists(st.none() | millis.map(lambda each: each.replace(tzinfo=UTC)), max_size=3),
    "map": st.none()
    | st.dictionaries(
        text,
        text.map(lambda each: {"member0": each, "member1": None})
        | st.integers(0, 9).map(lambda each: {"member0": None, "member1": {"q": each}}),
        max_size=3,
    ),
}


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


@pytest.mark.parametrize("definition", [WIDE, WITH_FIXED, WITH_NESTED], ids=["wide", "fixed", "nested"])
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_sp1_columns_round_trip(definition: dict[str, Any], kind: str, data: st.DataObject) -> None:
    of = schema(definition, kind)
    strategy = st.fixed_dictionaries({each["name"]: ROWS[each["name"]] for each in definition["fields"]})
    rows = data.draw(st.lists(strategy, max_size=5))
    payloads = encode(of, rows)
    assert len(payloads) == len(rows)
    assert read(of, payloads) == rows


@settings(max_examples=30, deadline=None)
@given(st.lists(st.fixed_dictionaries({name: ROWS[name] for name in ("i", "l", "s", "by", "d", "b", "e", "r")})))
def test_sp1_avro_equals_fastavros(rows: list[dict[str, Any]]) -> None:
    definition = record(*((each["name"], each["type"]) for each in WIDE["fields"] if each["name"] in "ilsbydber"))
    definition["fields"] = [each for each in definition["fields"] if each["name"] not in ("u", "fl")]
    parsed = fastavro.parse_schema(json.loads(json.dumps(definition)))
    expected = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        expected.append(out.getvalue())
    assert encode(schema(definition), rows) == expected


class Order(Record):
    customer = String()
    pieces = Integer()
    total = Long(required=True)
    price = Double()
    paid = Boolean()


@pytest.mark.parametrize(("made", "kind"), [(AvroSchema(Order), "AVRO"), (JsonSchema(Order), "JSON")])
def test_sp1_the_official_client_can_read_it(made: Any, kind: str) -> None:
    of = Schema(type=kind, data=made.schema_info().schema().encode())
    row = {"customer": "größer", "pieces": None, "total": 1 << 40, "price": 0.1, "paid": True}
    (payload,) = encode(of, [row])
    order = made.decode(payload)
    assert {name: getattr(order, name) for name in row} == row


def test_sp1_json_equals_javas() -> None:
    of = schema(
        record(
            ("n", ["null", "int"]),
            ("by", "bytes"),
            ("f", "double"),
            ("ms", logical("long", "timestamp-millis")),
            ("dec", logical("bytes", "decimal", precision=5, scale=2)),
        ),
        "JSON",
    )
    row = {"by": b"\x00\xff", "f": float("nan"), "ms": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
    (payload,) = encode(of, [row | {"n": None, "dec": Decimal("1.50")}])
    assert payload == b'{"by":"AP8=","f":"NaN","ms":1000,"dec":1.50}'
    assert encode(schema(record(("f", "float")), "JSON"), [{"f": float("-inf")}]) == [b'{"f":"-Infinity"}']


def test_a_record_without_fields() -> None:
    for kind, payload in (("JSON", b"{}"), ("AVRO", b"")):
        batch = pa.RecordBatch.from_pylist([{"__key": b"a"}, {"__key": b"b"}])
        assert payloads_of(ValueEncoder(schema(record(), kind)), batch) == [payload, payload]


@pytest.mark.parametrize(
    ("type", "value", "payload"),
    [
        ("STRING", "größer", "größer".encode()),
        ("BOOLEAN", True, b"\x01"),
        ("BOOLEAN", False, b"\x00"),
        ("INT8", -1, b"\xff"),
        ("INT16", -2, b"\xff\xfe"),
        ("INT32", 1, b"\x00\x00\x00\x01"),
        ("INT64", -(1 << 63), b"\x80" + bytes(7)),
        ("FLOAT", 1.5, b"\x3f\xc0\x00\x00"),
        ("DOUBLE", 1.5, b"\x3f\xf8" + bytes(6)),
        ("DATE", datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), struct.pack(">q", -1)),
        ("TIME", datetime.datetime(1970, 1, 1, 0, 0, 1, 0, UTC), struct.pack(">q", 1000)),
        ("TIMESTAMP", datetime.datetime(1970, 1, 1, 0, 0, 1, 0, UTC), struct.pack(">q", 1000)),
        ("INSTANT", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), struct.pack(">qi", -1, 999_999_000)),
        ("LOCAL_DATE", datetime.date(1969, 12, 31), struct.pack(">q", -1)),
        ("LOCAL_TIME", datetime.time(1, 0, 0, 1), struct.pack(">q", 3_600_000_001_000)),
        ("LOCAL_DATE_TIME", datetime.datetime(1969, 12, 31, 1), struct.pack(">qq", -1, 3_600_000_000_000)),
        ("BYTES", b"\x00", b"\x00"),
        ("PROTOBUF", b"\x00", b"\x00"),
    ],
)
def test_sp1_primitives_equal_javas(type: str, value: Any, payload: bytes) -> None:
    of = Schema(type=type)
    assert encode(of, [{"value": value}, {"value": None}]) == [payload, None]
    assert read(of, [payload, None]) == [{"value": value}, {"value": None}]
    assert encode(of, []) == []


def pair_schema(encoding: str) -> Schema:
    value = json.dumps(record(("x", "int"), ("y", ["null", "string"]))).encode()
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": encoding}
    return Schema(type="KEY_VALUE", data=struct.pack(">ii", 0, len(value)) + value, properties=properties)


PAIRS: list[dict[str, Any]] = [
    {"key": "k", "value": {"x": 1, "y": "a"}},
    {"key": None, "value": {"x": 2, "y": None}},
    {"key": "j", "value": None},
]


def test_sp1_key_and_value() -> None:
    inline, apart = pair_schema("INLINE"), pair_schema("SEPARATED")
    payloads = encode(inline, PAIRS)
    assert payloads[0] == struct.pack(">i", 1) + b"k" + struct.pack(">i", 4) + b"\x02\x02\x02a"
    assert read(inline, payloads) == PAIRS
    encoder = ValueEncoder(apart)
    batch = batch_of(apart, PAIRS)
    assert encoder.has_keys and not ValueEncoder(inline).has_keys
    assert encoder.encode_keys(batch) == [b"k", None, b"j"]
    assert read(apart, payloads_of(encoder, batch), encoder.encode_keys(batch)) == PAIRS


# -- rejected columns


def test_missing_invalid_and_extra_columns() -> None:
    encoder = ValueEncoder(schema(record(("x", "int"), ("y", ["null", "string"]))))
    good: dict[str, pa.Array] = {"x": pa.array([1], pa.int32()), "y": pa.array(["a"])}

    def rejected(columns: dict[str, pa.Array]) -> str:
        with pytest.raises(InvalidOption) as caught:
            encoder.encode(pa.RecordBatch.from_pydict(columns))
        return str(caught.value)

    assert rejected({"y": good["y"]}) == "column 'x' is missing: the topic's schema requires it as int"
    wrong = good | {"x": pa.array(["1"])}
    assert rejected(wrong) == "column 'x' is string, but the topic's schema has int"
    assert "column 'x' is bigint, but" in rejected(good | {"x": pa.array([1], pa.int64())})
    assert "column 'y' is array<string>, but" in rejected(good | {"y": pa.array([["a"]])})
    assert rejected(good | {"z": good["y"]}) == "column 'z' is not in the topic's schema, which has x, y"
    assert payloads_of(encoder, pa.RecordBatch.from_pydict(good | {"__key": good["y"]})) == [b"\x02\x02\x02a"]


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("int", pa.array([7], pa.int8()), 7),
        ("long", pa.array([7], pa.int32()), 7),
        ("double", pa.array([1.5], pa.float32()), 1.5),
        ("string", pa.array(["a"], pa.large_string()), "a"),
        ("bytes", pa.array([b"a"], pa.large_binary()), b"a"),
        (
            logical("long", "timestamp-micros"),
            pa.array([5], pa.timestamp("us", tz="Europe/Berlin")),
            datetime.datetime(1970, 1, 1, 0, 0, 0, 5, UTC),
        ),
        (
            logical("bytes", "decimal", precision=9, scale=3),
            pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
            Decimal("1.500"),
        ),
        (
            {"type": "array", "items": "int"},
            pa.array([[1]], pa.list_(pa.field("item", pa.int32(), nullable=False))),
            [1],
        ),
    ],
)
def test_a_narrower_type_is_accepted(kind: Any, column: pa.Array, value: Any) -> None:
    of = schema(record(("x", kind)))
    assert read(of, payloads_of(ValueEncoder(of), pa.RecordBatch.from_arrays([column], names=["x"]))) == [{"x": value}]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("int", None, "column 'x' is null, but the topic's schema has int without null"),
        (INNER, {"x": None, "y": None}, "column 'x'.x is null, but the topic's schema has long without null"),
        (["int", "string"], {"member0": None, "member1": None}, "exactly one of its members must be set"),
        (["int", "string"], {"member0": 1, "member1": "a"}, "exactly one of its members must be set"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "column 'x': 'B' is not one of the symbols A"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            b"a",
            "column 'x': a value has 1 bytes, but the topic's schema has 2",
        ),
        (
            logical("int", "time-millis"),
            datetime.time(0, 0, 0, 1),
            "column 'x': a value is too precise for time-millis",
        ),
        (
            logical("long", "timestamp-millis"),
            datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
            "column 'x': a value is too precise for timestamp-millis",
        ),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "no uuid", "column 'x'"),
    ],
)
def test_a_value_outside_the_schema(kind: Any, value: Any, text: str) -> None:
    with pytest.raises(UnencodableValue) as caught:
        encode(schema(record(("x", kind))), [{"x": value}])
    assert text in str(caught.value)


def test_null_is_rejected_in_json_and_in_collections_too() -> None:
    for kind in ("JSON", "AVRO"):
        with pytest.raises(UnencodableValue, match="column 'x' is null"):
            encode(schema(record(("x", {"type": "array", "items": "int"})), kind), [{"x": [1]}, {"x": None}])
        with pytest.raises(UnencodableValue):
            encode(schema(record(("x", {"type": "array", "items": "int"})), kind), [{"x": [None]}])


@pytest.mark.parametrize("kind", ["JSON", "AVRO"])
def test_another_symbol_is_rejected_wherever_an_enum_is(kind: str) -> None:
    enum = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
    for type_, good, bad in (
        (enum, "RED", "PINK"),
        (["null", enum], None, "PINK"),
        ({"type": "array", "items": enum}, ["RED"], ["GREEN", "PINK"]),
        (record(("color", enum), name="Inner"), {"color": "GREEN"}, {"color": "PINK"}),
    ):
        of = schema(record(("x", type_)), kind)
        encode(of, [{"x": good}])
        with pytest.raises(UnencodableValue):
            encode(of, [{"x": good}, {"x": bad}])


def test_a_slice_of_a_larger_batch() -> None:
    of = schema(WITH_NESTED)
    rows = [
        dict.fromkeys(ROWS)
        | {"i": row, "d": 0.5, "fx": b"ab", "s": str(row), "list": [None] * row, "id": str(uuid.UUID(int=1))}
        for row in range(5)
    ]
    batch = batch_of(of, rows).slice(2, 2)
    assert read(of, payloads_of(ValueEncoder(of), batch)) == rows[2:4]
    of = Schema(type="INT32")
    assert payloads_of(ValueEncoder(of), batch_of(of, [{"value": row} for row in range(5)]).slice(2, 1)) == [
        b"\0\0\0\2"
    ]


# -- schema of a frame

FRAME = spark.StructType(
    [
        spark.StructField("byte", spark.ByteType()),
        spark.StructField("short", spark.ShortType()),
        spark.StructField("int", spark.IntegerType()),
        spark.StructField("long", spark.LongType(), nullable=False),
        spark.StructField("float", spark.FloatType()),
        spark.StructField("double", spark.DoubleType()),
        spark.StructField("text", spark.StringType()),
        spark.StructField("bytes", spark.BinaryType()),
        spark.StructField("flag", spark.BooleanType()),
        spark.StructField("date", spark.DateType()),
        spark.StructField("time", spark.TimeType()),
        spark.StructField("at", spark.TimestampType()),
        spark.StructField("local", spark.TimestampNTZType()),
        spark.StructField("price", spark.DecimalType(12, 2)),
        spark.StructField("tags", spark.ArrayType(spark.StringType())),
        spark.StructField("map", spark.MapType(spark.StringType(), spark.ArrayType(spark.LongType()))),
        spark.StructField(
            "inner", spark.StructType([spark.StructField("tags", spark.ArrayType(spark.StructType([])))])
        ),
        spark.StructField("nothing", spark.NullType()),
        spark.StructField("__key", spark.BinaryType()),
    ]
)
FRAME_ROW = {
    "byte": 1,
    "short": 2,
    "int": 3,
    "long": 4,
    "float": 0.5,
    "double": 0.25,
    "text": "a",
    "bytes": b"b",
    "flag": True,
    "date": datetime.date(2024, 1, 1),
    "time": datetime.time(1, 2, 3, 4),
    "at": datetime.datetime(2024, 1, 1, tzinfo=UTC),
    "local": datetime.datetime(2024, 1, 1),
    "price": Decimal("1.25"),
    "tags": ["a", None],
    "map": {"a": [1, None]},
    "inner": {"tags": [{}]},
    "nothing": None,
}


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_sp1_a_schema_is_derived_from_the_frame(kind: Any) -> None:
    made = schema_of(FRAME, kind)
    assert made.type == kind.upper()
    fastavro.parse_schema(json.loads(made.data))
    batch = pa.RecordBatch.from_pylist(
        [FRAME_ROW | {"__key": b"k"}, {"long": 5}], to_arrow_schema(FRAME, timezone="UTC")
    )
    payloads = payloads_of(ValueEncoder(made), batch)
    assert read(made, payloads) == [FRAME_ROW, dict.fromkeys(FRAME_ROW) | {"long": 5}]
    widened = {"byte": spark.IntegerType(), "short": spark.IntegerType()}
    assert [(each.name, each.dataType) for each in fields_of(made)] == [
        (each.name, widened.get(each.name, each.dataType)) for each in FRAME.fields[:-1]
    ]


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        ("a b", spark.StringType(), "column 'a b': names in a schema"),
        ("größe", spark.StringType(), "column 'größe': names in a schema"),
        ("m", spark.MapType(spark.IntegerType(), spark.StringType()), "column 'm' is map<int,string>"),
        ("v", spark.ArrayType(spark.VariantType()), r"column 'v\[\]' is variant, which has no Avro type"),
    ],
)
def test_a_frame_without_a_schema(column: str, kind: spark.DataType, text: str) -> None:
    with pytest.raises(UnsupportedSchema, match=text):
        schema_of(spark.StructType([spark.StructField(column, kind)]), "avro")
