"""Avro definitions: the JSON notation that describes AVRO and JSON topics alike, as a graph of types.

Owns names, namespaces and references. Knows neither payloads nor compatibility, for which the broker uses Apache Avro's
own library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
DEPTH_MAX = 100
_ROOT = "the schema"
_SHOWN_MAX = 100  # of untrusted text

_JACKSON = ("object", "any", "number", "integer")


class AvroDefinitionError(ValueError):
    """A definition that is not Avro's; the text names the field."""


@dataclass(eq=False)
class AvroType:
    """One type. A type with a name is one object wherever it is referred to: it may contain itself."""

    kind: str
    name: str = ""
    namespace: str = ""
    logical: str = ""
    fields: list[AvroField] = field(default_factory=list)
    parts: list[AvroType] = field(default_factory=list)  # the items of an array or a map, the members of a union
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: Any = None  # of a decimal, unchecked as Avro ignores wrong logical types
    scale: Any = 0

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        if self.kind == "union":
            return "union of " + ", ".join(map(str, self.parts))
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.parts[0]}"
        text = f"{self.kind} {self.name}" if self.name else self.kind
        return f"{text} ({self.logical})" if self.logical else text


@dataclass(eq=False, slots=True)
class AvroField:
    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


def is_jackson(data: bytes) -> bool:
    """Whether the data is a JSON schema document, which clients before 2.1 sent instead of a definition."""
    return _json_object(data).get("type") in _JACKSON


def jackson_id(data: bytes) -> object:
    """The class that such a document was generated from."""
    return _json_object(data).get("id")


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def parse_definition(data: bytes) -> AvroType:
    """Raises AvroDefinitionError."""
    try:
        described = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AvroDefinitionError(f"the schema's definition is not JSON: {error}") from None
    return _Parser().parse(described, "", _ROOT, 0)


def field_path(where: str, name: str) -> str:
    """The path of a field in error texts: `field a.b`."""
    return f"field {name}" if where == _ROOT else f"{where}.{name}"


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def parse(self, described: Any, namespace: str, where: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise AvroDefinitionError(f"{where}: nested deeper than {DEPTH_MAX} types")
        if isinstance(described, list):
            return AvroType("union", parts=[self.parse(each, namespace, where, depth + 1) for each in described])
        if isinstance(described, str):
            return AvroType(described) if described in PRIMITIVE else self._reference(described, namespace, where)
        if not isinstance(described, dict):
            raise AvroDefinitionError(f"{where}: {_shown(described)} is not an Avro type")
        kind = described.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(described, str(kind), namespace, where, depth)
        if kind in ("array", "map"):
            items = described.get("items" if kind == "array" else "values")
            return AvroType(str(kind), parts=[self.parse(items, namespace, where, depth + 1)])
        if isinstance(kind, str) and kind in PRIMITIVE:
            return _with_logical(AvroType(kind), described)
        return self.parse(kind, namespace, where, depth + 1)

    def _reference(self, name: str, namespace: str, where: str) -> AvroType:
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self._named:
                return self._named[full]
        raise AvroDefinitionError(f"{where}: unknown type {_shown(name)}")

    def _define(self, described: dict[str, Any], kind: str, namespace: str, where: str, depth: int) -> AvroType:
        name, space = str(described.get("name", "")), described.get("namespace")
        if "." in name:
            space, _, name = name.rpartition(".")
        space = namespace if space is None else str(space)
        type_ = AvroType("record" if kind == "error" else kind, name=name, namespace=space)
        self._named[type_.full_name] = type_
        if kind == "enum":
            type_.symbols = tuple(map(str, _list(described, "symbols", where)))
        elif kind == "fixed":
            type_.size = _fixed_size(described, name, where)
            _with_logical(type_, described)
        else:
            for each in _list(described, "fields", where):
                type_.fields.append(self._field(each, space, where, depth))
        return type_

    def _field(self, described: Any, namespace: str, where: str, depth: int) -> AvroField:
        if not isinstance(described, dict) or "name" not in described:
            raise AvroDefinitionError(f"{where}: {_shown(described)} is not a field of a record")
        name = str(described["name"])
        inside = field_path(where, name)
        return AvroField(
            name,
            self.parse(described.get("type"), namespace, inside, depth + 1),
            tuple(map(str, _list(described, "aliases", inside))),
            "default" in described,
            described.get("default"),
        )


def _with_logical(type_: AvroType, described: dict[str, Any]) -> AvroType:
    type_.logical = str(described.get("logicalType", ""))
    type_.precision, type_.scale = described.get("precision"), described.get("scale", 0)
    return type_


def _fixed_size(described: dict[str, Any], name: str, where: str) -> int:
    size = described.get("size")
    if type(size) is not int or size < 0:
        raise AvroDefinitionError(f"{where}: fixed {name} has the size {_shown(size)}")
    return size


def _list(described: dict[str, Any], key: str, where: str) -> list[Any]:
    found = described.get(key) or []
    if not isinstance(found, list):
        raise AvroDefinitionError(f"{where}: {key} {_shown(found)} is not a list")
    return found


def _shown(described: Any) -> str:
    return repr(str(described)[:_SHOWN_MAX])
