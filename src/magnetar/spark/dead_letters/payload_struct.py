"""The struct of JSON payloads, from a sample: what `payload.amount` means in SQL.

A field that has values of several kinds is text, as is one that was null in the whole sample. Integers and decimals
together are doubles. Owns the limits of a struct; `from_json` reads by it, and a value of another kind is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

STRUCT_ROWS = 1000
"""Payloads that are looked at."""

FIELDS_MAX = 1000
"""Fields of a struct, with all nested ones; further ones are left out."""

_DEPTH_MAX = 20
_LONG_MAX = 1 << 63


def struct_of(texts: Sequence[str]) -> StructType | None:
    """None unless most of them are JSON objects: some letters are there because they are not."""
    merged: Any = None
    left, objects = [FIELDS_MAX], 0
    for text in texts:
        value = _parsed(text)
        if isinstance(value, dict):
            merged = _merged(merged, value, 0, left)
            objects += 1
    if 2 * objects <= len(texts):
        return None
    built = _built(merged) if isinstance(merged, dict) and merged else None
    return built if isinstance(built, StructType) else None


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _merged(known: Any, value: object, depth: int, left: list[int]) -> Any:
    """What is known of a field, with one more value. `left` counts the fields that may be added."""
    if value is None:
        return known
    if isinstance(value, dict) and (known is None or isinstance(known, dict)) and depth < _DEPTH_MAX:
        fields: dict[str, Any] = {} if known is None else known
        for name, each in value.items():
            if name not in fields:
                if not left[0]:
                    continue
                left[0] -= 1
            fields[name] = _merged(fields.get(name), each, depth + 1, left)
        return fields
    if isinstance(value, list) and (known is None or isinstance(known, list)) and depth < _DEPTH_MAX:
        item = known[0] if known else None
        for each in value:
            item = _merged(item, each, depth + 1, left)
        return [item]
    kind = _scalar(value)
    if known is None or known == kind:
        return kind
    numbers = (LongType(), DoubleType())
    return DoubleType() if known in numbers and kind in numbers else StringType()


def _scalar(value: object) -> DataType:
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if -_LONG_MAX <= value < _LONG_MAX else StringType()
    return DoubleType() if isinstance(value, float) else StringType()


def _built(kind: Any) -> DataType:
    if isinstance(kind, dict):
        return StructType([StructField(name, _built(each)) for name, each in kind.items()]) if kind else StringType()
    if isinstance(kind, list):
        return ArrayType(_built(kind[0]))
    return StringType() if kind is None or isinstance(kind, NullType) else kind
