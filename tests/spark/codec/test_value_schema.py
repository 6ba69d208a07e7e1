"""The common schema of several topics."""

from __future__ import annotations

import json
import pickle

import pytest

from magnetar.client.schema import Schema
from magnetar.spark.codec.value_schema import common_schema
from magnetar.spark.errors import InvalidOption
from magnetar.spark.source.options import SourceOptions
from tests.spark.memory_topics import PUBLIC

CLIENT = SourceOptions.of({"service.url": "pulsar://127.0.0.1:1", "topic": "t"}).client


def record(*fields: str, version: int = 0, kind: str = "AVRO") -> Schema:
    definition = {"type": "record", "name": "r", "fields": [{"name": each, "type": "int"} for each in fields]}
    return Schema(type=kind, data=json.dumps(definition).encode(), version=version.to_bytes(8, "big"))


class Registry:
    def __init__(self, **schemas: Schema | None) -> None:
        self._schemas = {PUBLIC + name: schema for name, schema in schemas.items()}

    def schema(self, topic: str) -> Schema | None:
        return self._schemas[topic]


def test_partitions_have_the_schema_of_their_topic() -> None:
    found = common_schema(Registry(t=record("a", "b")), [f"{PUBLIC}t-partition-{index}" for index in range(3)])

    assert found is not None
    assert [field.name for field in found.fields] == ["a", "b"]
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("schema", [None, Schema(type="BYTES"), Schema(type="NONE")])
def test_without_a_schema_payloads_stay_bytes(schema: Schema | None) -> None:
    assert common_schema(Registry(t=schema), [PUBLIC + "t"]) is None
    assert common_schema(Registry(), []) is None


def test_topics_with_the_same_columns_are_one_table() -> None:
    found = common_schema(Registry(t=record("a"), u=record("a", version=3, kind="JSON")), [PUBLIC + "t", PUBLIC + "u"])

    assert found is not None
    assert found.topic == PUBLIC + "t"


@pytest.mark.parametrize("other", [record("b"), None, Schema(type="STRING")])
def test_topics_with_different_columns_are_not(other: Schema | None) -> None:
    with pytest.raises(InvalidOption, match=r"default/t and .*default/u have different columns, a int .*decode=raw"):
        common_schema(Registry(t=record("a"), u=other), [PUBLIC + "t", PUBLIC + "u"])


def test_versions_belong_to_their_topic() -> None:
    found = common_schema(Registry(t=record("a", version=1), u=record("a", version=1)), [PUBLIC + "t", PUBLIC + "u"])
    assert found is not None

    own = found.decoder(CLIENT, PUBLIC + "t")
    other = found.decoder(CLIENT, PUBLIC + "u")

    assert found.decoder(CLIENT, PUBLIC + "t-partition-1") is own
    assert own.schema.version != b""
    assert other.schema.version == b"", "so that version 1 of u is asked for, and not taken for that of t"
