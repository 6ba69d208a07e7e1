"""KEY_VALUE: two values, or two definitions, in one; and the properties of a schema that describe the two.

    ┌───────────────────┬─────┬─────────────────────┬───────┐
    │ length of the key │ key │ length of the value │ value │
    │ i32               │     │ i32                 │       │   big-endian; a negative length is a null
    └───────────────────┴─────┴─────────────────────┴───────┘

A message has this payload unless `kv.encoding.type` is SEPARATED: then the key is the message's own. The definition of
a schema always has this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)
_BYTES = "BYTES"


class KeyValueError(ValueError):
    """Bytes that end too early, or too late."""


class Part(NamedTuple):
    """The schema of the key or the value; `properties` is a JSON object."""

    type: str
    data: bytes
    properties: str


def encode_key_value(key: bytes | None, value: bytes | None) -> bytes:
    return b"".join(
        (
            _NULL if key is None else _LENGTH.pack(len(key)),
            key or b"",
            _NULL if value is None else _LENGTH.pack(len(value)),
            value or b"",
        )
    )


def decode_key_value(data: bytes) -> tuple[bytes | None, bytes | None, int]:
    """The two, and the offset where they end. Raises KeyValueError."""
    key, end = _decode_one(data, 0, "key")
    value, end = _decode_one(data, end, "value")
    return key, value, end


def _decode_one(data: bytes, start: int, name: str) -> tuple[bytes | None, int]:
    content = start + _LENGTH.size
    if content > len(data):
        raise KeyValueError(f"KEY_VALUE of {len(data)} bytes ends before the length of the {name}")
    size: int = _LENGTH.unpack_from(data, start)[0]
    if size < 0:
        return None, content
    end = content + size
    if end > len(data):
        raise KeyValueError(f"KEY_VALUE of {len(data)} bytes ends before the {size} bytes of the {name}")
    return data[content:end], end


def decode_whole(data: bytes) -> tuple[bytes | None, bytes | None]:
    """As `decode_key_value`, for data that must not have anything after the value."""
    key, value, end = decode_key_value(data)
    if end < len(data):
        raise KeyValueError(f"KEY_VALUE of {len(data)} bytes has {len(data) - end} bytes after the value")
    return key, value


def parts_of(data: bytes, properties: Mapping[str, str]) -> tuple[Part, Part]:
    """The schemas of key and value. Raises KeyValueError."""
    key, value = decode_whole(data)  # the C++ client writes an empty definition as a null
    return _part("key", key or b"", properties), _part("value", value or b"", properties)


def _part(name: str, data: bytes, properties: Mapping[str, str]) -> Part:
    type_ = properties.get(f"{name}.schema.type", _BYTES)
    return Part(type_, data, properties.get(f"{name}.schema.properties") or "{}")


def is_separated(properties: Mapping[str, str]) -> bool:
    """Whether the key of the pair is the key of the message."""
    return properties.get("kv.encoding.type", "INLINE") == "SEPARATED"
