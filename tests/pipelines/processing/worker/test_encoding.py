"""Payloads of results: with and without a schema, and results that do not match it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from magnetar.client.schema import Schema
from magnetar.pipelines.processing.call.function import InvalidProcess
from magnetar.pipelines.processing.worker.encoding import OutputEncoder
from magnetar.schema.key_value import encode_key_value

TOPIC = "persistent://public/default/out"
RECORD = {
    "type": "record",
    "name": "Invoice",
    "fields": [{"name": "order", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def encoder(kind: str | None, definition: object = None) -> OutputEncoder:
    if kind is None:
        return OutputEncoder(TOPIC, None)
    data = b"" if definition is None else json.dumps(definition).encode()
    return OutputEncoder(TOPIC, Schema(type=kind, data=data, version=(5).to_bytes(8, "big")))


def test_sp2_without_a_schema_values_are_bytes_text_or_json() -> None:
    payloads, errors = encoder(None).values([b"raw", "täxt", None, {"a": [1, 2.5]}, 7, object()])
    assert payloads.to_pylist() == [b"raw", "täxt".encode(), None, b'{"a":[1,2.5]}', b"7", None]
    assert list(errors) == [5]
    assert "of type object cannot be written as JSON" in errors[5]
    assert encoder(None).version == -1


@pytest.mark.parametrize("kind", ["JSON", "AVRO"])
def test_sp2_a_value_that_does_not_match_the_schema_fails_alone(kind: str) -> None:
    typed = encoder(kind, RECORD)
    values: list[Any] = [
        {"order": 1, "note": "a"},
        {"order": "two"},
        {"order": 3, "nota": "c"},
        "four",
        {"note": "no order"},
        {"order": 6},
        b"encoded already",
        None,
    ]
    payloads, errors = typed.values(values)
    assert [row for row, payload in enumerate(payloads.to_pylist()) if payload is not None] == [0, 5, 6]
    assert payloads[6].as_py() == b"encoded already"
    assert sorted(errors) == [1, 2, 3, 4]
    assert "Could not convert 'two'" in errors[1]
    assert "field 'nota' is not in the schema, which has note, order" in errors[2]
    assert "str is not a dict with the fields note, order" in errors[3]
    assert "column 'order'" in errors[4]
    assert (typed.version, typed.is_typed) == (5, True)


def test_sp2_primitive_schemas_take_plain_values() -> None:
    payloads, errors = encoder("INT32").values([1, 2, "three"])
    assert payloads.to_pylist() == [(1).to_bytes(4, "big"), (2).to_bytes(4, "big"), None]
    assert list(errors) == [2]


def test_sp2_columns_of_a_batch_are_encoded_together() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"order": pa.array([1, None, 3], pa.int32()), "note": pa.array(["a", "b", None]), "__row": [0, 1, 2]}
    )
    payloads, errors = encoder("JSON", RECORD).batch(batch)
    assert payloads.to_pylist() == [b'{"order":1,"note":"a"}', None, b'{"order":3}']
    assert list(errors) == [1]
    _, errors = encoder("JSON", RECORD).batch(batch.select(["note"]))
    assert sorted(errors) == [0, 1, 2]
    assert "column 'order' is missing" in errors[0]


def test_sp2_columns_without_a_schema_are_a_value_or_json() -> None:
    assert encoder(None).batch(pa.RecordBatch.from_pydict({"value": ["a", None]})).payloads.to_pylist() == [b"a", None]
    assert encoder(None).batch(pa.RecordBatch.from_pydict({"value": [1]})).payloads.to_pylist() == [b"1"]
    assert encoder(None).batch(pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]})).payloads.to_pylist() == [
        b'{"a":1,"b":"x"}'
    ]


def test_sp2_a_schema_with_separate_keys_is_refused() -> None:
    properties = {"key.schema.type": "STRING", "value.schema.type": "STRING", "kv.encoding.type": "SEPARATED"}
    schema = Schema(type="KEY_VALUE", data=encode_key_value(b"", b""), properties=properties)
    with pytest.raises(InvalidProcess, match="keeps its keys apart, which is not supported"):
        OutputEncoder(TOPIC, schema)
