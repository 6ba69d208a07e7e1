"""Metadata with a map of properties are the same on the wire as Pulsar's, whatever is in them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.wire.metadata import MetadataError
from magnetar.wire.property_map import parse_map_metadata
from magnetar.wire.schema_pb2 import EncryptionKeys, KeyValue, MessageMetadata
from magnetar.wire.text import octets
from magnetar.wire.varint import encode_varint
from tests.wire.hostile_text import metadata_texts, with_octets

_FIELDS = MessageMetadata.DESCRIPTOR.fields
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.text(max_size=8),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=8),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, (1 << 64) - 1),
    FieldDescriptor.TYPE_UINT32: st.integers(0, (1 << 32) - 1),
}
_MESSAGES: dict[str, st.SearchStrategy[Any]] = {
    "KeyValue": st.builds(KeyValue, key=st.sampled_from(["", "a", "b", "ü"]), value=st.text(max_size=4)),
    "EncryptionKeys": st.builds(EncryptionKeys, key=st.text(max_size=4), value=st.binary(max_size=4)),
}
UNKNOWN = st.lists(st.tuples(st.integers(1000, 1003), st.binary(max_size=5)), max_size=3)


def _value(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        one = _MESSAGES[field.message_type.name]
    elif field.enum_type is not None:
        one = st.sampled_from([value.number for value in field.enum_type.values])
    else:
        one = _VALUES[field.type]
    return st.lists(one, max_size=4) if field.label == FieldDescriptor.LABEL_REPEATED else one


@st.composite
def metadatas(draw: st.DrawFn) -> MessageMetadata:
    """Any fields, required ones too may be missing."""
    names = draw(st.sets(st.sampled_from([field.name for field in _FIELDS]), max_size=len(_FIELDS)))
    return MessageMetadata(**{field.name: draw(_value(field)) for field in _FIELDS if field.name in names})


def _with_unknown(section: bytes, unknown: list[tuple[int, bytes]]) -> bytes:
    for number, value in unknown:
        section += encode_varint(number << 3 | 2) + encode_varint(len(value)) + value
    return section


def meaning(section: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Properties, of which the last one of a name counts, and everything else."""
    found = MessageMetadata.FromString(section)
    properties = {octets(pair.key): octets(pair.value) for pair in found.properties}
    found.ClearField("properties")
    return properties, found.SerializePartialToString(deterministic=True)


@given(metadatas(), metadata_texts, UNKNOWN)
@example(MessageMetadata(), {"properties": b"\xff"}, [])
@example(MessageMetadata(), {"partition_key": b"\xff\xfe", "producer_name": b"\xc3\x28"}, [(1000, b"x")])
def test_the_round_trip_means_the_same(
    metadata: MessageMetadata, texts: dict[str, bytes], unknown: list[tuple[int, bytes]]
) -> None:
    section = _with_unknown(with_octets(metadata, texts), unknown)
    assert meaning(parse_map_metadata(section).SerializePartialToString()) == meaning(section)


@given(metadatas())
def test_fields_have_the_values_of_the_metadata(metadata: MessageMetadata) -> None:
    found = parse_map_metadata(metadata.SerializePartialToString())
    assert dict(found.properties.items()) == {pair.key: pair.value for pair in metadata.properties}
    assert bool(found.encryption_keys) == bool(metadata.encryption_keys)
    for name in ("producer_name", "sequence_id", "publish_time", "partition_key", "num_chunks_from_msg"):
        assert getattr(found, name) == getattr(metadata, name), name
    optional = ("partition_key", "replicated_from", "num_messages_in_batch", "marker_type", "deliver_at_time")
    for name in (*optional, "highest_sequence_id"):
        assert found.HasField(name) == metadata.HasField(name), name  # type: ignore[arg-type]


@given(metadatas(), st.text(max_size=4), st.text(max_size=4))
def test_changes_are_those_of_the_metadata(metadata: MessageMetadata, name: str, value: str) -> None:
    section = metadata.SerializePartialToString()
    found = parse_map_metadata(section)
    found.properties[name] = value
    if "a" in found.properties:
        del found.properties["a"]
    found.sequence_id, found.publish_time, found.producer_name = 5, 6, "new"
    for field in ("replicate_to", "replicated_from", "deliver_at_time", "highest_sequence_id"):
        found.ClearField(field)
    expected = MessageMetadata.FromString(section)
    pairs = {pair.key: pair.value for pair in expected.properties} | {name: value}
    pairs.pop("a", None)
    expected.ClearField("properties")
    expected.properties.extend(KeyValue(key=key, value=text) for key, text in pairs.items())
    expected.sequence_id, expected.publish_time, expected.producer_name = 5, 6, "new"
    for field in ("replicate_to", "replicated_from", "deliver_at_time", "highest_sequence_id"):
        expected.ClearField(field)  # type: ignore[arg-type]
    assert meaning(found.SerializePartialToString()) == meaning(expected.SerializePartialToString())


@given(st.one_of(st.binary(max_size=40), metadatas().map(MessageMetadata.SerializePartialToString)), st.data())
def test_what_is_no_metadata_is_an_error_for_both(section: bytes, data: st.DataObject) -> None:
    """But for keys of encryption, of which only the number is read."""
    if section and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(section) - 1))
        section = section[:index] + data.draw(st.binary(max_size=2)) + section[index + 1 :]
    try:
        MessageMetadata.FromString(section)
        is_metadata = True
    except DecodeError:
        is_metadata = False
    try:
        found = parse_map_metadata(section)
    except MetadataError:
        assert not is_metadata
        return
    assert is_metadata or found.encryption_keys


def test_the_error_names_the_size() -> None:
    with pytest.raises(MetadataError, match="metadata of 2 bytes is not a protobuf"):
        parse_map_metadata(b"\x0a\x09")


def test_the_last_property_of_a_name_counts() -> None:
    pairs = [KeyValue(key=key, value=value) for key, value in (("a", "1"), ("b", "2"), ("a", "3"))]
    found = parse_map_metadata(MessageMetadata(properties=pairs).SerializePartialToString())
    assert dict(found.properties.items()) == {"a": "3", "b": "2"}
