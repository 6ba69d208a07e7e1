"""JSON bodies, read as Apache Pulsar's reader (Jackson) reads them: scalars of another kind are converted.

| wanted | taken for it |
|---|---|
| integer | `"3"`, `" 3 "`, `3.7` (cut to 3); `""`, `"null"` and null are 0, or null where null is allowed |
| boolean | `"true"`, `"True"`, `"TRUE"`, an integer (0 is false); `""`, `"null"` and null are false, or null |
| text | a number, true, false |

Stricter than Jackson on purpose: unknown fields and unknown words of a fixed set are rejected, not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NULL_TEXTS = ("", "null")


class BodyReader(Generic[T]):
    """Reads bodies of one shape, its `type`."""

    __slots__ = ("_kind", "type")

    def __init__(self, shape: Any) -> None:
        self.type = shape
        self._kind = inspect.type_info(shape)

    def decode(self, body: bytes | str, /) -> T:
        """Raises msgspec.DecodeError."""
        return self.convert(msgspec.json.decode(body))

    def convert(self, value: object) -> T:
        """The same for a value that is decoded already. Raises msgspec.ValidationError."""
        result: T = msgspec.convert(_coerced(self._kind, value), self.type)
        return result


def _coerced(kind: inspect.Type, value: Any) -> Any:
    """The value with its scalars converted; what cannot be converted stays as it is, for the check that follows."""
    if isinstance(kind, inspect.Metadata):
        return _coerced(kind.type, value)
    if isinstance(kind, inspect.UnionType):
        return _coerced_to_any(kind.types, value)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        kinds = {field.encode_name: field.type for field in kind.fields}
        return {name: _coerced(kinds[name], one) if name in kinds else one for name, one in value.items()}
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {key: _coerced(kind.value_type, one) for key, one in value.items()}
    if isinstance(kind, inspect.ListType | inspect.SetType) and isinstance(value, list):
        return [_coerced(kind.item_type, one) for one in value]
    convert = _SCALARS.get(type(kind))
    return value if convert is None else convert(value)


def _coerced_to_any(kinds: tuple[inspect.Type, ...], value: Any) -> Any:
    is_optional = any(isinstance(kind, inspect.NoneType) for kind in kinds)
    if value is None and is_optional:
        return None
    others = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
    has_text = any(isinstance(kind, _TEXTS) for kind in others)
    if isinstance(value, str) and (has_text or (is_optional and value.strip() in _NULL_TEXTS)):
        return value if has_text else None
    if has_text and len(others) > 1:  # an object in Java, with text as its short form
        return _coerced(next((kind for kind in others if not isinstance(kind, _TEXTS)), others[0]), value)
    for kind in others:
        changed = _coerced(kind, value)
        if changed is not value:
            return changed
    return value


def _integer(value: Any) -> Any:
    if isinstance(value, float):
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        if text in _NULL_TEXTS:
            return 0
        return int(text) if _WHOLE.fullmatch(text) else value
    return 0 if value is None else value


def _boolean(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if text in _TRUE:
            return True
        return False if text in _FALSE or text in _NULL_TEXTS else value
    if isinstance(value, int):
        return value != 0
    return False if value is None else value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


_TEXTS = (inspect.StrType, inspect.EnumType, inspect.LiteralType)
_SCALARS: dict[type, Callable[[Any], Any]] = {
    inspect.IntType: _integer,
    inspect.BoolType: _boolean,
    inspect.StrType: _text,
}
