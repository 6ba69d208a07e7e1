"""Edits of letters without Spark: payloads of each schema, and functions."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from magnetar.errors import InvalidSetting
from magnetar.pipelines.redrive.assignments import parse_assignments
from magnetar.pipelines.redrive.edit import EditFailed, Edits, Letter, PayloadCodec, load_function
from magnetar.schema.types import Schema, SchemaType

RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "weight", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
ORDER = {
    "id": 7,
    "amount": Decimal("12.50"),
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "weight": 1.5,
    "tags": ["a"],
    "state": "NEW",
}


def avro(value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(RECORD), value)
    return stream.getvalue()


def edited(schema: Schema | None, payload: bytes, assigned: dict[str, Any]) -> bytes | None:
    """With the values that Spark computed, by field."""
    edits = Edits(parse_assignments([f"payload.{name} = 1" for name in assigned]))
    codec = PayloadCodec(schema)
    values = json.dumps({str(number): value for number, value in enumerate(assigned.values())})
    letter = edits.apply(Letter(codec.decode(payload)), values)
    assert letter is not None
    return codec.encode(letter.payload)


def test_sp3_fields_of_avro_are_set_in_their_own_types() -> None:
    schema = Schema(SchemaType.AVRO, json.dumps(RECORD).encode())
    assigned = {"amount": 7.25, "day": "2026-05-06", "at": "2026-05-06T07:08:09.000Z", "weight": 2, "state": "PAID"}
    found = edited(schema, avro(ORDER), assigned)
    wanted = ORDER | {
        "amount": Decimal("7.25"),
        "day": date(2026, 5, 6),
        "at": datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC),
        "weight": 2.0,
        "state": "PAID",
    }
    assert found == avro(wanted)
    assert edited(schema, avro(ORDER), {"amount": None}) == avro(ORDER | {"amount": None})


@pytest.mark.parametrize(
    ("assigned", "reason"),
    [({"id": "x"}, "does not match its schema"), ({"state": "LOST"}, "does not match"), ({"day": "soon"}, "Invalid")],
)
def test_sp3_values_that_do_not_fit_leave_the_letter(assigned: dict[str, Any], reason: str) -> None:
    with pytest.raises(EditFailed, match=reason):
        edited(Schema(SchemaType.AVRO, json.dumps(RECORD).encode()), avro(ORDER), assigned)


def test_sp3_payloads_that_do_not_match_their_schema_are_named() -> None:
    codec = PayloadCodec(Schema(SchemaType.AVRO, json.dumps(RECORD).encode()))
    for payload in (b"", b"\x02", avro(ORDER) + b"x"):
        with pytest.raises(EditFailed, match="does not match its schema"):
            codec.decode(payload)
    with pytest.raises(EditFailed, match="does not match its schema"):
        PayloadCodec(Schema(SchemaType.JSON, b"{}")).decode(b"{")


def test_sp3_json_keeps_what_is_not_set() -> None:
    payload = '{"z": 1, "deep": {"a": 12345678901234567890, "b": "ü"}}'.encode()
    found = edited(Schema(SchemaType.JSON, b"{}"), payload, {"deep.b": "x", "new.field": [1, None]})
    assert found == b'{"z": 1, "deep": {"a": 12345678901234567890, "b": "x"}, "new": {"field": [1, null]}}'
    assert edited(None, b'{"a": 1}', {"a": 2}) == b'{"a": 2}'
    with pytest.raises(EditFailed, match="has no fields"):
        edited(None, b"plain text", {"a": 2})


def test_sp3_columns_and_properties() -> None:
    edits = Edits(
        parse_assignments(["key = 1", "properties.a = 1", "properties.gone = 1", "event_time = 1", "value = 1"])
    )
    letter = Letter(b"old", key="k", properties={"gone": "x", "kept": "y"})
    values = {"0": None, "1": 12, "2": None, "3": "1970-01-01T00:00:01Z", "4": "new"}
    found = edits.apply(letter, json.dumps(values))
    assert found is not None
    assert (found.key, found.properties, found.event_time_ms) == (None, {"kept": "y", "a": "12"}, 1000)
    assert found.payload == b"new"
    with pytest.raises(EditFailed, match="neither a timestamp"):
        edits.apply(Letter(b""), json.dumps(values | {"3": "soon"}))


def test_sp3_a_function_changes_leaves_or_fails() -> None:
    def double(letter: Letter) -> Letter | None:
        if letter.payload == 0:
            return None
        letter.payload = letter.payload * 2
        return letter

    found = Edits(function=double).apply(Letter(4), None)
    assert found is not None and found.payload == 8
    assert Edits(function=double).apply(Letter(0), None) is None
    with pytest.raises(EditFailed, match="the function raised TypeError"):
        Edits(function=double).apply(Letter(None), None)
    with pytest.raises(EditFailed, match="returned int, neither a letter nor None"):
        Edits(function=lambda letter: 3).apply(Letter(1), None)  # type: ignore[arg-type, return-value]


def test_sp3_functions_are_found_by_name() -> None:
    assert load_function("json:dumps") is json.dumps
    for name, reason in [
        ("json", "not of the form module:function"),
        ("no_such_module:f", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("json:nothing", "json has no function nothing; it has .*dumps"),
    ]:
        with pytest.raises(InvalidSetting, match=reason):
            load_function(name)
