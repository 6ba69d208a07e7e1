"""Masks: only the masked field changes, and unreadable values are never copied."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client import Schema
from magnetar.pipelines.transform import avro_masks, json_masks
from magnetar.pipelines.transform.mask_paths import CannotMask, wanted
from magnetar.pipelines.transform.masks import Masks
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import Mask, MaskKind
from magnetar.schema.avro import parse_definition
from magnetar.wire.varint import encode_zigzag

HASH, NULL, FIXED = MaskKind.HASH, MaskKind.NULL, MaskKind.FIXED
NESTED = hashlib.sha256(b'{"a":[2],"b":1.50}').hexdigest()
V = (1).to_bytes(8, "big")


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def masks_of(schema: Schema | None, *masks: Mask) -> Masks:
    return Masks(masks, "persistent://public/default/people", lambda version: schema if version else None)


def in_json(text: str, *masks: Mask) -> str:
    return json_masks.masked(text.encode(), wanted(masks)).decode()


# -- JSON


@pytest.mark.parametrize(
    ("before", "mask", "after"),
    [
        ('{"a":1,"email":"x@y"}', Mask("email"), f'{{"a":1,"email":"{sha("x@y")}"}}'),
        ('{"email":"x@y","a":1}', Mask("email", NULL), '{"email":null,"a":1}'),
        ('{"email":"x@y"}', Mask("email", FIXED, 'a "text"'), '{"email":"a \\"text\\""}'),
        ('{"email":null}', Mask("email"), '{"email":null}'),
        ('{"email":null}', Mask("email", FIXED, "-"), '{"email":"-"}'),
        ('{"email":{"b":1.50,"a":[ 2 ]}}', Mask("email"), f'{{"email":"{NESTED}"}}'),
        ('{"email":17}', Mask("email"), f'{{"email":"{sha("17")}"}}'),
        ('{"p":{"email":"x","n":1}}', Mask("p.email", NULL), '{"p":{"email":null,"n":1}}'),
        ('{"p":[{"e":"x"},{"n":1},[{"e":2}],3]}', Mask("p.e", NULL), '{"p":[{"e":null},{"n":1},[{"e":null}],3]}'),
        ('{"emails":["x","y"]}', Mask("emails"), f'{{"emails":["{sha("x")}","{sha("y")}"]}}'),
        ('{"emails":["x","y"]}', Mask("emails", NULL), '{"emails":null}'),
        ('{"p.email":"x","p":{"email":"y"}}', Mask("p.email", NULL), '{"p.email":null,"p":{"email":null}}'),
        ('{"\\u0065mail":"x"}', Mask("email", NULL), '{"email":null}'),
        ('{"email":"x","email":"y"}', Mask("email", NULL), '{"email":null}'),
        ('{"p":{"email":"x"},"p":{}}', Mask("p.email", NULL), '{"p":{}}'),
        ('[{"email":"x"}]', Mask("email", NULL), '[{"email":null}]'),
        (' {"n": 1.0e+5, "z": [1 , 2], "email": "x"} ', Mask("email", NULL), '{"n":1.0e+5,"z":[1 , 2],"email":null}'),
        ('{"email":"\\u00e4"}', Mask("email"), f'{{"email":"{sha("ä")}"}}'),
        ('{"a":1,"b":{"email":"x"}}', Mask("email"), '{"a":1,"b":{"email":"x"}}'),
        ('{"p":"text"}', Mask("p.email"), '{"p":"text"}'),
    ],
)  # fmt: skip
def test_sp6_json(before: str, mask: Mask, after: str) -> None:
    assert in_json(before, mask) == after


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"text", b'"text"', b"17", b"null", b'{"email":"x"', b'{"email":"x"}}', b'{"a":\xff}', b'{"a":"\xff"}'),
        *(b'{"email":"x",}', b'{"a":NaN}', b'\xef\xbb\xbf{"email":"x"}', b"\x00\x01", b'{"p":[{"email":"x"},}'),
    ],
)
def test_invalid_json_is_refused_and_not_copied(value: bytes) -> None:
    json_schema = Schema(type="JSON", data=b"")
    for schema, version in ((None, None), (json_schema, V)):
        with pytest.raises(MessageRefused) as refused:
            masks_of(schema, Mask("email")).masked(value, version)
        assert "persistent://public/default/people" in str(refused.value)
        assert "email" in str(refused.value)


def test_a_value_without_a_schema_must_be_an_object() -> None:
    masks = masks_of(None, Mask("email", NULL))
    assert masks.masked(b'{"email":"x"}', None) == b'{"email":null}'
    with pytest.raises(MessageRefused, match="it is not a JSON object"):
        masks.masked(b'[{"email":"x"}]', None)


def test_too_deeply_nested_json_is_refused() -> None:
    deep = b'{"email":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(MessageRefused, match=r"deep|JSON"):
        masks_of(None, Mask("email")).masked(deep, None)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.sampled_from(["a", "b", "email", "p", "x y"]) | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))
objects = st.dictionaries(names, values, max_size=5)


def nulled(value: Any, path: list[str]) -> Any:
    """A mask of kind null on parsed JSON, by another algorithm."""
    if isinstance(value, list):
        return [nulled(each, path) for each in value]
    if not isinstance(value, dict):
        return value
    if len(path) == 1:
        return {name: None if name == path[0] else each for name, each in value.items()}
    return {name: nulled(each, path[1:]) if name == path[0] else each for name, each in value.items()}


@given(objects, st.sampled_from(["email", "p.email", "a.p.b"]), st.sampled_from([None, 2]))
def test_only_the_masked_field_of_json_differs(value: dict[str, Any], field: str, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=indent is None)
    try:
        masked = in_json(text, Mask(field, NULL))
    except CannotMask:
        assert "\\ud" in text or any(0xD800 <= ord(letter) < 0xE000 for letter in text)  # no valid Unicode text
        return
    result = json.loads(masked)
    assert result == nulled(value, field.split("."))
    assert list(result) == list(value)


# -- Avro

PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "org.example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": "string"},
        {"name": "nick", "type": ["null", "string"]},
        {"name": "photo", "type": "bytes"},
        {"name": "weight", "type": "double"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "mails", "type": {"type": "array", "items": "string"}},
        {"name": "attributes", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "home", "type": {"type": "record", "name": "Address", "fields": [
            {"name": "street", "type": ["string", "null"]},
            {"name": "floors", "type": {"type": "array", "items": "int"}}]}},
        {"name": "others", "type": {"type": "array", "items": "Address"}},
        {"name": "choice", "type": ["null", "int", "float", "Address"]},
        {"name": "friend", "type": ["null", "Person"]},
        {"name": "is_new", "type": "boolean"},
        {"name": "nothing", "type": "null"},
    ],
}  # fmt: skip
DEFINITION = json.dumps(PERSON).encode()
PARSED = fastavro.parse_schema(json.loads(json.dumps(PERSON).replace('"logicalType": "decimal", ', "")))

addresses = st.fixed_dictionaries(
    {"street": st.none() | st.text(), "floors": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)}
)
floats = st.floats(width=32, allow_nan=False)


def people(friends: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        "id": st.integers(-(2**63), 2**63 - 1),
        "email": st.text(max_size=100),
        "nick": st.none() | st.text(),
        "photo": st.binary(max_size=200),
        "weight": st.floats(allow_nan=False),
        "kind": st.sampled_from(["A", "B"]),
        "digest": st.binary(min_size=4, max_size=4),
        "paid": st.binary(max_size=4),
        "mails": st.lists(st.text(), max_size=4),
        "attributes": st.dictionaries(st.sampled_from(["ssn", "a", "b.c", ""]), st.none() | st.text()),
        "home": addresses,
        "others": st.lists(addresses, max_size=3),
        "choice": st.none() | st.integers(-9, 9) | addresses | floats.filter(lambda each: not each.is_integer()),
        "friend": friends,
        "is_new": st.booleans(),
        "nothing": st.none(),
    }
    return st.fixed_dictionaries(fields)


persons = people(st.none() | people(st.none()))


def avro(value: Any, schema: Any = PARSED) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read(data: bytes, schema: Any = PARSED) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), schema, None)


def in_avro(value: bytes, *masks: Mask, definition: bytes = DEFINITION) -> bytes:
    return avro_masks.masker(parse_definition(definition), wanted(masks))(value)


@given(persons)
def test_sp6_only_the_masked_fields_of_avro_differ(person: dict[str, Any]) -> None:
    masks = (
        Mask("email"),
        Mask("photo", FIXED, "gone"),
        Mask("nick", NULL),
        Mask("mails"),
        Mask("attributes.ssn", FIXED, "-"),
        Mask("attributes.b.c", NULL),
        Mask("others.street"),
        Mask("home.street", NULL),
        Mask("friend.email", FIXED, "-"),
        Mask("choice.street"),
        Mask("unheard.of"),
    )
    expected = copy_of(person)
    expected["email"] = sha(person["email"])
    expected["photo"] = b"gone"
    expected["nick"] = None
    expected["mails"] = [sha(mail) for mail in person["mails"]]
    if "ssn" in person["attributes"]:
        expected["attributes"]["ssn"] = "-"
    if "b.c" in person["attributes"]:
        expected["attributes"]["b.c"] = None
    expected["home"]["street"] = None
    for address in [*expected["others"], expected["choice"]]:
        if isinstance(address, dict) and address["street"] is not None:
            address["street"] = sha(address["street"])
    if expected["friend"] is not None:
        expected["friend"]["email"] = "-"
    assert read(in_avro(avro(person), *masks)) == expected


def copy_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: copy_of(each) for name, each in value.items()}
    return [copy_of(each) for each in value] if isinstance(value, list) else value


@given(persons)
def test_avro_without_the_field_keeps_its_bytes(person: dict[str, Any]) -> None:
    data = avro(person)
    assert in_avro(data, Mask("unknown"), Mask("home.unknown"), Mask("id.deeper")) == data


@given(persons, st.data())
def test_truncated_and_oversized_avro_is_refused(person: dict[str, Any], data: st.DataObject) -> None:
    value = avro(person)
    cut = data.draw(st.integers(0, len(value) - 1))
    for broken in (value[:cut], value + b"\x00"):
        for mask in (Mask("email"), Mask("unknown")):
            with pytest.raises(CannotMask):
                in_avro(broken, mask)


@given(st.binary(max_size=60))
def test_any_bytes_are_masked_or_refused(value: bytes) -> None:
    with contextlib.suppress(CannotMask):
        in_avro(value, Mask("email"), Mask("friend.email"), Mask("attributes.ssn", FIXED, "-"))


def test_arrays_and_maps_in_sized_blocks_are_masked_too() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "string"}}]}
    item = b"\x02a\x02x"
    blocks = b"\x01" + bytes([len(item) << 1]) + item + b"\x02" + b"\x02b\x02y" + b"\x00"  # -1 and its size, then 1
    masked = in_avro(blocks, Mask("m.a", FIXED, "-"), definition=json.dumps(schema).encode())
    assert read(masked, schema) == {"m": {"a": "-", "b": "y"}}


def test_a_fixed_text_also_hides_null() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "string"]}]}
    definition = json.dumps(schema).encode()
    masked = {
        in_avro(avro({"n": value}, schema), Mask("n", FIXED, "-"), definition=definition) for value in (None, "x")
    }
    assert [read(value, schema) for value in masked] == [{"n": "-"}]


def test_a_union_with_one_branch() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": ["string"]}, {"name": "k", "type": "int"}],
    }
    masked = in_avro(avro({"n": "x", "k": 5}, schema), Mask("n"), definition=json.dumps(schema).encode())
    assert read(masked, schema) == {"n": sha("x"), "k": 5}


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (Mask("id"), "field id has type long: a mask of kind hash needs string or bytes"),
        (Mask("id", NULL), "field id has type long, which cannot be null"),
        (Mask("email", NULL), "field email has type string, which cannot be null"),
        (Mask("kind", FIXED, "A"), "field kind has type enum Kind: a mask of kind fixed"),
        (Mask("digest"), "field digest has type fixed Digest"),
        (Mask("paid"), "field paid has type bytes (decimal)"),
        (Mask("home"), "field home has type record Address"),
        (Mask("home.floors"), "field home.floors has type int"),
        (Mask("mails", NULL), "field mails has type array of string, which cannot be null"),
        (Mask("choice"), "field choice has type int"),
    ],
)
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_field_that_cannot_hold_its_mask_is_refused_with_its_type(mask: Mask, reason: str, kind: str) -> None:
    masks = masks_of(Schema(type=kind, data=DEFINITION), mask)
    with pytest.raises(MessageRefused) as refused:
        masks.masked(b"{}", V)
    assert reason in str(refused.value)
    assert "persistent://public/default/people" in str(refused.value)


# -- by schema


def test_json_may_have_fields_outside_its_schema() -> None:
    masks = masks_of(Schema(type="JSON", data=DEFINITION), Mask("extra"), Mask("email", FIXED, "-"))
    assert masks.masked(b'{"email":"x","extra":1}', V) == f'{{"email":"-","extra":"{sha("1")}"}}'.encode()


@pytest.mark.parametrize("kind", ["PROTOBUF", "PROTOBUF_NATIVE", "INT32", "EXTERNAL"])
def test_other_schemas_are_refused(kind: str) -> None:
    with pytest.raises(MessageRefused, match=f"its schema has type {kind}, and masks need JSON or AVRO"):
        masks_of(Schema(type=kind), Mask("email")).masked(b'{"email":"x"}', V)


def test_a_version_that_is_gone_is_refused() -> None:
    with pytest.raises(MessageRefused, match="no schema of version 0000000000000001"):
        masks_of(None, Mask("email")).masked(b'{"email":"x"}', V)


def test_versions_are_requested_once() -> None:
    asked = []

    def schema_of(version: bytes | None) -> Schema:
        asked.append(version)
        return Schema(type="JSON", data=DEFINITION)

    masks = Masks((Mask("email"),), "t", schema_of)
    for version in (V, V, b"\x00" * 8, V):
        masks.masked(b"{}", version)
    assert asked == [V, b"\x00" * 8]


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_only_the_value_of_a_key_value_is_masked(encoding: str, kind: str) -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "email", "type": "string"}]}
    definition = json.dumps(record).encode()
    schema = Schema(
        type="KEY_VALUE",
        data=sized(definition) + sized(definition),
        properties={"key.schema.type": kind, "value.schema.type": kind, "kv.encoding.type": encoding},
    )
    plain, hidden = ({"email": "x"}, {"email": sha("x")})
    before, after = ((avro(each, record) if kind == "AVRO" else compact(each)) for each in (plain, hidden))
    masks = masks_of(schema, Mask("email"))
    if encoding == "SEPARATED":
        assert masks.masked(before, V) == after
        return
    assert masks.masked(sized(before) + sized(before), V) == sized(before) + sized(after)
    no_value = sized(before) + struct.pack(">i", -1)
    assert masks.masked(no_value, V) == no_value
    for broken in (b"", sized(before), sized(before) + sized(before) + b"x", b"\x00\x00\x00\x09abc"):
        with pytest.raises(MessageRefused):
            masks.masked(broken, V)


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@given(st.integers(-(2**63), 2**63 - 1))
def test_avro_numbers(number: int) -> None:
    assert avro(number, "long") == encode_zigzag(number)


def test_hashes_do_not_depend_on_the_notation_of_json() -> None:
    spellings = ['{"v":{"b":[1,"ä"],"a":{}}}', '{ "v" : { "a":{ } , "b" : [ 1,"\\u00e4" ] } }']
    assert len({json.loads(in_json(text, Mask("v")))["v"] for text in spellings}) == 1
