"""Hashes of keys, which decide the partition of a message: those that Pulsar's clients share."""

from __future__ import annotations

import mmh3

_INT_MAX = 0x7FFF_FFFF
_LONG_MAX = (1 << 64) - 1
_BOOST_STEP, _BOOST_FACTOR = 0x9E37_79B9_7F4A_7C15, 0xDF44_2D22_CE48_59B9


def murmur3_hash(key: str) -> int:
    return mmh3.hash(key.encode(), 0, signed=False) & _INT_MAX


def java_string_hash(key: str) -> int:
    """`String.hashCode` of Java, over UTF-16 units, without the sign."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value & _INT_MAX


def boost_hash(key: str) -> int:
    """`boost::hash<std::string>` on 64 bits since Boost 1.81, without the sign, over the UTF-8 bytes."""
    data = key.encode("utf-8", "surrogatepass")
    turn = _folded(_BOOST_STEP)
    value = turn ^ len(data)
    whole = len(data) - len(data) % 8
    words = [int.from_bytes(data[start : start + 8], "little") for start in range(0, whole, 8)]
    for word in (*words, _boost_rest(data[whole:])):
        turn = turn + _BOOST_STEP & _LONG_MAX
        value ^= _folded(word + turn & _LONG_MAX)
    return _folded(value + turn & _LONG_MAX) & _INT_MAX


def _boost_rest(rest: bytes) -> int:
    """Up to seven bytes as one word: parts that overlap, as Boost reads them."""
    size = len(rest)
    if size >= 4:
        return int.from_bytes(rest[-4:], "little") << (size - 4) * 8 | int.from_bytes(rest[:4], "little")
    if not size:
        return 0
    second, last = size - 1 & 2, size >> 1
    return rest[second] << second * 8 | rest[last] << last * 8 | rest[0]


def _folded(word: int) -> int:
    product = word * _BOOST_FACTOR
    return product & _LONG_MAX ^ product >> 64
