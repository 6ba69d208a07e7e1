"""KEY_VALUE framing: joined, split, cut anywhere; and the two schemas of a schema."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.schema.key_value import (
    KeyValueError,
    Part,
    decode_key_value,
    decode_whole,
    encode_key_value,
    is_separated,
    parts_of,
)

values = st.none() | st.binary(max_size=20)


@given(values, values, st.binary(max_size=5))
def test_round_trip(key: bytes | None, value: bytes | None, after: bytes) -> None:
    data = encode_key_value(key, value)
    assert decode_whole(data) == (key, value)
    assert decode_key_value(data + after) == (key, value, len(data))


def test_the_layout_as_documented() -> None:
    assert encode_key_value(b"k", None) == struct.pack(">i", 1) + b"k" + struct.pack(">i", -1)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_truncated_anywhere(key: bytes, value: bytes) -> None:
    data = encode_key_value(key, value)
    for end in range(len(data)):
        with pytest.raises(KeyValueError, match="ends before"):
            decode_key_value(data[:end])


@given(st.binary(max_size=30))
def test_garbage_raises_nothing_else(data: bytes) -> None:
    with contextlib.suppress(KeyValueError):
        decode_key_value(data)


def test_bytes_after_the_value_are_rejected_where_nothing_may_follow() -> None:
    with pytest.raises(KeyValueError, match="has 2 bytes after the value"):
        decode_whole(encode_key_value(b"k", b"v") + b"!!")


def test_the_schemas_of_key_and_value() -> None:
    properties = {"key.schema.type": "STRING", "value.schema.type": "JSON", "value.schema.properties": '{"a":"b"}'}
    key, value = parts_of(encode_key_value(None, b"{}"), properties)
    assert key == Part("STRING", b"", "{}")
    assert value == Part("JSON", b"{}", '{"a":"b"}')
    assert parts_of(encode_key_value(b"", b""), {})[0].type == "BYTES"


def test_the_location_of_a_messages_key() -> None:
    assert [is_separated(each) for each in ({}, {"kv.encoding.type": "INLINE"}, {"kv.encoding.type": "SEPARATED"})] == [
        False,
        False,
        True,
    ]
