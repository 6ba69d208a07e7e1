"""Schemas and their types, under the numbers of the protocol and the names of REST. Knows nothing of definitions."""

from __future__ import annotations

import enum

import msgspec


class SchemaType(enum.IntEnum):
    """The protocol's numbers, under the names that REST and the properties of KEY_VALUE schemas use."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22
    BYTES = -1  # in KEY_VALUE schemas only; elsewhere it is NONE

    @property
    def is_avro(self) -> bool:
        """Whether it has a definition in Avro's notation."""
        return self in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF)


PRIMITIVE = frozenset(
    set(SchemaType)
    - {
        SchemaType.JSON,
        SchemaType.PROTOBUF,
        SchemaType.AVRO,
        SchemaType.KEY_VALUE,
        SchemaType.PROTOBUF_NATIVE,
        SchemaType.AUTO_CONSUME,
        SchemaType.EXTERNAL,
    }
)
"""Types without a definition."""


class Schema(msgspec.Struct, frozen=True):
    type: SchemaType
    data: bytes = b""
    properties: dict[str, str] = {}

    @property
    def size(self) -> int:
        return len(self.data) + sum(len(key) + len(value) for key, value in self.properties.items())
