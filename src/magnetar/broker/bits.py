"""Bits of the messages of a batch, as whole numbers: to indexes and back.

Shifting a long number by every index costs the square of its length: these functions read it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def indexes_in(bits: int) -> Iterator[int]:
    """The indexes of the bits that are set, in order. `bits` is not negative."""
    text = f"{bits:b}"[::-1]
    index = text.find("1")
    while index >= 0:
        yield index
        index = text.find("1", index + 1)


def bits_at(indexes: Iterable[int]) -> int:
    """The number with exactly these bits set."""
    found = list(indexes)
    octets = bytearray((max(found, default=-1) >> 3) + 1)
    for index in found:
        octets[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(octets, "little")
