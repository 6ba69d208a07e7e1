"""Schemas for tests: Avro records, KEY_VALUE pairs, protobuf descriptors."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import Schema, SchemaType


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def avro(definition: Any, type: SchemaType = SchemaType.AVRO) -> Schema:
    return Schema(type, json.dumps(definition).encode())


def pair(key: Schema, value: Schema) -> Schema:
    types = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
    return Schema(SchemaType.KEY_VALUE, encode_key_value(key.data, value.data), types)


def native(message: str, file: str = "a.proto", package: str = "shop", **other: Any) -> Schema:
    proto = FileDescriptorProto(name="a.proto", package=package, dependency=other.get("dependency", []))
    order = proto.message_type.add(name="Order")
    order.nested_type.add(name="Line")
    proto.message_type.add(name="Invoice")
    described = {
        "fileDescriptorSet": base64.b64encode(FileDescriptorSet(file=[proto]).SerializeToString()).decode(),
        "rootMessageTypeName": message,
        "rootFileDescriptorName": file,
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(described).encode())


ONE = record(field("a"))
WITH_DEFAULT = record(field("a"), field("b", default=1))
WITHOUT_DEFAULT = record(field("a"), field("b"))
