"""Varints: integers of one to ten bytes, seven bits each, lowest first, as protobuf and Avro (zigzag) write them.

Owns one number at a time; Spark reads columns of them with `spark.codec.varints`.
"""

from __future__ import annotations

SIZE_MAX = 10

# Fourteen bits at a time: two lookups encode any number below 2^28.
_MORE = [bytes((septet | 0x80,)) for septet in range(128)]
ONE_BYTE = [bytes((septet,)) for septet in range(128)]
"""The varints of the numbers below 128, for lengths that are known to be short."""
_FOURTEEN_BITS_MORE = [low + high for high in _MORE for low in _MORE]
_FOURTEEN_BITS_LAST = ONE_BYTE + [low + high for high in ONE_BYTE[1:] for low in _MORE]


def encode_varint(value: int) -> bytes:
    """A protobuf varint of 64 bits: a negative number is encoded as its two's complement, -1 as 2^64-1."""
    high = value >> 14
    if not high:
        return _FOURTEEN_BITS_LAST[value]
    if 0 < high < 0x4000:
        return _FOURTEEN_BITS_MORE[value & 0x3FFF] + _FOURTEEN_BITS_LAST[high]
    return _encode_long_varint(value)


def _encode_long_varint(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"{value} does not fit in the 64 bits of a varint")
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = b""
    while value >= 0x4000:
        encoded += _FOURTEEN_BITS_MORE[value & 0x3FFF]
        value >>= 14
    return encoded + _FOURTEEN_BITS_LAST[value]


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned number at a position, and the position after it.

    Raises IndexError past the end of the data, ValueError for more than ten bytes.
    """
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while shift < 7 * SIZE_MAX:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise ValueError(f"varint that ends at offset {position} has more than {SIZE_MAX} bytes")


def encode_zigzag(value: int) -> bytes:
    """A signed number of 64 bits in Avro's form: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return encode_varint((value << 1) ^ (value >> 63))


def decode_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """As `decode_varint`, for a signed number in Avro's form."""
    byte = data[position]
    if byte < 0x80:  # without a second call: nearly always
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = decode_varint(data, position)
    return (value >> 1) ^ -(value & 1), position
