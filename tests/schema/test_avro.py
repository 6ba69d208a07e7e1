"""Avro definitions: names, references, and everything that is not one."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.schema.avro import AvroDefinitionError, AvroType, is_jackson, jackson_id, parse_definition


def parse(definition: Any) -> AvroType:
    return parse_definition(json.dumps(definition).encode())


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    described = [each if isinstance(each, dict) else {"name": each[0], "type": each[1]} for each in fields]
    return {"type": "record", "name": name, "fields": described, **more}


def test_a_record_with_everything() -> None:
    type_ = parse(
        record(
            ("a", ["null", "string"]),
            {"name": "b", "type": {"type": "array", "items": "int"}, "aliases": ["c"], "default": None},
            ("e", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
            ("f", {"type": "fixed", "name": "F", "size": 16, "logicalType": "decimal", "precision": 5, "scale": 2}),
            ("m", {"type": "map", "values": {"type": {"type": "long", "logicalType": "timestamp-millis"}}}),
        )
    )
    a, b, e, f, m = type_.fields
    assert (str(type_), str(a.type), str(b.type)) == ("record R", "union of null, string", "array of int")
    assert (b.aliases, b.has_default, b.default, a.has_default) == (("c",), True, None, False)
    assert e.type.symbols == ("X", "Y")
    assert (f.type.size, f.type.logical, f.type.precision, f.type.scale) == (16, "decimal", 5, 2)
    assert str(m.type) == "map of long (timestamp-millis)"


def test_a_type_may_contain_itself() -> None:
    type_ = parse(record(("next", ["null", "R"])))
    assert type_.fields[0].type.parts[1] is type_


def test_references_are_resolved_in_their_namespace_first() -> None:
    inner = record(("x", "int"), name="N")
    other = record(("y", "int"), name="b.N")
    type_ = parse(record(("n", inner), ("o", other), ("p", "N"), ("q", "b.N"), ("r", "a.N"), namespace="a"))
    n, o, p, q, r = (each.type for each in type_.fields)
    assert (n.full_name, o.full_name, type_.full_name) == ("a.N", "b.N", "a.R")
    assert p is n and r is n and q is o


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (record(("x", "integer")), "field x: unknown type 'integer'"),
        (record(("x", 5)), "field x: '5' is not an Avro type"),
        (record(("x", record(("y", 5), name="S"))), "field x.y: '5' is not an Avro type"),
        ({"type": "record", "name": "R", "fields": ["x"]}, "the schema: 'x' is not a field of a record"),
        ({"type": "record", "name": "R", "fields": 5}, "the schema: fields '5' is not a list"),
        (record(("x", {"type": "fixed", "name": "F", "size": "2"})), "field x: fixed F has the size '2'"),
        (record(("x", {"type": "fixed", "name": "F"})), "field x: fixed F has the size 'None'"),
        (None, "the schema: 'None' is not an Avro type"),
    ],
)
def test_the_error_names_the_field(definition: Any, text: str) -> None:
    with pytest.raises(AvroDefinitionError, match=text):
        parse(definition)


def test_a_definition_that_is_no_json_or_too_deep() -> None:
    for data in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(AvroDefinitionError, match=r"not JSON|deeper"):
            parse_definition(data)
    deep: Any = "int"
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(AvroDefinitionError, match="deeper than 100 types"):
        parse(deep)


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "string", "R", "a.R", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "namespace", "fields", "items", "values", "symbols", "size", "aliases"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(documents)
def test_any_json_is_a_definition_or_an_error(document: Any) -> None:
    with contextlib.suppress(AvroDefinitionError):
        parse(document)


def test_documents_of_clients_before_2_1() -> None:
    document = json.dumps({"type": "object", "id": "urn:jsonschema:A"}).encode()
    assert is_jackson(document) and jackson_id(document) == "urn:jsonschema:A"
    for data in (b'"int"', b"{", b"[]", json.dumps(record()).encode()):
        assert not is_jackson(data)
