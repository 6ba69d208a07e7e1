"""Schemas in the registry of a test's broker."""

from __future__ import annotations

import json

from magnetar.schema.types import Schema, SchemaType
from tests.broker.world import World

ID = "public/default/t"
STRING, INT32 = Schema(SchemaType.STRING), Schema(SchemaType.INT32)
AUTO = Schema(SchemaType.AUTO_CONSUME)


def avro(*names: str, **default: object) -> Schema:
    fields = [{"name": name, "type": "int", **default} for name in names]
    return Schema(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


ONE, TWO, THREE = (avro(*names, default=0) for names in ("a", "ab", "abc"))


def put(world: World, *given: Schema, schema: str = ID) -> list[int]:
    return [world.broker.schemas.put(schema, one, "FULL") for one in given]


def schemas_of(world: World, schema: str = ID) -> dict[int, Schema]:
    return {version.number: version.schema for version in world.broker.schemas.versions(schema)}
