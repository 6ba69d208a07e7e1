"""SP1: payloads of every schema version decode to typed columns."""

from __future__ import annotations

import base64
import datetime
import enum
import io
import json
import pickle
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pulsar
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulsar.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    String,
)
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.client import Client
from magnetar.client.consume.entry import Entry
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.client.schema import Schema
from magnetar.spark.codec.avro.fields import UnsupportedSchema
from magnetar.spark.codec.columns import select_columns
from magnetar.spark.codec.record_batches import RowReader
from magnetar.spark.codec.value_decoder import VERSIONS_MAX, ValueDecoder, fields_of
from magnetar.spark.errors import InvalidOption
from magnetar.spark.source.entry_range import EntryRange
from magnetar.testing import broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.metadata import build_blob

UTC = datetime.UTC


def version(number: int) -> bytes:
    return struct.pack(">q", number)


def record(*fields: tuple[str, Any] | dict[str, Any], name: str = "R") -> dict[str, Any]:
    described = [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields]
    return {"type": "record", "name": name, "fields": described}


def schema(definition: Any, type: str = "AVRO", number: int = 0) -> Schema:
    return Schema(type=type, data=json.dumps(definition).encode(), version=version(number))


def avro(definition: Any, *rows: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(definition)))
    payloads = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        payloads.append(out.getvalue())
    return payloads


def no_other(version: bytes) -> Schema | None:
    raise AssertionError(f"version {version.hex()} was asked for")


