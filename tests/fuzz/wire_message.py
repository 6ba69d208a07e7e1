"""Protobuf messages as a hostile client writes them: any field of any message with any value, as bytes.

Bytes and not protobuf objects, because those refuse what a client may send: text that is not UTF-8, numbers beyond
their type, missing fields. Fields get plausible values by their names, and some of them hostile ones by their types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from magnetar.wire.varint import encode_varint

Value = bytes | int
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
_DEPTH_MAX = 4
# A request with one of these is refused whatever else it has.
_SELDOM = {"txnid_least_bits", "txnid_most_bits", "read_compacted", "force_topic_creation", "encryption_param"}

NUMBERS = (
    *(0, 1, 2, 3, 7, 63, 64, 127, 128, 255, 1000, 65_535, 65_536, 99_999, 100_000, 100_001, 5_242_880),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32),
    *((1 << 62) - 1, 1 << 62, (1 << 63) - 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1),
)

TEXTS = (
    *(b"", b" ", b".", b"..", b"/", b"\0", b"a\0b", b"a\nb", b"%", b"%00", b"*", b"-1", b"null", b"{}", b"\x7f"),
    *(b"\xff", b"\xff\xfe", b"a\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf"),
    *("é".encode(), "日本語".encode(), "\u202e".encode(), "\U0001f4a5".encode(), "e\u0301".encode()),
    *(b"persistent://", b"persistent://a/b", b"persistent://public/default/", b"non-persistent://public/default/x"),
    *(b"x" * 1024, b"x" * 1025, b"\xff" * 1025, b"x" * 70_000, "é".encode() * 600),
)


def tag(number: int, wire_type: int) -> bytes:
    return encode_varint(number << 3 | wire_type)


def delimited(number: int, content: bytes) -> bytes:
    return tag(number, _DELIMITED) + encode_varint(len(content)) + content


def varint(number: int, value: int) -> bytes:
    return tag(number, _VARINT) + encode_varint(value & _MASK)


class MessageMaker:
    """`known` has plausible values by field name; `wrong` is the share of fields with values that ignore it."""

    def __init__(self, rng: Random, known: Mapping[str, Sequence[Value]], *, wrong: float, size_max: int) -> None:
        self._rng = rng
        self._known = known
        self._wrong = wrong
        self._size_max = size_max

    def message(self, descriptor: Descriptor, depth: int = 0, **given: Value) -> bytes:
        """A message of this type; `given` are fields with fixed values."""
        rng = self._rng
        parts: list[bytes] = []
        size = 0
        for field in descriptor.fields:
            if field.name in given:
                parts.append(self._encoded(field, given[field.name]))
                continue
            for _ in range(self._repetitions(field, depth)):
                part = self._field(field, depth)
                size += len(part)
                if size > self._size_max:
                    break
                parts.append(part)
        if rng.random() < self._wrong / 4:
            parts.append(self._unknown_field())
        if rng.random() < self._wrong / 4:
            rng.shuffle(parts)
        joined = b"".join(parts)
        return joined[: rng.randint(0, len(joined))] if rng.random() < self._wrong / 10 else joined

    def _repetitions(self, field: FieldDescriptor, depth: int) -> int:
        rng = self._rng
        if field.label == FieldDescriptor.LABEL_REQUIRED:
            return int(rng.random() >= self._wrong / 8)
        if field.label == FieldDescriptor.LABEL_OPTIONAL:
            return int(rng.random() < (0.02 if field.name in _SELDOM else 0.4))
        if rng.random() < self._wrong / 4 and depth < 2:
            return rng.choice((10, 100, 1000, self._size_max // 100))
        return rng.choice((0, 0, 1, 2))

    def _field(self, field: FieldDescriptor, depth: int) -> bytes:
        rng = self._rng
        if rng.random() < self._wrong / 10:  # a wire type that is not the field's
            return rng.choice((varint, _fixed64, _fixed32))(field.number, rng.choice(NUMBERS))
        if field.message_type is not None:
            inner = self.message(field.message_type, depth + 1) if depth < _DEPTH_MAX else b""
            return delimited(field.number, inner)
        is_wrong = rng.random() < self._wrong
        if not is_wrong and field.name in self._known:
            return self._encoded(field, rng.choice(self._known[field.name]))
        return self._encoded(field, self._hostile_value(field) if is_wrong else self._plain_value(field))

    def _plain_value(self, field: FieldDescriptor) -> Value:
        rng = self._rng
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            return b"".join(rng.choice((b"a", b"b", b"-", b"1")) for _ in range(rng.randint(1, 8)))
        if field.enum_type is not None:
            return rng.choice(field.enum_type.values).number
        return rng.choice((0, 1)) if field.type == FieldDescriptor.TYPE_BOOL else rng.randint(0, 100)

    def _hostile_value(self, field: FieldDescriptor) -> Value:
        rng = self._rng
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            return self._bad_text()
        if field.enum_type is not None:
            return rng.choice((99, (1 << 31) - 1, -1, (1 << 64) - 1))
        return rng.choice(NUMBERS) if rng.random() < 0.8 else rng.getrandbits(64)

    def _bad_text(self) -> bytes:
        rng = self._rng
        if rng.random() < 0.2:
            return rng.randbytes(rng.choice((1, 3, 40, 2000)))
        return rng.choice(TEXTS)[: self._size_max]

    def _encoded(self, field: FieldDescriptor, value: Value) -> bytes:
        if isinstance(value, bytes):
            return delimited(field.number, value)
        return varint(field.number, value)

    def _unknown_field(self) -> bytes:
        number = self._rng.choice((100, 1000, (1 << 29) - 1))
        return delimited(number, self._rng.randbytes(self._rng.randint(0, 50)))


def _fixed64(number: int, value: int) -> bytes:
    return tag(number, _FIXED64) + (value & _MASK).to_bytes(8, "little")


def _fixed32(number: int, value: int) -> bytes:
    return tag(number, _FIXED32) + (value & 0xFFFF_FFFF).to_bytes(4, "little")


def mutated(rng: Random, data: bytes, others: Callable[[], bytes]) -> bytes:
    """The data with some bytes changed, removed, repeated, or taken from other data."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randint(0, len(changed))
        kind = rng.randint(0, 5)
        if kind == 0 and changed:
            changed[at % len(changed)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randint(0, 255)))
        elif kind == 1 and changed:
            changed[at % len(changed)] ^= 1 << rng.randint(0, 7)
        elif kind == 2:
            del changed[at : at + rng.randint(1, 16)]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            changed[at:at] = changed[at : at + rng.randint(1, 64)]
        else:
            other = others()
            start = rng.randint(0, len(other))
            changed[at:at] = other[start : start + rng.randint(1, 64)]
    return bytes(changed)
