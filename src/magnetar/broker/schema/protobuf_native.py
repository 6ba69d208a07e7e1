"""PROTOBUF_NATIVE definitions: descriptors of protobuf files, in JSON and base64."""

from __future__ import annotations

import binascii

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from magnetar.errors import InvalidSchema


class ProtobufNativeData(msgspec.Struct, rename="camel"):
    file_descriptor_set: bytes  # in base64
    root_message_type_name: str
    root_file_descriptor_name: str


_protobuf_native = msgspec.json.Decoder(ProtobufNativeData)


def root_message(data: bytes) -> str:
    """The full name of the described message; raises InvalidSchema."""
    try:
        described = _protobuf_native.decode(data)
        files = {file.name: file for file in FileDescriptorSet.FromString(described.file_descriptor_set).file}
    except (msgspec.DecodeError, binascii.Error, DecodeError, UnicodeDecodeError) as error:
        raise InvalidSchema(f"PROTOBUF_NATIVE schema cannot be read: {error}") from error
    _check_imports(files, described.root_file_descriptor_name)
    root = files[described.root_file_descriptor_name]
    if described.root_message_type_name not in _messages(root):
        raise InvalidSchema(
            f"PROTOBUF_NATIVE schema has no message {described.root_message_type_name!r} in file {root.name!r}"
        )
    return described.root_message_type_name


def _check_imports(files: dict[str, FileDescriptorProto], root: str) -> None:
    waiting, seen = [root], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in files:
            raise InvalidSchema(f"PROTOBUF_NATIVE schema lacks the file {name!r}")
        if name not in seen:
            seen.add(name)
            waiting += files[name].dependency


def _messages(file: FileDescriptorProto) -> set[str]:
    found: set[str] = set()
    waiting: list[tuple[str, DescriptorProto]] = [(file.package, message) for message in file.message_type]
    while waiting:
        prefix, message = waiting.pop()
        full = f"{prefix}.{message.name}" if prefix else message.name
        found.add(full)
        waiting += [(full, nested) for nested in message.nested_type]
    return found
