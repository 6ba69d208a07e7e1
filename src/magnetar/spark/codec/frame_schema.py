"""Frame schema: derived from the columns of a frame, for a topic without a schema.

Owns the mapping from Spark types to Avro types. `value_decoder` reads the rows back as the same columns.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pyspark.sql import types as spark

from magnetar.client.schema import Schema
from magnetar.spark.codec.avro.fields import UnsupportedSchema

Kind = Literal["json", "avro"]
KINDS: dict[str, Kind] = {"json": "json", "avro": "avro"}
NAME_DEFAULT = "Row"

_AVRO: dict[type[spark.DataType], Any] = {
    spark.NullType: "null",
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.StringType: "string",
    spark.BinaryType: "bytes",
    spark.DateType: {"type": "int", "logicalType": "date"},
    spark.TimeType: {"type": "long", "logicalType": "time-micros"},
    spark.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    spark.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def schema_of(columns: spark.StructType, kind: Kind, name: str = NAME_DEFAULT, namespace: str | None = None) -> Schema:
    """A schema for these columns, nullable where they are. Columns that begin with `__` are left out."""
    fields = [field for field in columns.fields if not field.name.startswith("__")]
    definition = _record_of(fields, name, "")
    if namespace is not None:
        definition["namespace"] = namespace
    return Schema(type=kind.upper(), data=json.dumps(definition, separators=(",", ":")).encode())


def _record_of(fields: list[spark.StructField], name: str, where: str) -> dict[str, Any]:
    described = []
    for field in fields:
        inside = f"{where}.{field.name}" if where else field.name
        if not field.name.isascii() or not field.name.isidentifier():
            raise UnsupportedSchema(f"column {inside!r}: names in a schema consist of letters, digits and _: rename it")
        kind = _avro_of(field.dataType, f"{name}_{field.name}", inside)
        described.append(
            {"name": field.name, "type": _or_null(kind), "default": None}
            if field.nullable
            else {"name": field.name, "type": kind}
        )
    return {"type": "record", "name": name, "fields": described}


def _or_null(kind: Any) -> Any:
    return kind if kind == "null" else ["null", kind]


def _avro_of(kind: spark.DataType, name: str, where: str) -> Any:
    if isinstance(kind, spark.StructType):
        return _record_of(kind.fields, name, where)
    if isinstance(kind, spark.ArrayType):
        items = _avro_of(kind.elementType, name, f"{where}[]")
        return {"type": "array", "items": _or_null(items) if kind.containsNull else items}
    if isinstance(kind, spark.MapType) and isinstance(kind.keyType, spark.StringType):
        values = _avro_of(kind.valueType, name, f"{where}[]")
        return {"type": "map", "values": _or_null(values) if kind.valueContainsNull else values}
    if isinstance(kind, spark.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = _AVRO.get(type(kind))
    if found is None:
        raise UnsupportedSchema(f"column {where!r} is {kind.simpleString()}, which has no Avro type")
    return found
