"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, and the wire form of schemas and their versions.

A version is eight bytes, big-endian; no bytes mean no schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker import keys
from magnetar.broker.schema import registry as schemas
from magnetar.broker.schema.admission import admit_producer
from magnetar.errors import IncompatibleSchema, MagnetarError, RightMissing, SchemaNotFound
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from magnetar.session.dear_schemas import waits_for_examination
from magnetar.session.handles import Command
from magnetar.session.refusals import report_refusal
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session

_NONE = pb.Schema.Type.Value("None")


def schema_of(request: pb.CommandProducer | pb.CommandSubscribe | pb.CommandGetOrCreateSchema) -> Schema | None:
    """The schema of a request. A client may register NONE, plain bytes, which differs from no schema."""
    if not request.HasField("schema"):
        return None
    given = request.schema
    return Schema(SchemaType(given.type), given.schema_data, {prop.key: prop.value for prop in given.properties})


def version_bytes(number: int | None) -> bytes:
    return b"" if number is None else keys.SIGNED.pack(number)


def _version_number(version: bytes) -> int:
    # Clients before 2.4 send 64 bytes, of which the first eight count.
    if len(version) < keys.SIGNED.size:
        raise IncompatibleSchema(f"schema version of {len(version)} bytes: {keys.SIGNED.size} are expected")
    number: int = keys.SIGNED.unpack_from(version)[0]
    return number


def on_get_schema(session: Session, command: Command) -> None:
    request = command.getSchema
    name = schemas.schema_id(TopicName.parse(request.topic))
    found = _find(session, name, request)
    response = pb.CommandGetSchemaResponse(
        request_id=request.request_id,
        schema=_on_the_wire(name, found.schema),
        schema_version=version_bytes(found.number),
    )
    session.send_when_durable(Command(type=Command.GET_SCHEMA_RESPONSE, getSchemaResponse=response))


def refuse_get(session: Session, command: Command, error: MagnetarError) -> None:
    _report_missing_right(session, command, error)
    response = pb.CommandGetSchemaResponse(
        request_id=command.getSchema.request_id,
        error_code=error.wire_code,  # type: ignore[arg-type]
        error_message=str(error),
    )
    session.send_when_durable(Command(type=Command.GET_SCHEMA_RESPONSE, getSchemaResponse=response))


def _report_missing_right(session: Session, command: Command, error: MagnetarError) -> None:
    """A schema that is not there, or that does not fit, is an answer like others: no line in the log."""
    if isinstance(error, RightMissing):
        report_refusal(session, command, error)


def _find(session: Session, name: str, request: pb.CommandGetSchema) -> schemas.Version:
    registry = session.broker.schemas
    if request.HasField("schema_version"):
        number = _version_number(request.schema_version)
        found, what = registry.at(name, number), f"no version {number} of a schema"
    else:
        found, what = registry.latest(name), "no schema"
    if found is None:
        raise SchemaNotFound(f"topic {request.topic} not found, or it has {what}")
    return found


def _on_the_wire(name: str, schema: Schema) -> pb.Schema:
    return pb.Schema(
        name=name,
        type=schema.type.value,  # type: ignore[arg-type]
        schema_data=schema.data,
        properties=[pb.KeyValue(key=key, value=value) for key, value in schema.properties.items()],
    )


def on_get_or_create_schema(session: Session, command: Command) -> None:
    """Sent by a producer that sends messages of several schemas."""
    request = command.getOrCreateSchema
    name = TopicName.parse(request.topic)
    schema = None if request.schema.type == _NONE else schema_of(request)
    if waits_for_examination(session, command, name, schema):
        return
    version = admit_producer(session.broker.topic(name), schema)
    response = pb.CommandGetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version_bytes(version))
    session.send_when_durable(Command(type=Command.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=response))


def refuse_get_or_create(session: Session, command: Command, error: MagnetarError) -> None:
    _report_missing_right(session, command, error)
    response = pb.CommandGetOrCreateSchemaResponse(
        request_id=command.getOrCreateSchema.request_id,
        error_code=error.wire_code,  # type: ignore[arg-type]
        error_message=str(error),
    )
    session.send_when_durable(Command(type=Command.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=response))
