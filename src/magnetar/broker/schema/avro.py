"""Avro definitions as the registry needs them: parsed, compared for equality and for compatibility.

Apache Avro's own library does the work. Its checker is stricter than that of Apache Pulsar's broker in two respects,
which are relaxed here so that the same clients are accepted: records may be renamed, and the symbols of an enum may
change. The library is slow: its input is limited, and it is imported by the first schema, not at the start.
"""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import avro.schema
from avro.compatibility import (
    CompatibleResult,
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    SchemaIncompatibilityType,
    check_schema_names,
    incompatible,
    merge,
)
from avro.errors import AvroException
from avro.name import Names
from avro.schema import (
    ArraySchema,
    EnumSchema,
    Field,
    MapSchema,
    NamedSchema,
    RecordSchema,
    UnionSchema,
    make_avsc_object,
)
from avro.schema import Schema as Definition

from magnetar.bounds import SCHEMA_COMPARISONS, SCHEMA_NAMES
from magnetar.errors import InvalidSchema

NAMES_MAX = SCHEMA_NAMES.limit
"""Names in a definition: parsing time grows with the square of their number, and it blocks the broker."""

COMPARISONS_MAX = SCHEMA_COMPARISONS.limit
"""Pairs of types that one comparison may take: unions are compared branch by branch, each with each."""

# It warns of unknown logical types. Filters of warnings belong to all threads: they cannot be changed for one parse.
avro.schema.warnings = SimpleNamespace(warn=lambda warning: None)  # type: ignore[assignment, attr-defined]

_PROBLEMS_SHOWN = 5
_REASON_SIZE_MAX = 300  # the library may quote the whole definition


def parse(data: bytes, type_name: str) -> Definition:
    """Raises InvalidSchema, which names the type of the schema."""
    try:
        document = json.loads(data)
        _check_size(document)
        # The library's rule for names forbids the $ of Java's inner classes, so names are checked here.
        parsed = make_avsc_object(document, Names(validate_names=False), validate_names=False)
        _check_names(parsed)
    except Exception as error:  # the library fails on malformed definitions in many ways
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidSchema(
            f"{type_name} schema is not a valid Avro definition: {reason[:_REASON_SIZE_MAX]}"
        ) from error
    return parsed


def _check_size(document: Any) -> None:
    waiting, names = [document], 0
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            names += "name" in node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    if names > NAMES_MAX:
        raise ValueError(f"it has {names} names, the limit is {NAMES_MAX}")


_NAME = re.compile(r"(?:[^\W\d]|\$)[\w$]*")


def _check_names(parsed: Definition) -> None:
    waiting, seen = [parsed], set[int]()
    while waiting:
        definition: Any = waiting.pop()
        if id(definition) in seen:
            continue
        seen.add(id(definition))
        names = [definition.name] if isinstance(definition, NamedSchema) else []
        if isinstance(definition, RecordSchema):
            names += [field.name for field in definition.fields]
            waiting += [field.type for field in definition.fields]
        elif isinstance(definition, UnionSchema):
            if len(_branches(definition)) < len(definition.schemas):
                raise ValueError("a union has two branches of one name")
            waiting += definition.schemas
        elif isinstance(definition, ArraySchema):
            waiting.append(definition.items)
        elif isinstance(definition, MapSchema):
            waiting.append(definition.values)
        for name in names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"name {name!r} is not made of letters, digits, _ and $")


def _branches(union: UnionSchema) -> dict[str, Definition]:
    """By name, or by the name of the type."""
    return {branch.fullname if isinstance(branch, NamedSchema) else branch.type: branch for branch in union.schemas}


def are_same(one: Definition, other: Definition) -> bool:
    """Ignores spaces, the order of keys, docs and aliases."""
    return bool(_essence(one.to_json()) == _essence(other.to_json()))


def _essence(node: Any) -> Any:
    if isinstance(node, list):
        return [_essence(branch) for branch in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in ("doc", "aliases")}
    for key in ("type", "items", "values", "fields"):
        if key in kept:
            kept[key] = _essence(kept[key])
    return kept


def unreadable(*, reader: Definition, writer: Definition) -> str:
    """Why the reader cannot read the data of the writer; empty if it can."""
    try:
        result = _Checker().get_compatibility(reader, writer)
    except RecursionError as error:
        raise InvalidSchema("the schema is nested too deeply to be compared") from error
    except AvroException as error:
        raise InvalidSchema(f"the schema cannot be compared: {error}") from error
    if result.compatibility is not SchemaCompatibilityType.incompatible:
        return ""
    return "; ".join(sorted(result.messages)[:_PROBLEMS_SHOWN])


class _Checker(ReaderWriterCompatibilityChecker):
    """Avro's checker with the two relaxations, the names of fields in its messages, and a limit."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._comparisons = 0
        self._branches: dict[int, dict[str, Definition]] = {}  # of unions, by identity

    def calculate_compatibility(
        self, reader: Definition, writer: Definition, location: list[str]
    ) -> SchemaCompatibilityResult:
        self._comparisons += 1
        if self._comparisons > COMPARISONS_MAX:
            raise InvalidSchema(f"the schema takes more than {COMPARISONS_MAX} comparisons of types")
        if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
            return self.check_reader_writer_record_fields(reader, writer, location)
        if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema):
            return check_schema_names(reader, writer, location)
        if isinstance(writer, UnionSchema):
            result = CompatibleResult
            for branch in writer.schemas:
                result = merge(result, self.get_compatibility(reader, branch, "type", location))
            return result
        namesake = self._namesake(reader, writer)
        if namesake is not None:
            return self.get_compatibility(namesake, writer, "type", location)
        return super().calculate_compatibility(reader, writer, location)

    def _namesake(self, reader: Definition, writer: Definition) -> Definition | None:
        """The branch of a reader's union with the name of this writer, whether or not it can read it."""
        if not isinstance(reader, UnionSchema) or not isinstance(writer, NamedSchema):
            return None
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _branches(reader)
        branch = branches.get(writer.fullname)
        return branch if branch is not None and branch.type == writer.type else None

    def check_reader_writer_record_fields(
        self, reader: RecordSchema, writer: RecordSchema, location: list[str]
    ) -> SchemaCompatibilityResult:
        """As in the library, but the fields are looked up once, not once per field."""
        written: dict[str, Field] = writer.fields_dict
        result, problems = CompatibleResult, 0
        for field in reader.fields:
            source = next((written[name] for name in _names_of(field) if name in written), None)
            if source is not None:
                compared = self.get_compatibility(field.type, source.type, "type", location)
            elif field.has_default:
                continue
            else:
                compared = incompatible(
                    SchemaIncompatibilityType.reader_field_missing_default_value,
                    "the reader's field has no default and the writer has no such field",
                    location,
                )
            if compared.compatibility is SchemaCompatibilityType.incompatible:
                result = merge(result, _of_field(field.name, compared))
                problems += 1
            if problems >= _PROBLEMS_SHOWN:
                break
        return result


def _names_of(field: Field) -> list[str]:
    aliases: Any = field.props.get("aliases")
    return [field.name, *aliases] if isinstance(aliases, list) else [field.name]


def _of_field(name: str, result: SchemaCompatibilityResult) -> SchemaCompatibilityResult:
    return SchemaCompatibilityResult(
        result.compatibility,
        result.incompatibilities,
        {f"field {name}: {message}" for message in result.messages},
        result.locations,
    )