def decode(
    of: Schema,
    payloads: list[bytes | None],
    *,
    written: bytes | None = None,
    versions: Callable[[bytes], Schema | None] = no_other,
    names: list[str] | None = None,
    keys: list[bytes | None] | None = None,
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Rows and errors; a batch that Spark would reject fails here."""
    key_array = None if keys is None else pa.array(keys, pa.binary())
    columns, errors = ValueDecoder(of, versions).decode(pa.array(payloads, pa.binary()), written, names, key_array)
    fields = {field.name: field for field in fields_of(of)}
    chosen = list(fields) if names is None else names
    assert list(columns) == chosen
    expected = to_arrow_schema(spark.StructType([fields[name] for name in chosen]), timezone="UTC")
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=chosen)
    assert batch.schema == expected
    batch.validate(full=True)
    return batch.to_pylist(maps_as_pydicts="strict"), errors


LOGICAL: dict[str, tuple[Any, spark.DataType, Any, Any]] = {
    # definition, Spark type, value for fastavro, value read
    "date": (
        {"type": "int", "logicalType": "date"},
        spark.DateType(),
        datetime.date(2024, 2, 29),
        datetime.date(2024, 2, 29),
    ),
    "time-millis": (
        {"type": "int", "logicalType": "time-millis"},
        spark.TimeType(),
        datetime.time(23, 59, 59, 999000),
        datetime.time(23, 59, 59, 999000),
    ),
    "time-micros": (
        {"type": "long", "logicalType": "time-micros"},
        spark.TimeType(),
        datetime.time(1, 2, 3, 4),
        datetime.time(1, 2, 3, 4),
    ),
    "timestamp-millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        spark.TimestampType(),
        datetime.datetime(1969, 1, 1, 0, 0, 0, 1000, UTC),
        datetime.datetime(1969, 1, 1, 0, 0, 0, 1000, UTC),
    ),
    "timestamp-micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        spark.TimestampType(),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
    ),
    "timestamp-nanos": (
        {"type": "long", "logicalType": "timestamp-nanos"},
        spark.TimestampType(),
        -1,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    "local-timestamp-millis": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        spark.TimestampNTZType(),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6000),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6000),
    ),
    "local-timestamp-micros": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        spark.TimestampNTZType(),
        datetime.datetime(1, 1, 1, 0, 0, 0, 1),
        datetime.datetime(1, 1, 1, 0, 0, 0, 1),
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
        spark.DecimalType(38, 10),
        Decimal("-1234567890123456789012345678.0123456789"),
        Decimal("-1234567890123456789012345678.0123456789"),
    ),
    "decimal, fixed": (
        {"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2},
        spark.DecimalType(9, 2),
        Decimal("-0.01"),
        Decimal("-0.01"),
    ),
    "decimal, too wide for Spark": (
        {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0},
        spark.BinaryType(),
        b"\x01",
        b"\x01",
    ),
    "uuid": (
        {"type": "string", "logicalType": "uuid"},
        spark.StringType(),
        uuid.UUID(int=7),
        str(uuid.UUID(int=7)),
    ),
    "uuid, fixed": (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        spark.StringType(),
        uuid.UUID(int=7).bytes,
        str(uuid.UUID(int=7)),
    ),
}

PLAIN: dict[str, tuple[Any, spark.DataType, Any, Any]] = {
    "null": ("null", spark.NullType(), None, None),
    "boolean": ("boolean", spark.BooleanType(), True, True),
    "int": ("int", spark.IntegerType(), -(1 << 31), -(1 << 31)),
    "long": ("long", spark.LongType(), -(1 << 63), -(1 << 63)),
    "long, the largest": ("long", spark.LongType(), (1 << 63) - 1, (1 << 63) - 1),
    "float": ("float", spark.FloatType(), 1.5, 1.5),
    "double": ("double", spark.DoubleType(), 0.1, 0.1),
    "bytes": ("bytes", spark.BinaryType(), b"\x00\xff", b"\x00\xff"),
    "string": ("string", spark.StringType(), "größer", "größer"),
    "a long string": ("string", spark.StringType(), "ü" * 500, "ü" * 500),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, spark.StringType(), "B", "B"),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, spark.BinaryType(), b"abc", b"abc"),
    "array": (
        {"type": "array", "items": ["null", "int"]},
        spark.ArrayType(spark.IntegerType()),
        [1, None],
        [1, None],
    ),
    "map": (
        {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}},
        spark.MapType(spark.StringType(), spark.TimestampType()),
        {"a": datetime.datetime(2024, 1, 1, tzinfo=UTC)},
        {"a": datetime.datetime(2024, 1, 1, tzinfo=UTC)},
    ),
    "record": (
        record(("a", "int"), ("b", ["null", "string"]), name="Inner"),
        spark.StructType([spark.StructField("a", spark.IntegerType()), spark.StructField("b", spark.StringType())]),
        {"a": 1, "b": None},
        {"a": 1, "b": None},
    ),
    "array of records with a date": (
        {"type": "array", "items": record(("d", {"type": "int", "logicalType": "date"}), name="Inner")},
        spark.ArrayType(spark.StructType([spark.StructField("d", spark.DateType())])),
        [{"d": datetime.date(2000, 1, 1)}],
        [{"d": datetime.date(2000, 1, 1)}],
    ),
    "union": (
        ["int", "null", "string"],
        spark.StructType(
            [spark.StructField("member0", spark.IntegerType()), spark.StructField("member1", spark.StringType())]
        ),
        "x",
        {"member0": None, "member1": "x"},
    ),
    "union in an array": (
        {"type": "array", "items": ["long", "string"]},
        spark.ArrayType(
            spark.StructType(
                [spark.StructField("member0", spark.LongType()), spark.StructField("member1", spark.StringType())]
            )
        ),
        [1, "x"],
        [{"member0": 1, "member1": None}, {"member0": None, "member1": "x"}],
    ),
}
EVERY = PLAIN | LOGICAL


@pytest.mark.parametrize("name", EVERY)
def test_sp1_every_avro_type(name: str) -> None:
    kind, spark_type, written, read = EVERY[name]
    definition = record(("before", "long"), ("x", kind), ("after", "string"))
    assert fields_of(schema(definition))[1] == spark.StructField("x", spark_type)
    payloads = avro(definition, *({"before": row, "x": written, "after": "é"} for row in range(3)))
    rows, errors = decode(schema(definition), [*payloads, None])
    assert errors == {}
    assert rows == [*({"before": row, "x": read, "after": "é"} for row in range(3)), dict.fromkeys(rows[0])]


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("null", "union")])
def test_sp1_every_avro_type_may_be_null(name: str) -> None:
    kind, _, written, read = EVERY[name]
    for union in (["null", kind], [kind, "null"]):
        definition = record(("x", union), ("y", "int"))
        payloads = avro(definition, {"x": None, "y": 1}, {"x": written, "y": 2}, {"x": None, "y": 3})
        rows, errors = decode(schema(definition), list(payloads))
        assert errors == {}
        assert rows == [{"x": None, "y": 1}, {"x": read, "y": 2}, {"x": None, "y": 3}]


def test_sp1_a_definition_other_than_a_record_is_one_column() -> None:
    definition = {"type": "array", "items": "string"}
    rows, errors = decode(schema(definition), list(avro(definition, ["a"], [])))
    assert (rows, errors) == ([{"value": ["a"]}, {"value": []}], {})
    rows, errors = decode(schema({"type": "long", "logicalType": "timestamp-micros"}), [b"\x02"])
    assert (rows, errors) == ([{"value": datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)}], {})


# -- versions


def test_sp1_rows_of_every_version_are_read_with_the_latest() -> None:
    first = record(("n", "int"), ("gone", "string"), name="Old")
    second = record(
        ("n", "double"),
        {"name": "note", "type": "string", "default": "none"},
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 5},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a"]},
        ("required", "int"),
        name="New",
    )
    asked: list[bytes] = []

    def versions(number: bytes) -> Schema:
        asked.append(number)
        return schema(first)

    decoder = ValueDecoder(schema(second, number=1), versions)
    for _ in range(2):
        payloads = pa.array(avro(first, {"n": 7, "gone": "x"}), pa.binary())
        columns, errors = decoder.decode(payloads, version(0))
        assert errors == {}
        assert {name: column.to_pylist() for name, column in columns.items()} == {
            "n": [7.0],
            "note": ["none"],
            "when": [datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)],
            "tags": [["a"]],
            "required": [None],
        }
    assert asked == [version(0)]


def test_sp1_an_alias_names_the_writers_field() -> None:
    new = record({"name": "amount", "type": "long", "aliases": ["pieces"]})
    old = record(("pieces", "int"))
    rows, errors = decode(
        schema(new, number=1), list(avro(old, {"pieces": 3})), written=version(0), versions=lambda _: schema(old)
    )
    assert (rows, errors) == ([{"amount": 3}], {})


@pytest.mark.parametrize(
    ("old", "new", "written", "read"),
    [
        ("int", ["null", "int"], 1, 1),
        (["null", "int"], "int", None, None),
        ("int", ["string", "long"], 1, {"member0": None, "member1": 1}),
        (["string", "int"], ["int", "string"], "x", {"member0": None, "member1": "x"}),
        (["string", "int"], "int", 4, 4),
        ("string", "bytes", "x", b"x"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "B",
            "B",
        ),
        (
            {"type": "map", "values": record(("a", "int"), name="I")},
            {"type": "map", "values": record(("b", ["null", "int"]), ("a", "long"), name="J")},
            {"k": {"a": 1}},
            {"k": {"b": None, "a": 1}},
        ),
    ],
)
def test_sp1_changed_types(old: Any, new: Any, written: Any, read: Any) -> None:
    before, after = record(("x", old)), record(("x", new))
    rows, errors = decode(
        schema(after, number=1),
        list(avro(before, {"x": written})),
        written=version(0),
        versions=lambda _: schema(before),
    )
    assert (rows, errors) == ([{"x": read}], {})


def test_an_incompatible_version_yields_errors_instead_of_values() -> None:
    before, after = record(("x", "string")), record(("x", "int"))
    payloads = [*avro(before, {"x": "1"}, {"x": "2"}), None]
    rows, errors = decode(schema(after, number=1), payloads, written=version(0), versions=lambda _: schema(before))
    assert rows == [{"x": None}] * 3
    text = "schema version 0 is incompatible with the latest: field x: string cannot be read as int"
    assert errors == {0: text, 1: text}


@pytest.mark.parametrize(("kind", "default"), [("int", "a"), ("int", 1 << 40), ("bytes", 5), ("string", 5)])
def test_a_default_of_the_wrong_type(kind: str, default: Any) -> None:
    before, after = record(("x", "int")), record({"name": "y", "type": kind, "default": default})
    rows, errors = decode(schema(after, number=1), [b"\x02"] * 2, written=version(0), versions=lambda _: schema(before))
    assert rows == [{"y": None}] * 2
    assert list(errors) == [0, 1] and "a default does not match its type" in errors[0]


def test_a_row_with_an_invalid_member_affects_no_other() -> None:
    before, after = record(("x", ["string", "int"])), record(("x", "int"))
    payloads = avro(before, *({"x": "no" if row == 5 else row} for row in range(9)))
    rows, errors = decode(
        schema(after, number=1), list(payloads), written=version(0), versions=lambda _: schema(before)
    )
    assert [row["x"] for row in rows] == [0, 1, 2, 3, 4, None, 6, 7, 8]
    assert errors == {5: "field x: string cannot be read as int"}


def test_a_missing_version_or_one_of_another_type() -> None:
    of = schema(record(("x", "int")), number=2)
    _, errors = decode(of, [b"\x02", None], written=version(1), versions=lambda _: None)
    assert errors == {0: "schema version 1 no longer exists"}
    _, errors = decode(of, [b"\x02"], written=version(1), versions=lambda _: Schema(type="STRING"))
    assert errors == {0: "it was written with schema type STRING, not AVRO"}
    _, errors = decode(of, [b"\x02"], written=version(1), versions=lambda _: Schema(type="KEY_VALUE"))
    assert "KEY_VALUE" in errors[0]


def test_sp1_json_rows_are_read_with_a_later_avro_schema() -> None:
    rows, errors = decode(
        schema(record(("x", "int"), ("y", "string")), number=1),
        [b'{"x": 1}'],
        written=version(0),
        versions=lambda _: schema(record(("x", "int")), "JSON"),
    )
    assert (rows, errors) == ([{"x": 1, "y": None}], {})


def test_without_a_version_the_read_schema_is_used() -> None:
    of = schema(record(("x", "string")))
    rows, errors = decode(of, [*avro(record(("x", "string")), {"x": "a"}), b"hello"], written=None)
    assert rows == [{"x": "a"}, {"x": None}]
    assert list(errors) == [1]


def test_the_cache_of_versions_is_bounded() -> None:
    definition = record(("x", "int"))
    decoder = ValueDecoder(
        schema(definition, number=-1), lambda number: Schema(type="AVRO", data=schema(definition).data)
    )
    for number in range(3 * VERSIONS_MAX):
        columns, errors = decoder.decode(pa.array([b"\x02"], pa.binary()), version(number))
        assert (columns["x"].to_pylist(), errors) == ([1], {})
    assert len(decoder._readers) == len(decoder._schemas) == VERSIONS_MAX


def test_an_unreachable_registry_is_no_error_of_a_row() -> None:
    def versions(number: bytes) -> Schema:
        raise ConnectionError("no broker")

    with pytest.raises(ConnectionError, match="no broker"):
        decode(schema(record(("x", "int")), number=1), [b"\x02"], written=version(0), versions=versions)


def test_a_decoder_can_be_pickled() -> None:
    decoder = ValueDecoder(schema(record(("x", "int"))), no_other)
    decoder.decode(pa.array([b"\x02"], pa.binary()), None)
    again = pickle.loads(pickle.dumps(decoder))
    assert again.decode(pa.array([b"\x02"], pa.binary()), None)[0]["x"].to_pylist() == [1]


# -- damage

WIDE = record(
    ("i", "int"),
    ("s", ["null", "string"]),
    ("d", "double"),
    ("b", "boolean"),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("f", {"type": "fixed", "name": "F", "size": 2}),
    ("u", ["null", "string", "long"]),
    ("r", record(("x", "long"), ("y", ["string", "null"]), name="Inner")),
)
GOOD = {"i": 1, "s": "ab", "d": 1.5, "b": True, "e": "B", "f": b"xy", "u": 7, "r": {"x": 2, "y": None}}
READ = GOOD | {"u": {"member0": None, "member1": 7}}


@pytest.mark.parametrize("definition", [WIDE, record(*WIDE["fields"], ("a", {"type": "array", "items": "int"}))])
def test_a_truncated_payload_affects_no_other_row(definition: dict[str, Any]) -> None:
    row, read = (GOOD | {"a": [1]}, READ | {"a": [1]}) if len(definition["fields"]) > 8 else (GOOD, READ)
    (good,) = avro(definition, row)
    payloads = [piece for cut in range(len(good)) for piece in (good[:cut], good)]
    rows, errors = decode(schema(definition), [*payloads, good + b"\x00"])
    assert list(errors) == [*range(0, len(payloads), 2), len(payloads)]
    assert rows[1:-1:2] == [read] * len(good)
    assert rows[0:-1:2] == [dict.fromkeys(read)] * len(good)
    assert "follow the last field" in errors[len(payloads)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_random_bytes_equal_fastavros_result_or_are_errors(noise: list[bytes]) -> None:
    (good,) = avro(WIDE, GOOD)
    parsed = fastavro.parse_schema(json.loads(json.dumps(WIDE)))
    rows, errors = decode(schema(WIDE), [*noise, good])
    assert rows[-1] == READ
    for index, payload in enumerate(noise):
        if index in errors:
            assert rows[index] == dict.fromkeys(READ)
            continue
        out = io.BytesIO()
        read = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
        assert read["i"] == rows[index]["i"] and read["s"] == rows[index]["s"]
        fastavro.schemaless_writer(out, parsed, read)


def test_the_last_payload_may_be_truncated_by_more_than_the_padding() -> None:
    of = schema(record(*((f"d{number}", "double") for number in range(9))))
    assert decode(of, [b"\x00"])[1] == {0: "field d0: the payload ends before it"}


def test_the_error_names_the_field() -> None:
    def errors_of(kind: Any, payload: bytes) -> dict[int, str]:
        return decode(schema(record(("x", kind))), [payload])[1]

    assert errors_of("int", b"\xff\xff\xff\xff\xff\x01") == {0: "field x: the number has more than 32 bits"}
    assert errors_of("long", b"\xff" * 10) == {0: "field x: the number has more than 64 bits"}
    assert errors_of("string", b"\x02\xff") == {0: "field x: the text is not UTF-8"}
    assert errors_of("string", b"\x01") == {0: "field x: the payload ends before it"}
    assert errors_of("string", b"\x04a") == {0: "field x: the payload ends before it"}
    assert errors_of("boolean", b"\x07") == {0: "field x: the boolean is neither 0 nor 1"}
    assert errors_of(["null", "int"], b"\x04") == {0: "field x: the union has no type with that index"}
    assert "none with that index" in errors_of({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02")[0]
    narrow = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    assert errors_of(narrow, b"\x04\x01\x00") == {0: "field x: a decimal has more than 2 digits"}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_sp1_records_round_trip(data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
    row = st.fixed_dictionaries(
        {
            "i": st.integers(-(1 << 31), (1 << 31) - 1),
            "s": st.none() | text,
            "d": st.floats(allow_nan=False),
            "b": st.booleans(),
            "e": st.sampled_from("AB"),
            "f": st.binary(min_size=2, max_size=2),
            "u": st.none() | text | st.integers(-(1 << 63), (1 << 63) - 1),
            "r": st.fixed_dictionaries({"x": st.integers(-(1 << 63), (1 << 63) - 1), "y": st.none() | text}),
        }
    )
    rows = data.draw(st.lists(row, max_size=20))
    read, errors = decode(schema(WIDE), list(avro(WIDE, *rows)))
    assert errors == {}
    for each in rows:
        value = each["u"]
        if value is not None:
            is_text = isinstance(value, str)
            each["u"] = {"member0": value if is_text else None, "member1": None if is_text else value}
    assert read == rows


def test_a_slice_of_a_larger_column() -> None:
    definition = record(("x", "int"), ("s", "string"))
    payloads = pa.array([None, *avro(definition, *({"x": row, "s": str(row)} for row in range(6)))], pa.binary())
    for of, values in (
        ("AVRO", payloads),
        ("INT32", pa.array([struct.pack(">i", row) for row in range(7)], pa.binary())),
    ):
        decoder = ValueDecoder(schema(definition, of) if of == "AVRO" else Schema(type=of), no_other)
        columns, errors = decoder.decode(values.slice(3, 2), None)
        assert errors == {}
        assert next(iter(columns.values())).to_pylist() == ([2, 3] if of == "AVRO" else [3, 4])


def test_only_the_selected_columns() -> None:
    for kind, payload in (("AVRO", avro(WIDE, GOOD)[0]), ("JSON", b'{"d": 1.5, "e": "B", "r": {"x": 2}}')):
        rows, errors = decode(schema(WIDE, kind), [payload], names=["r", "d"])
        assert (rows, errors) == ([{"r": {"x": 2, "y": None}, "d": 1.5}], {})
        assert decode(schema(WIDE, kind), [payload], names=[]) == ([], {})
        assert list(decode(schema(WIDE, kind), [b"\x80"], names=[])[1]) == [0]


# -- JSON


@pytest.mark.parametrize(
    ("kind", "text", "read"),
    [
        ("boolean", "true", True),
        ("int", "-5", -5),
        ("int", '"12"', 12),
        ("long", "9223372036854775807", (1 << 63) - 1),
        ("float", "1", 1.0),
        ("double", "1e3", 1000.0),
        ("double", '"Infinity"', float("inf")),
        ("string", '"a\\u00fc\\n"', "aü\n"),
        ("bytes", '"AP8="', b"\x00\xff"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, '"A"', "A"),
        ({"type": "fixed", "name": "F", "size": 2}, '"AP8="', b"\x00\xff"),
        ({"type": "array", "items": "int"}, "[1, null]", [1, None]),
        ({"type": "map", "values": "int"}, '{"a": 1}', {"a": 1}),
        (record(("class", "int"), ("b", "string"), name="I"), '{"class": 1, "z": 2}', {"class": 1, "b": None}),
        (["null", "int", "string"], '"x"', {"member0": None, "member1": "x"}),
        (["null", "int", "string"], "3", {"member0": 3, "member1": None}),
        ({"type": "int", "logicalType": "date"}, "1", datetime.date(1970, 1, 2)),
        ({"type": "int", "logicalType": "date"}, "[2024, 2, 29]", datetime.date(2024, 2, 29)),
        ({"type": "int", "logicalType": "date"}, '"2024-02-29"', datetime.date(2024, 2, 29)),
        ({"type": "int", "logicalType": "time-millis"}, "1", datetime.time(0, 0, 0, 1000)),
        ({"type": "long", "logicalType": "time-micros"}, '"01:02:03.000004"', datetime.time(1, 2, 3, 4)),
        ({"type": "long", "logicalType": "time-micros"}, "[1, 2]", datetime.time(1, 2)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "1700000000123",
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        ),
        (  # an Instant as Jackson writes it
            {"type": "long", "logicalType": "timestamp-millis"},
            "1700000000.123456000",
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, UTC),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            '"2023-11-14T23:13:20+01:00"',
            datetime.datetime(2023, 11, 14, 22, 13, 20, 0, UTC),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            "[2023, 11, 14, 22, 13, 20, 5000]",
            datetime.datetime(2023, 11, 14, 22, 13, 20, 5),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "1.10", Decimal("1.10")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, '"1.1"', Decimal("1.10")),
        ({"type": "string", "logicalType": "uuid"}, f'"{uuid.UUID(int=1)}"', str(uuid.UUID(int=1))),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            f'"{uuid.UUID(int=1)}"',
            str(uuid.UUID(int=1)),
        ),
        ("null", "null", None),
    ],
)
def test_sp1_every_type_in_json(kind: Any, text: str, read: Any) -> None:
    of = schema(record(("x", kind), ("y", "int")), "JSON")
    payloads: list[bytes | None] = [
        f'{{"x": {text}, "y": 1}}'.encode(),
        f'{{\n "y": 2, "unknown": {{}}, "x": {text}\n}}\n'.encode(),
        b'{"y": 3, "x": null}',
        b"{}",
        b"null",
        None,
    ]
    rows, errors = decode(of, payloads)
    assert errors == {}
    assert [row["x"] for row in rows] == [read, read, None, None, None, None]
    assert [row["y"] for row in rows] == [1, 2, 3, None, None, None]
    if kind == "null":
        return
    in_array = schema(record(("x", {"type": "array", "items": kind})), "JSON")
    assert decode(in_array, [f'{{"x": [{text}]}}'.encode()]) == ([{"x": [read]}], {})


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("int", b'{"x": 1', "not JSON of the schema: Input data was truncated"),
        ("int", b"", "not JSON of the schema: Input data was truncated"),
        ("int", b'{"x": 1}{"x": 2}', "trailing characters"),
        ("int", b"[1]", "Expected `object`, got `array`"),
        ("int", b'{"x": "a"}', "field x: Expected `int | null`, got `str`"),
        ("int", b'{"x": 1.5}', "field x: Expected `int | null`, got `float`"),
        ("int", b'{"x": 2147483648}', "field x: Expected `int` <= 2147483647"),
        ("long", b'{"x": 9223372036854775808}', "field x: "),
        ("string", b'{"x": "\xff"}', "field x: not UTF-8"),
        ("bytes", b'{"x": "not base64!"}', "field x: Invalid base64"),
        ({"type": "int", "logicalType": "date"}, b'{"x": "yesterday"}', "field x"),
        ({"type": "int", "logicalType": "date"}, b'{"x": 99999999999}', "field x"),
        ({"type": "int", "logicalType": "date"}, b'{"x": [2024, 13, 1]}', "field x"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b'{"x": 9223372036854775807}', "field x"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b'{"x": 1.555}', "field x"),
        (["int", "string"], b'{"x": [1]}', "field x: list is not a type of the union"),
    ],
)
def test_json_outside_the_schema_affects_no_other_row(kind: Any, payload: bytes, text: str) -> None:
    good = b'{"y": 5}'
    rows, errors = decode(schema(record(("x", kind), ("y", "int")), "JSON"), [good, payload, good, None])
    assert rows == [{"x": None, "y": 5}, {"x": None, "y": None}, {"x": None, "y": 5}, {"x": None, "y": None}]
    assert list(errors) == [1]
    assert text in errors[1]


def test_sp8_json_with_a_bad_field_keeps_the_others() -> None:
    of = schema(record(("x", "int"), ("y", "string"), ("z", {"type": "int", "logicalType": "date"})), "JSON")
    payloads = [b'{"x": "a", "y": "b", "z": 1}', b'{"x": 1, "y": 2, "z": "yesterday"}', b'{"x": "3", "y": "c"}']
    rows, errors = decode(of, list(payloads))
    assert rows == [
        {"x": None, "y": "b", "z": datetime.date(1970, 1, 2)},
        {"x": 1, "y": None, "z": None},
        {"x": 3, "y": "c", "z": None},
    ]
    assert list(errors) == [0, 1]
    assert errors[0].startswith("field x: Expected `int | null`")
    assert "field y: Expected `str | null`" in errors[1] and "field z: Invalid isoformat" in errors[1]


def test_json_defaults_are_for_fields_that_the_version_did_not_have() -> None:
    defaults: dict[str, Any] = {"s": ("string", "none"), "b": ("bytes", "\u00ff")}
    defaults["a"] = ({"type": "array", "items": "int"}, [1])
    defaults["d"] = ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u007b")
    fields = [{"name": name, "type": kind, "default": value} for name, (kind, value) in defaults.items()]
    new = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, *fields]}
    payloads: list[bytes | None] = [b'{"x": 1}', None, b'{"x": "bad"}', b'{"x": 2, "s": null}']
    rows, errors = decode(
        schema(new, "JSON", number=1),
        payloads,
        written=version(0),
        versions=lambda _: schema(record(("x", "int")), "JSON"),
    )
    added = {"s": "none", "b": b"\xff", "a": [1], "d": Decimal("1.23")}
    assert rows[0] == {"x": 1} | added
    assert rows[1] == dict.fromkeys(("x", *added))
    assert rows[2] == {"x": None} | added and list(errors) == [2]
    assert rows[3] == {"x": 2} | added | {"s": None}
    rows, _ = decode(schema(new, "JSON"), [b'{"x": 1}'])
    assert rows == [{"x": 1} | dict.fromkeys(added)], "the writer had them, and omitted them: Java omits nulls"


def test_sp8_avro_with_a_bad_value_keeps_the_others() -> None:
    narrow = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    of = schema(record(("x", "string"), ("n", "int"), ("d", narrow), ("y", "string")))
    payloads = [b"\x02\xff\x02\x02\x05\x02a", b"\x02b\xff\xff\xff\xff\xff\x01\x02\x05\x02c"]
    payloads += [b"\x02d\x04\x04\x01\x00\x02e", b"\x02f\x04"]
    rows, errors = decode(of, list(payloads))
    assert rows == [
        {"x": None, "n": 1, "d": Decimal(5), "y": "a"},
        {"x": "b", "n": None, "d": Decimal(5), "y": "c"},
        {"x": "d", "n": 2, "d": None, "y": "e"},
        {"x": None, "n": None, "d": None, "y": None},
    ]
    assert errors == {
        0: "field x: the text is not UTF-8",
        1: "field n: the number has more than 32 bits",
        2: "field d: a decimal has more than 2 digits",
        3: "field d: the payload ends before it",
    }


def test_avro_with_arrays_names_the_field_that_ends_early() -> None:
    definition = record(("a", "string"), ("b", {"type": "array", "items": "string"}), ("c", ["null", "int"]))
    (payload,) = avro(definition, {"a": "x", "b": ["one", "two"], "c": 7})
    for size, name in ((1, "a"), (4, "b"), (len(payload) - 2, "c")):
        rows, errors = decode(schema(definition), [payload[:size], payload])
        assert rows[0] == {"a": None, "b": None, "c": None} and rows[1]["c"] == 7
        assert errors[0].startswith(f"field {name}: "), (size, errors)


def test_deeply_nested_json() -> None:
    _, errors = decode(schema(record(("x", "int")), "JSON"), [b'{"z": ' + b"[" * 100_000, b'{"x": 1}'])
    assert list(errors) == [0]


# -- payloads of the official client


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Inner(Record):
    note = String()
    scores = Array(Double())


class Order(Record):
    customer = String()
    pieces = Integer()
    total = Long(required=True)
    weight = Float()
    price = Double()
    paid = Boolean()
    blob = Bytes()
    colour = CustomEnum(Colour)
    inner = Inner()
    limits = Map(Integer())


ORDER = {
    "customer": "ann",
    "pieces": 2,
    "total": 1 << 40,
    "weight": 0.5,
    "price": 9.99,
    "paid": True,
    "blob": b"AP8=",
    "colour": Colour.BLUE,
    "inner": Inner(note="fragile", scores=[1.0, 2.5]),
    "limits": {"a": 1},
}


EMPTY = dict.fromkeys(ORDER) | {"total": 1, "paid": False, "inner": {"note": None, "scores": None}}


def of_client(made: Any, type: str) -> Schema:
    return Schema(type=type, data=made.schema_info().schema().encode(), version=version(0))


def test_sp1_avro_of_the_official_client() -> None:
    made = AvroSchema(Order)
    payloads = [made.encode(Order(**ORDER)), made.encode(Order(total=1))]
    rows, errors = decode(of_client(made, "AVRO"), payloads, written=version(0))
    assert errors == {}
    inner = {"note": "fragile", "scores": [1.0, 2.5]}
    assert rows == [ORDER | {"colour": "BLUE", "inner": inner}, EMPTY]


def test_sp1_json_of_the_official_client() -> None:
    made = JsonSchema(Order)
    java = b'{"total": 2, "blob": "AP8=", "colour": "BLUE"}'
    payloads = [made.encode(Order(**ORDER)), made.encode(Order(total=1)), java]
    rows, errors = decode(of_client(made, "JSON"), payloads, written=version(0))
    assert errors == {}
    inner = {"note": "fragile", "scores": [1.0, 2.5]}
    # It writes bytes as text, where Java writes base64, and an enum as the number of its member.
    assert rows == [
        ORDER | {"colour": "2", "inner": inner, "blob": b"AP8="},
        EMPTY,
        dict.fromkeys(ORDER) | {"total": 2, "colour": "BLUE", "blob": b"\x00\xff"},
    ]


class OrderWithNote(Record):
    customer = String()
    total = Long(required=True)
    note = String(default="none", required_default=True)


class OnlyCustomer(Record):
    customer = String()
    total = Long(required=True)


@pytest.mark.parametrize("made", [AvroSchema, JsonSchema])
def test_sp1_two_versions_in_one_topic(made: Any) -> None:
    topic = "persistent://public/default/orders"
    with broker() as running, Client(running.service_url) as client:
        official = pulsar.Client(running.service_url)
        official.create_producer(topic, schema=made(OnlyCustomer)).send(OnlyCustomer(customer="ann", total=1))
        official.create_producer(topic, schema=made(OrderWithNote)).send(
            OrderWithNote(customer="bob", total=2, note="x")
        )
        official.close()
        latest = client.schema(topic)
        assert latest is not None
        decoder = ValueDecoder(latest, lambda number: client.schema(topic, number))
        rows = []
        with client.reader(topic, start=EARLIEST) as reader:
            for _ in range(2):
                message = reader.read(10)
                columns, errors = decoder.decode(pa.array([message.value], pa.binary()), message.schema_version)
                assert errors == {}
                rows.append({name: column[0].as_py() for name, column in columns.items()})
    assert rows == [{"customer": "ann", "total": 1, "note": "none"}, {"customer": "bob", "total": 2, "note": "x"}]


# -- primitives: bytes as the Java client's schema classes write them


@pytest.mark.parametrize(
    ("type", "payload", "spark_type", "read"),
    [
        ("STRING", "größer".encode(), spark.StringType(), "größer"),
        ("BOOLEAN", b"\x01", spark.BooleanType(), True),
        ("BOOLEAN", b"\x00", spark.BooleanType(), False),
        ("INT8", b"\xff", spark.ByteType(), -1),
        ("INT16", b"\x80\x00", spark.ShortType(), -(1 << 15)),
        ("INT32", b"\x00\x00\x01\x00", spark.IntegerType(), 256),
        ("INT64", b"\x80" + bytes(7), spark.LongType(), -(1 << 63)),
        ("FLOAT", b"\x3f\xc0\x00\x00", spark.FloatType(), 1.5),
        ("DOUBLE", b"\x3f\xf8" + bytes(6), spark.DoubleType(), 1.5),
        *(
            (
                type,
                struct.pack(">q", -1),
                spark.TimestampType(),
                datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
            )
            for type in ("DATE", "TIME", "TIMESTAMP")
        ),
        (
            "INSTANT",
            struct.pack(">qi", -1, 999_999_999),
            spark.TimestampType(),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ),
        ("LOCAL_DATE", struct.pack(">q", -1), spark.DateType(), datetime.date(1969, 12, 31)),
        ("LOCAL_TIME", struct.pack(">q", 3_600_000_001_000), spark.TimeType(), datetime.time(1, 0, 0, 1)),
        (
            "LOCAL_DATE_TIME",
            struct.pack(">qq", 1, 3_600_000_001_000),
            spark.TimestampNTZType(),
            datetime.datetime(1970, 1, 2, 1, 0, 0, 1),
        ),
        ("NONE", b"\x00\xff", spark.BinaryType(), b"\x00\xff"),
        ("BYTES", b"\x00\xff", spark.BinaryType(), b"\x00\xff"),
        ("PROTOBUF", b"\x00\xff", spark.BinaryType(), b"\x00\xff"),
        ("PROTOBUF_NATIVE", b"\x00\xff", spark.BinaryType(), b"\x00\xff"),
        ("EXTERNAL", b"\x00\xff", spark.BinaryType(), b"\x00\xff"),
    ],
)
def test_sp1_primitives(type: str, payload: bytes, spark_type: spark.DataType, read: Any) -> None:
    of = Schema(type=type)
    assert fields_of(of) == [spark.StructField("value", spark_type)]
    rows, errors = decode(of, [payload, None, payload])
    assert errors == {}
    assert [row["value"] for row in rows] == [read, None, read]
    assert decode(of, [None, None]) == ([{"value": None}] * 2, {})
    assert decode(of, []) == ([], {})


@pytest.mark.parametrize(
    ("type", "payload", "text"),
    [
        ("STRING", b"ab\xff", "STRING is not UTF-8 at byte 2"),
        ("INT32", b"\x00", "INT32 has 4 bytes, not 1"),
        ("INT64", b"", "INT64 has 8 bytes, not 0"),
        ("BOOLEAN", b"\x01\x01", "BOOLEAN has 1 bytes, not 2"),
        ("TIMESTAMP", struct.pack(">q", 1 << 62), "TIMESTAMP is out of Spark's range"),
        ("INSTANT", struct.pack(">qi", 1 << 62, 0), "INSTANT is out of Spark's range"),
        ("LOCAL_DATE", struct.pack(">q", 1 << 40), "LOCAL_DATE is out of Spark's range"),
        ("LOCAL_TIME", struct.pack(">q", -1), "LOCAL_TIME is out of Spark's range"),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 1 << 60, 0), "LOCAL_DATE_TIME is out of Spark's range"),
    ],
)
def test_an_invalid_primitive_affects_no_other_row(type: str, payload: bytes, text: str) -> None:
    good = {"STRING": b"a", "BOOLEAN": b"\x01", "INT32": bytes(4), "INSTANT": bytes(12), "LOCAL_DATE_TIME": bytes(16)}
    rows, errors = decode(Schema(type=type), [good.get(type, bytes(8)), payload])
    assert errors == {1: text}
    assert rows[0]["value"] is not None and rows[1]["value"] is None


# -- key and value


def pair_schema(key: Schema, value: Schema, encoding: str) -> Schema:
    packed = b"".join(struct.pack(">i", len(each.data)) + each.data for each in (key, value))
    properties = {"key.schema.type": key.type, "value.schema.type": value.type, "kv.encoding.type": encoding}
    return Schema(type="KEY_VALUE", data=packed, properties=properties, version=version(0))


def pair(key: bytes | None, value: bytes | None) -> bytes:
    return b"".join(
        struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each for each in (key, value)
    )


VALUES = record(("x", "int"), ("y", ["null", "string"]))


def test_sp1_key_and_value_inline() -> None:
    of = pair_schema(Schema(type="STRING"), schema(VALUES), "INLINE")
    (value,) = avro(VALUES, {"x": 1, "y": "a"})
    rows, errors = decode(
        of, [pair(b"k", value), pair(None, value), pair(b"k", None), None, pair(b"k", value)[:-1], b""]
    )
    assert rows[:4] == [
        {"key": "k", "value": {"x": 1, "y": "a"}},
        {"key": None, "value": {"x": 1, "y": "a"}},
        {"key": "k", "value": None},
        {"key": None, "value": None},
    ]
    assert rows[4:] == [{"key": None, "value": None}] * 2
    assert list(errors) == [4, 5]


def test_sp1_key_and_value_separated() -> None:
    of = pair_schema(schema(VALUES, "JSON"), Schema(type="INT64"), "SEPARATED")
    assert ValueDecoder(of, no_other).needs_keys
    rows, errors = decode(of, [bytes(8), b"short", None], keys=[b'{"x": 5}', b'{"x": 6}', b"nonsense"])
    assert rows == [
        {"key": {"x": 5, "y": None}, "value": 0},
        {"key": {"x": 6, "y": None}, "value": None},
        {"key": None, "value": None},
    ]
    assert errors[1] == "the value: INT64 has 8 bytes, not 5"
    assert errors[2].startswith("the key: not JSON")
    assert decode(of, [bytes(8)], keys=[None], names=["value"])[0] == [{"value": 0}]


def test_sp1_a_separated_key_is_in_the_rows() -> None:
    of = pair_schema(Schema(type="INT64"), Schema(type="STRING"), "SEPARATED")
    messages = []
    for number in range(2):
        key = base64.b64encode(struct.pack(">q", number)).decode()
        one = pb.SingleMessageMetadata(payload_size=1, partition_key=key, partition_key_b64_encoded=True)
        messages.append((one, b"%d" % number))
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=2)
    entry = Entry("persistent://a/b/c", MessageId(1, 2), 0, (), build_blob(metadata, build_batch(messages)))
    fields = fields_of(of)
    reader = RowReader(select_columns(spark.StructType(fields), fields), ValueDecoder(of, no_other))
    span = EntryRange("persistent://a/b/c", EARLIEST, LATEST)
    (batch,) = reader.read([[entry]], span)
    assert batch.to_pylist() == [{"key": 0, "value": "0"}, {"key": 1, "value": "1"}]


def test_sp1_versions_of_key_and_value() -> None:
    old = pair_schema(Schema(type="STRING"), schema(record(("x", "int"))), "INLINE")
    new = pair_schema(Schema(type="STRING"), schema(VALUES), "INLINE")
    payload = pair(b"k", avro(record(("x", "int")), {"x": 1})[0])
    rows, errors = decode(new, [payload], written=version(7), versions=lambda _: old)
    assert (rows, errors) == ([{"key": "k", "value": {"x": 1, "y": None}}], {})


def test_a_truncated_key_value_schema() -> None:
    with pytest.raises(UnsupportedSchema, match="ends before the length of the value"):
        fields_of(Schema(type="KEY_VALUE", data=struct.pack(">i", 0)))


# -- schemas without columns


def test_a_field_with_the_name_of_a_metadata_column_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"field '__key'.*decode=raw"):
        fields_of(schema(record(("__key", "string"))))


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (record(("next", ["null", "R"])), r"field next: R contains itself.*decode=raw"),
        (record(("a", {"type": "array", "items": record(("b", "R"), name="S")})), "field a.b: R contains itself"),
        (record(("x", "integer")), "field x: unknown type 'integer'"),
        (record(("x", 5)), "field x: '5' is not an Avro type"),
        (record(("x", "int"), ("x", "int")), "the field 'x' occurs twice"),
        (record(("x", ["null", ["int", "null"]])), "a union in a union"),
        ({"type": "record", "name": "R", "fields": ["x"]}, "not a field of a record"),
        (
            record(("x", {"type": "array", "items": record(("n", "null"), name="N")})),
            "field x: an array whose items have no bytes",
        ),
        (record(("x", {"type": "fixed", "name": "F", "size": 1 << 60})), "fixed F: a size of"),
        (record(("x", {"type": "fixed", "name": "F", "size": "2"})), "fixed F has the size '2'"),
    ],
)
def test_a_schema_without_a_spark_type(definition: Any, text: str) -> None:
    for kind in ("AVRO", "JSON"):
        with pytest.raises(UnsupportedSchema, match=text):
            fields_of(schema(definition, kind))


def test_a_schema_that_is_no_json_or_too_large() -> None:
    with pytest.raises(UnsupportedSchema, match="not JSON"):
        fields_of(Schema(type="AVRO", data=b"{"))
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UnsupportedSchema, match="deeper than"):
        fields_of(schema(record(("x", deep))))
    fields: list[Any] = [("x0", record(("a", "int"), ("b", "int"), name="T0"))]
    fields += [(f"x{n}", record(("a", f"T{n - 1}"), ("b", f"T{n - 1}"), name=f"T{n}")) for n in range(1, 30)]
    with pytest.raises(UnsupportedSchema, match="more than 10000 types"):
        fields_of(schema(record(*fields)))


def test_a_duplicate_name() -> None:
    inner = {"type": "record", "name": "I", "namespace": "a.b", "fields": [{"name": "d", "type": "int"}]}
    definition = record(("x", inner), ("y", ["null", "a.b.I"]), ("z", {"type": "array", "items": "a.b.I"}))
    payloads = avro(definition, {"x": {"d": 1}, "y": {"d": 2}, "z": [{"d": 3}]})
    assert decode(schema(definition), list(payloads)) == ([{"x": {"d": 1}, "y": {"d": 2}, "z": [{"d": 3}]}], {})


def test_json_schemas_of_clients_before_2_1_stay_bytes() -> None:
    of = schema({"type": "object", "id": "urn:x", "properties": {}}, "JSON")
    assert fields_of(of) == [spark.StructField("value", spark.BinaryType())]
    assert decode(of, [b"{}"]) == ([{"value": b"{}"}], {})
