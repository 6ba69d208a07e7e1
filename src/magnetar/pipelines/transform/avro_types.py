"""Definitions in Avro's notation, as a tree that may refer to itself: what stands where in a binary value.

Owns names and what they refer to. Unlike the tree that makes columns for Spark it keeps unions as they are written, so
that values can be walked to the byte.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_DEPTH_MAX = 100


class UnreadableDefinition(Exception):
    """Bytes that are no definition of Avro; the text says why."""


@dataclass(eq=False)
class Type:
    """One type. What is defined by name is one object wherever it is referred to."""

    kind: str
    name: str = ""
    logical: str = ""
    fields: list[tuple[str, Type]] = field(default_factory=list)
    parts: list[Type] = field(default_factory=list)  # of an array or a map one, of a union its members
    size: int = 0

    def __str__(self) -> str:
        if self.kind == "union":
            return "union of " + ", ".join(map(str, self.parts))
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.parts[0]}"
        text = f"{self.kind} {self.name}" if self.name else self.kind
        return f"{text} ({self.logical})" if self.logical else text


def parse(data: bytes) -> Type:
    """Raises `UnreadableDefinition`."""
    try:
        return _Parser().type(json.loads(data), "", 0)
    except (ValueError, RecursionError) as error:
        raise UnreadableDefinition(f"its schema's definition is not JSON: {error}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Type] = {}

    def type(self, described: Any, namespace: str, depth: int) -> Type:
        if depth > _DEPTH_MAX:
            raise UnreadableDefinition(f"its schema's definition is nested deeper than {_DEPTH_MAX} types")
        if isinstance(described, list):
            return Type("union", parts=[self.type(each, namespace, depth + 1) for each in described])
        if isinstance(described, str):
            return Type(described) if described in PLAIN else self._reference(described, namespace)
        if not isinstance(described, dict):
            raise _no_type(described)
        kind = described.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(described, kind, namespace, depth)
        if kind in ("array", "map"):
            items = described.get("items" if kind == "array" else "values")
            return Type(kind, parts=[self.type(items, namespace, depth + 1)])
        if isinstance(kind, str) and kind in PLAIN:
            return Type(kind, logical=str(described.get("logicalType", "")))
        return self.type(kind, namespace, depth + 1)

    def _reference(self, name: str, namespace: str) -> Type:
        for full in (f"{namespace}.{name}", name) if namespace and "." not in name else (name,):
            if full in self._named:
                return self._named[full]
        raise _no_type(name)

    def _defined(self, described: dict[str, Any], kind: str, namespace: str, depth: int) -> Type:
        name, space = str(described.get("name", "")), described.get("namespace")
        if "." in name:
            space, _, name = name.rpartition(".")
        space = namespace if space is None else str(space)
        type_ = Type("record" if kind == "error" else kind, name=name, logical=str(described.get("logicalType", "")))
        self._named[f"{space}.{name}" if space else name] = type_
        if kind == "fixed":
            size = described.get("size")
            if type(size) is not int or size < 0:
                raise UnreadableDefinition(f"fixed {name} of its schema has a size of {str(size)[:100]!r}")
            type_.size = size
        elif kind == "enum":
            type_.size = len(described.get("symbols") or ())
        else:
            for each in described.get("fields") or ():
                if not isinstance(each, dict) or "name" not in each:
                    raise UnreadableDefinition(f"{str(each)[:100]!r} in its schema is no field of a record")
                type_.fields.append((str(each["name"]), self.type(each.get("type"), space, depth + 1)))
        return type_


def _no_type(described: Any) -> UnreadableDefinition:
    return UnreadableDefinition(f"{str(described)[:100]!r} in its schema is no type of Avro")
