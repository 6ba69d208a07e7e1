"""Schema types: the numbers of the protocol under the names of REST."""

from __future__ import annotations

import re

from magnetar.schema.types import PRIMITIVE, SchemaType
from magnetar.wire import schema_pb2 as pb


def test_every_type_of_the_protocol_is_there() -> None:
    for name, number in pb.Schema.Type.items():
        spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper().replace("BOOL", "BOOLEAN")
        assert SchemaType(number).name == spelled
    assert len(SchemaType) == len(pb.Schema.Type.items()) + 1  # BYTES


def test_a_type_has_a_definition_or_is_primitive() -> None:
    assert not any(each.is_avro for each in PRIMITIVE)
    assert SchemaType.BYTES in PRIMITIVE and SchemaType.KEY_VALUE not in PRIMITIVE
