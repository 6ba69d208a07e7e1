"""The five compression types of the protocol: bytes in, bytes out, never more than announced.

Knows nothing of messages. The codecs are imported on first use: most brokers never decompress.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from magnetar.wire.errors import EntryError
from magnetar.wire.schema_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

if TYPE_CHECKING:
    from types import ModuleType

_ZSTD_LEVEL = 3  # as the clients


class CompressionError(EntryError):
    """Compressed data whose size is not the announced one, or exceeds the limit."""


def compress(compression: CompressionType.ValueType, data: bytes) -> bytes:
    if compression == NONE:
        return data
    if compression == ZLIB:
        return zlib.compress(data)
    codecs = _codecs()
    if compression == LZ4:
        return bytes(codecs.lz4.compress_block(data, store_size=False))
    if compression == ZSTD:
        return bytes(codecs.zstd.compress(data, _ZSTD_LEVEL))
    if compression == SNAPPY:
        return bytes(codecs.snappy.compress_raw(data))
    raise CompressionError(f"compression type {compression} is unknown")


def decompress(
    compression: CompressionType.ValueType, data: bytes, uncompressed_size: int, size_max: int | None = None
) -> bytes:
    """Exactly `uncompressed_size` bytes, or a CompressionError.

    For NONE the announced size is ignored: not every producer sets it.
    """
    size = len(data) if compression == NONE else uncompressed_size
    if size_max is not None and size > size_max:
        raise CompressionError(f"uncompressed size of {size} bytes exceeds the limit of {size_max} bytes")
    if compression == NONE:
        return data
    if size < 0:
        raise CompressionError(f"uncompressed size of {size} bytes is negative")
    if compression == ZLIB:
        return _inflate(data, size)
    return _decompress_into(compression, data, size)


def _codecs() -> ModuleType:
    import cramjam

    return cramjam


def _inflate(data: bytes, size: int) -> bytes:
    # Java ends its streams with a sync flush and not with a trailer, which cramjam reports as truncated.
    # The limit is one byte more than announced: 0 would mean no limit, and the byte shows that a stream goes on.
    try:
        inflated = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise CompressionError(f"ZLIB data of {len(data)} bytes is corrupted: {error}") from None
    if len(inflated) != size:
        more = "more than " if len(inflated) > size else f"{len(inflated)} bytes instead of "
        raise CompressionError(f"ZLIB data of {len(data)} bytes decompresses to {more}{size} bytes")
    return inflated


def _decompress_into(compression: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    codecs = _codecs()
    output = bytearray(size)
    try:
        if compression == LZ4:
            # Without output_len it would first try to read the block's first four bytes as its size.
            written = codecs.lz4.decompress_block_into(data, output, output_len=size)
        elif compression == ZSTD:
            written = codecs.zstd.decompress_into(data, output)
        elif compression == SNAPPY:
            written = codecs.snappy.decompress_raw_into(data, output)
        else:
            raise CompressionError(f"compression type {compression} is unknown")
    except codecs.DecompressionError as error:
        name = CompressionType.Name(compression)
        raise CompressionError(
            f"{name} data of {len(data)} bytes does not decompress to {size} bytes: {error}"
        ) from None
    if written != size:
        name = CompressionType.Name(compression)
        raise CompressionError(
            f"{name} data of {len(data)} bytes decompresses to {written} bytes instead of {size} bytes"
        )
    return bytes(output)
