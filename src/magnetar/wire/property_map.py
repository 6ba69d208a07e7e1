"""Metadata of an entry with its properties as a map: read and changed in a third of the time.

On the wire a map is what repeated pairs of key and value are; of a key that occurs twice, the last one counts. Owns a
message type with the fields that decide whether a message can be published again as it is, and those that differ then;
all others stay in its bytes. A value that is not UTF-8 is bytes, as protobuf has it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from magnetar.wire.metadata import MetadataError
from magnetar.wire.schema_pb2 import MessageMetadata

_FIELDS = (
    "producer_name",
    "sequence_id",
    "publish_time",
    "replicated_from",
    "partition_key",
    "replicate_to",
    "num_messages_in_batch",
    "deliver_at_time",
    "marker_type",
    "highest_sequence_id",
    "num_chunks_from_msg",
)
_NAME = "magnetar.MapMetadata"
_Field = descriptor_pb2.FieldDescriptorProto


class MapMetadata(Protocol):
    """The fields of `MessageMetadata` by their names; of `encryption_keys` only whether there are any."""

    properties: MutableMapping[str, str]
    encryption_keys: list[bytes]
    producer_name: str
    sequence_id: int
    publish_time: int
    partition_key: str
    num_chunks_from_msg: int

    def HasField(self, name: str) -> bool: ...

    def ClearField(self, name: str) -> None: ...

    def SerializePartialToString(self) -> bytes: ...


def _message_type() -> type:
    file = descriptor_pb2.FileDescriptorProto(name="property_map.proto", package="magnetar", syntax="proto2")
    message = file.message_type.add(name="MapMetadata")
    pair = message.nested_type.add(name="PropertiesEntry")
    pair.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        pair.field.add(name=name, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    original = descriptor_pb2.DescriptorProto()
    MessageMetadata.DESCRIPTOR.CopyToProto(original)
    numbers = {field.name: field.number for field in original.field}
    for field in original.field:
        if field.name in _FIELDS:
            field.label = _Field.LABEL_REPEATED if field.label == _Field.LABEL_REPEATED else _Field.LABEL_OPTIONAL
            message.field.append(field)
    pairs = message.field.add(name="properties", number=numbers["properties"], type=_Field.TYPE_MESSAGE)
    pairs.label, pairs.type_name = _Field.LABEL_REPEATED, f".{_NAME}.PropertiesEntry"
    keys = message.field.add(name="encryption_keys", number=numbers["encryption_keys"], type=_Field.TYPE_BYTES)
    keys.label = _Field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found: type = message_factory.GetMessageClass(pool.FindMessageTypeByName(_NAME))
    return found


_parse = _message_type().FromString  # type: ignore[attr-defined]


def parse_map_metadata(section: bytes) -> MapMetadata:
    try:
        return cast("MapMetadata", _parse(section))
    except DecodeError:
        raise MetadataError(f"metadata of {len(section)} bytes is not a protobuf MessageMetadata") from None
