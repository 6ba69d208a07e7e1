"""Compression: round trips, streams as other clients write them, and data that lies about its size."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.compression import CompressionError, compress, decompress
from magnetar.wire.schema_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

TEXT = b"some text that repeats, some text that repeats, " * 40
ALL = [NONE, LZ4, ZLIB, ZSTD, SNAPPY]
REAL = [LZ4, ZLIB, ZSTD, SNAPPY]
each_type = pytest.mark.parametrize("compression", ALL, ids=CompressionType.Name)
each_real_type = pytest.mark.parametrize("compression", REAL, ids=CompressionType.Name)


@each_type
class TestRoundTrip:
    @given(data=st.binary(max_size=2000))
    def test_any_bytes(self, compression: CompressionType.ValueType, data: bytes) -> None:
        assert decompress(compression, compress(compression, data), len(data)) == data

    @given(data=st.sampled_from([b"", b"a", b"ab", b"abc", b"abcd"]), repetitions=st.integers(0, 5000))
    def test_repetitive_bytes(self, compression: CompressionType.ValueType, data: bytes, repetitions: int) -> None:
        data *= repetitions
        assert decompress(compression, compress(compression, data), len(data), len(data)) == data

    def test_is_bytes(self, compression: CompressionType.ValueType) -> None:
        assert type(compress(compression, TEXT)) is bytes
        assert type(decompress(compression, compress(compression, TEXT), len(TEXT))) is bytes


class TestOtherWriters:
    def test_every_type_is_known(self) -> None:
        assert sorted(CompressionType.values()) == sorted(ALL)

    def test_a_zlib_stream_as_java_leaves_it(self) -> None:
        stream = zlib.compressobj()
        data = stream.compress(TEXT) + stream.flush(zlib.Z_SYNC_FLUSH)
        assert decompress(ZLIB, data, len(TEXT)) == TEXT

    def test_an_lz4_block_is_raw(self) -> None:
        assert decompress(LZ4, b"\x50hello", 5) == b"hello"

    def test_an_lz4_block_that_could_be_read_with_a_size_before_it(self) -> None:
        block = b"\xf0\x00" + b"\x00\x00\x3fabc\x03\x00\xd5\x50vwxyz"  # also 240, then a block of 240 bytes
        assert decompress(LZ4, block, 15) == block[2:]
        with pytest.raises(CompressionError):
            decompress(LZ4, block, 240)

    def test_a_snappy_block_is_raw(self) -> None:
        assert decompress(SNAPPY, b"\x05\x10hello", 5) == b"hello"

    def test_none_does_not_need_a_size(self) -> None:
        assert decompress(NONE, TEXT, 0) == TEXT


class TestLies:
    @each_real_type
    @pytest.mark.parametrize("difference", [-len(TEXT), -1, 1, 1000])
    def test_a_wrong_size(self, compression: CompressionType.ValueType, difference: int) -> None:
        with pytest.raises(CompressionError, match=CompressionType.Name(compression)):
            decompress(compression, compress(compression, TEXT), len(TEXT) + difference)

    @each_type
    def test_a_size_above_the_limit(self, compression: CompressionType.ValueType) -> None:
        with pytest.raises(CompressionError, match="uncompressed size of 1920 bytes exceeds the limit of 1919 bytes"):
            decompress(compression, compress(compression, TEXT), len(TEXT), len(TEXT) - 1)

    @each_real_type
    def test_a_negative_size(self, compression: CompressionType.ValueType) -> None:
        with pytest.raises(CompressionError, match="-1 bytes is negative"):
            decompress(compression, TEXT, -1)

    @each_real_type
    def test_a_truncated_stream(self, compression: CompressionType.ValueType) -> None:
        data = compress(compression, TEXT)
        for size in range(len(data) // 2):
            with pytest.raises(CompressionError):
                decompress(compression, data[:size], len(TEXT))

    @each_real_type
    def test_a_bomb_does_not_grow_beyond_its_size(self, compression: CompressionType.ValueType) -> None:
        bomb = compress(compression, bytes(10_000_000))
        with pytest.raises(CompressionError):
            decompress(compression, bomb, 1000)

    def test_an_unknown_type(self) -> None:
        unknown: CompressionType.ValueType = 99  # type: ignore[assignment]
        with pytest.raises(CompressionError, match="compression type 99 is unknown"):
            compress(unknown, TEXT)
        with pytest.raises(CompressionError, match="compression type 99 is unknown"):
            decompress(unknown, TEXT, len(TEXT))

    @each_real_type
    @given(data=st.binary(max_size=100), size=st.integers(0, 1000))
    def test_garbage_raises_nothing_else(self, compression: CompressionType.ValueType, data: bytes, size: int) -> None:
        with contextlib.suppress(CompressionError):
            assert len(decompress(compression, data, size)) == size

    @each_real_type
    @given(position=st.integers(0, 200), change=st.integers(1, 255))
    def test_corruption_raises_nothing_else(
        self, compression: CompressionType.ValueType, position: int, change: int
    ) -> None:
        data = bytearray(compress(compression, TEXT))
        data[position % len(data)] ^= change
        with contextlib.suppress(CompressionError):
            assert len(decompress(compression, bytes(data), len(TEXT))) == len(TEXT)


def test_the_codecs_are_not_imported_before_they_are_needed() -> None:
    program = "import sys, magnetar.wire.batch; sys.exit('cramjam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
