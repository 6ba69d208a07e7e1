"""Columns of varints: the same numbers as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from magnetar.spark.codec.varints import decode_columns, decode_varints
from magnetar.wire.varint import SIZE_MAX, decode_varint, encode_varint

EDGES = [1 << bits for bits in range(64)] + [(1 << bits) - 1 for bits in range(65)]
numbers = st.lists(st.integers(0, (1 << 64) - 1) | st.sampled_from(EDGES), max_size=20)


@given(numbers, st.binary(max_size=5))
def test_decoded_as_one_by_one(values: list[int], before: bytes) -> None:
    encoded = [encode_varint(value) for value in values]
    ends = np.cumsum([len(before), *map(len, encoded)]).astype(np.int64)
    data = np.frombuffer(before + b"".join(encoded) + bytes(SIZE_MAX), np.uint8)
    found, after, overlong = decode_varints(data, ends[:-1])
    assert found.tolist() == values
    assert after.tolist() == ends[1:].tolist()
    assert len(overlong) == 0
    assert [decode_varint(data.tobytes(), at) for at in ends[:-1].tolist()] == list(
        zip(values, ends[1:].tolist(), strict=True)
    )


def test_more_than_ten_bytes_are_reported() -> None:
    data = np.frombuffer(b"\x05" + b"\x80" * 20, np.uint8)
    values, after, overlong = decode_varints(data, np.array([0, 1], np.int64))
    assert (int(values[0]), after.tolist(), overlong.tolist()) == (5, [1, 11], [1])


@given(st.integers(1, SIZE_MAX - 1), st.data())
def test_varints_of_one_length(size: int, data: st.DataObject) -> None:
    low = 0 if size == 1 else 1 << 7 * (size - 1)
    values = data.draw(st.lists(st.integers(low, (1 << 7 * size) - 1), min_size=1, max_size=5))
    columns = np.array([list(encode_varint(value)) for value in values], np.uint8)
    assert decode_columns(columns).tolist() == values
