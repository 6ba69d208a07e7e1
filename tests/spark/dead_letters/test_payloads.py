"""Payloads as text, their struct, and causes: without a broker and without Spark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StringType, StructType

from magnetar.client.consume.entry import Entry
from magnetar.client.message import MessageId
from magnetar.client.schema import Schema
from magnetar.deadletter.fingerprint import fingerprint
from magnetar.names import TopicName
from magnetar.schema.key_value import encode_key_value
from magnetar.spark.codec.columns import SourceColumns
from magnetar.spark.codec.record_batches import RowReader
from magnetar.spark.dead_letters.causes import error_of, exception_of, fingerprint_of, stack_trace_of
from magnetar.spark.dead_letters.letter_columns import LetterBuilders, key_text
from magnetar.spark.dead_letters.letters import LETTER_COLUMNS
from magnetar.spark.dead_letters.payload_struct import FIELDS_MAX, struct_of
from magnetar.spark.dead_letters.payloads import PAYLOAD_MAX, PayloadDecoder
from magnetar.spark.dead_letters.plan import LetterRange
from magnetar.spark.source.entry_range import EntryRange
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob

LETTERS, ORIGIN = "persistent://public/default/o-s-DLQ", "persistent://public/default/o"
AVRO = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}
).encode()
V0, V1 = (bytes(7) + bytes([number]) for number in range(2))


class Registry:
    """Schemas by topic and version; counts the requests."""

    def __init__(self, **schemas: Schema) -> None:
        self.schemas = {"letters": LETTERS, "origin": ORIGIN}
        self._known = {self.schemas[name.split("_")[0]] + name.split("_")[1]: found for name, found in schemas.items()}
        self.requests = 0

    def __call__(self, topic: str, version: bytes) -> Schema | None:
        self.requests += 1
        return self._known.get(f"{topic}{int.from_bytes(version, 'big')}")


def rows(
    registry: Registry, *entries: tuple[pb.MessageMetadata, bytes], columns: tuple[str, ...]
) -> list[dict[str, object]]:
    """The columns of these entries."""
    span = EntryRange(LETTERS, MessageId(1, -1), MessageId(1, len(entries)))
    builders = LetterBuilders(LetterRange(span, None), PayloadDecoder(TopicName.parse(LETTERS), registry)).by_name
    by_name = {column.name: column.field for column in LETTER_COLUMNS}
    reader = RowReader(SourceColumns([by_name[name] for name in columns], ["value"]), None, "row", None, builders)
    stored = [
        Entry(LETTERS, MessageId(1, number), 0, (), build_blob(metadata, payload))
        for number, (metadata, payload) in enumerate(entries)
    ]
    return [row for batch in reader.read([stored], span) for row in batch.to_pylist()]


def letter(payload: bytes, version: bytes | None = None, **properties: str) -> tuple[pb.MessageMetadata, bytes]:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1000)
    if version is not None:
        metadata.schema_version = version
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    return metadata, payload


def decoded(registry: Registry, *entries: tuple[pb.MessageMetadata, bytes]) -> list[tuple[object, object]]:
    found = rows(registry, *entries, columns=("payload_json", "payload_error"))
    return [(row["payload_json"], row["payload_error"]) for row in found]


def test_sp4_payloads_by_their_schema() -> None:
    avro = b"\x04o1\x06"
    pair = Schema(
        type="KEY_VALUE",
        data=encode_key_value(b"", b""),
        properties={"key.schema.type": "STRING", "value.schema.type": "INT32", "kv.encoding.type": "INLINE"},
    )
    for schema, payload, text in (
        (Schema(type="AVRO", data=AVRO), avro, '{"id":"o1","n":3}'),
        (Schema(type="JSON", data=AVRO), b'{ "n": 1.10 }', '{ "n": 1.10 }'),
        (Schema(type="STRING"), b"plain", "plain"),
        (Schema(type="INT32"), b"\0\0\1\0", "256"),
        (Schema(type="BOOLEAN"), b"\1", "true"),
        (Schema(type="NONE"), b"{}", "{}"),
        (pair, encode_key_value(b"k", b"\0\0\0\7"), '{"key":"k","value":7}'),
    ):
        assert decoded(Registry(letters_0=schema), letter(payload, V0)) == [(text, None)]
    assert decoded(Registry(), letter("größer".encode())) == [("größer", None)]


def test_sp4_the_schema_is_that_of_the_writer() -> None:
    """A broker and pipelines copy the version of the origin; a client registers its schema with its own topic."""
    registry = Registry(letters_0=Schema(type="INT64"), origin_0=Schema(type="INT32"))
    own = {"REAL_TOPIC": f"{ORIGIN}-partition-3", "DEATH_REASON": "Expired"}
    assert decoded(registry, letter(b"\0\0\0\7", V0, **own)) == [("7", None)]
    client = {"REAL_TOPIC": ORIGIN}
    assert (
        decoded(registry, letter(bytes(7) + b"\7", V0, **client), letter(b"\0\0\0\7", V0, **client))
        == [("7", None)] * 2
    )
    before = registry.requests
    decoded(registry, *[letter(bytes(8), V0, **client)] * 50)
    assert registry.requests == before + 1, "each version once"


def test_sp4_payloads_that_cannot_be_decoded_have_a_reason() -> None:
    avro = Registry(letters_0=Schema(type="AVRO", data=AVRO), letters_1=Schema(type="JSON"))
    (text, error), (broken, why), (missing, what) = decoded(
        avro, letter(b"\x04o", V0), letter(b"{", V1), letter(b"\xff", bytes(7) + b"\x09")
    )
    assert (text, broken, missing) == (None, None, None)
    assert str(error).startswith(f"not a value of the AVRO schema of {LETTERS}: ")
    assert why == f"not a value of the JSON schema of {LETTERS}: the payload is not JSON"
    assert what == "schema version 0000000000000009 does not exist, and the payload is no text"
    assert decoded(Registry(letters_0=Schema(type="AVRO", data=b"{")), letter(b"\x04o", V0))[0][0] is None
    large = letter(b"x" * (PAYLOAD_MAX + 1))
    assert decoded(Registry(), large) == [(None, f"the payload of {PAYLOAD_MAX + 1} bytes exceeds {PAYLOAD_MAX}")]


def test_sp4_encrypted_and_broken_letters_are_rows() -> None:
    encrypted, payload = letter(b"secret", DEATH_REASON="Expired", REAL_TOPIC=ORIGIN)
    encrypted.encryption_keys.add(key="k", value=b"v")
    encrypted.num_messages_in_batch = 3
    squeezed, _ = letter(b"", DEATH_REASON="Expired")
    squeezed.compression = pb.ZSTD
    squeezed.uncompressed_size = 100
    columns = ("reason", "topic", "value", "size", "payload_json", "payload_error", "message_id")
    first, second, third = rows(
        Registry(), (encrypted, payload), (squeezed, b"no zstd"), letter(b"fine"), columns=columns
    )
    assert (first["reason"], first["topic"], first["value"], first["size"]) == ("Expired", ORIGIN, None, 6)
    assert "encrypted" in str(first["payload_error"]) and first["payload_json"] is None
    assert second["payload_error"] and second["size"] == 7
    assert (third["payload_json"], third["payload_error"], third["reason"]) == ("fine", None, "Unknown")


def test_keys_as_text() -> None:
    assert (key_text("ü".encode()), key_text(b"\xff")) == ("ü", "base64:/w==")


# -- the struct


def test_sp4_the_struct_of_payloads() -> None:
    found = struct_of(
        [
            '{"id": 1, "amount": 1, "tags": ["a"], "at": {"x": true, "y": null}, "mixed": 1, "big": 1e30}',
            '{"id": 2, "amount": 1.5, "tags": [], "at": {"z": 1}, "mixed": "x", "none": null}',
            "no json",
        ]
    )
    assert found == (
        StructType()
        .add("id", LongType())
        .add("amount", DoubleType())
        .add("tags", ArrayType(StringType()))
        .add("at", StructType().add("x", BooleanType()).add("y", StringType()).add("z", LongType()))
        .add("mixed", StringType())
        .add("big", DoubleType())
        .add("none", StringType())
    )
    assert struct_of([]) is struct_of(["{}"]) is struct_of(["1", "2", '{"a": 1}']) is None
    many = struct_of([json.dumps({f"f{number}": 1 for number in range(FIELDS_MAX + 10)})])
    assert many is not None and len(many.fields) == FIELDS_MAX
    assert struct_of(['{"a": ' + "[" * 100_000]) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.text(max_size=2), values, min_size=1, max_size=3), min_size=1, max_size=4))
def test_sp4_any_records_have_a_struct(records: list[dict[str, object]]) -> None:
    found = struct_of([json.dumps(record) for record in records])
    assert found is not None
    assert set(found.names) == {name for record in records for name in record}


# -- causes


def test_sp4_causes_of_frameworks() -> None:
    spring = {"exception-thrown-cause": "java.lang.IllegalStateException: no price for 4711"}
    assert (exception_of(spring), error_of(spring)) == (
        "java.lang.IllegalStateException",
        spring["exception-thrown-cause"],
    )
    stream = {
        "x-exception-fqcn": "a.B",
        "x-exception-message": "m",
        "x-exception-stacktrace": "a.BException: m\n\tat x",
    }
    assert (exception_of(stream), error_of(stream), stack_trace_of(stream)) == ("a.B", "m", "a.BException: m\n\tat x")
    assert exception_of({"x-exception-stacktrace": "a.BException: m\n\tat x"}) == "a.BException"
    assert (exception_of({}), error_of({}), stack_trace_of({})) == (None, None, None)


@pytest.mark.parametrize("error", ["ValueError: no price for item {}", "java.io.IOException: gone after {} ms"])
def test_sp4_failures_of_one_cause_have_one_fingerprint(error: str) -> None:
    found = {fingerprint_of({"DEATH_REASON": "MaxRedeliveries", "DEATH_ERROR": error.format(n)}) for n in range(20)}
    assert len(found) == 1
    assert found == {fingerprint(error.partition(":")[0], error.format(3))}
    assert fingerprint_of({"DEATH_FINGERPRINT": "abc", "DEATH_ERROR": error}) == "abc"
    described = {
        fingerprint_of({"DEATH_REASON": "Expired", "DEATH_DESCRIPTION": f"older than {n} s"}) for n in range(20)
    }
    assert len(described) == 1 and described != {fingerprint_of({"DEATH_REASON": "MaxRedeliveries"})}
