"""Schemas that clients bring again and again are parsed and compared once."""

from __future__ import annotations

import json

import pytest

from magnetar.bounds import SCHEMA_VERDICTS, SCHEMAS_PARSED
from magnetar.broker.schema import avro, compatibility, definition
from magnetar.errors import IncompatibleSchema
from magnetar.schema.types import Schema, SchemaType


def schema(*fields: str) -> Schema:
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": "string"} for name in fields]}
    return Schema(SchemaType.AVRO, json.dumps(record).encode())


def test_bound_schemas_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    definition._parse_avro.cache_clear()
    for number in range(SCHEMAS_PARSED.limit + 10):
        for _ in range(3):
            definition.check(schema(f"f{number}"))
    found = definition._parse_avro.cache_info()
    assert (found.currsize, found.misses) == (SCHEMAS_PARSED.limit, SCHEMAS_PARSED.limit + 10)


def test_bound_schema_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    original = avro.unreadable

    def counted(*, reader: avro.Definition, writer: avro.Definition) -> str:
        nonlocal compared
        compared += 1
        return original(reader=reader, writer=writer)

    monkeypatch.setattr(avro, "unreadable", counted)
    compatibility._verdicts.clear()
    old, new = schema("a"), schema("a", "b")
    for _ in range(5):
        with pytest.raises(IncompatibleSchema, match="cannot read"):
            compatibility.check(new, [(0, old)], "BACKWARD")
        compatibility.check(new, [(0, old)], "FORWARD")
    assert compared == 2
    for number in range(SCHEMA_VERDICTS.limit + 10):
        compatibility.check(new, [(0, schema("a", "b", f"c{number}"))], "BACKWARD")
    assert len(compatibility._verdicts) == SCHEMA_VERDICTS.limit
