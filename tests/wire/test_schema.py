"""The schema: generated modules are those of schema.proto, and BaseCommand keeps the protocol's own regularity."""

from __future__ import annotations

from pathlib import Path

import magnetar.wire
from magnetar.wire.schema_pb2 import BaseCommand, CommandSubscribe, MessageIdData, MessageMetadata
from tools.wire_schema import regenerate

PACKAGE = Path(magnetar.wire.__file__).parent


def test_committed_modules_are_the_generated_ones(tmp_path: Path) -> None:
    regenerate(tmp_path)
    for name in ("schema_pb2.py", "schema_pb2.pyi"):
        assert (tmp_path / "magnetar" / "wire" / name).read_text() == (PACKAGE / name).read_text(), name


def test_every_type_has_the_field_of_its_number() -> None:
    types = set(BaseCommand.Type.values())
    fields = {field.number for field in BaseCommand.DESCRIPTOR.fields} - {BaseCommand.TYPE_FIELD_NUMBER}
    assert types == fields


def test_defaults_of_the_protocol() -> None:
    assert MessageIdData().partition == -1
    assert MessageIdData().batch_index == -1
    assert MessageMetadata().num_messages_in_batch == 1
    assert CommandSubscribe().durable
    assert CommandSubscribe().force_topic_creation


def test_an_unknown_field_survives_a_round_trip() -> None:
    entry_hash_min = b"\x88\x02\x2a"  # field 33, which scalable topics use and we do not name
    assert MessageMetadata.FromString(entry_hash_min).SerializePartialToString() == entry_hash_min
