"""Varints: protobuf's and Avro's, whole, cut off and too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.schema_pb2 import CommandSuccess
from magnetar.wire.varint import decode_varint, decode_zigzag, encode_varint, encode_zigzag

UINT64_MAX = (1 << 64) - 1

# Numbers at the edges of their encodings come up too rarely by chance.
EDGES = [1 << bits for bits in range(64)] + [(1 << bits) - 1 for bits in range(65)]
unsigned = st.integers(0, UINT64_MAX) | st.sampled_from(EDGES)
signed = st.integers(-(1 << 63), (1 << 63) - 1)


@given(unsigned)
def test_varints_are_those_of_protobuf(value: int) -> None:
    expected = CommandSuccess(request_id=value).SerializeToString()
    assert b"\x08" + encode_varint(value) == expected


def test_every_varint_of_one_and_two_bytes_and_the_edges_of_the_others() -> None:
    edges = [(1 << bits) - difference for bits in range(14, 64) for difference in (1, 0)]
    for value in (*range(1 << 14), *edges):
        assert b"\x08" + encode_varint(value) == CommandSuccess(request_id=value).SerializeToString()


def test_minus_one_is_the_largest_number() -> None:
    assert encode_varint(-1) == encode_varint(UINT64_MAX) == b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_a_number_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        encode_varint(value)


@given(unsigned, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_decoded_where_it_is(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(signed, st.binary(max_size=3), st.binary(max_size=3))
def test_a_zigzag_varint_is_decoded_where_it_is(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_zigzag(value)
    assert decode_zigzag(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


def test_small_zigzag_numbers_alternate() -> None:
    assert [encode_zigzag(value) for value in (0, -1, 1, -2, 2)] == [b"\0", b"\1", b"\2", b"\3", b"\4"]


@given(unsigned)
def test_a_varint_that_is_cut_off(value: int) -> None:
    encoded = encode_varint(value)
    for end in range(len(encoded)):
        for decode in (decode_varint, decode_zigzag):
            with pytest.raises(IndexError):
                decode(encoded[:end], 0)


@pytest.mark.parametrize("decode", [decode_varint, decode_zigzag])
def test_a_varint_that_is_too_long(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        decode(b"\x80" * 10 + b"\x01", 0)
