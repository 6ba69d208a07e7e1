"""Schemas: upload, read, delete and check. Bodies and statuses are Pulsar's.

A schema may be uploaded before its topic exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call, check_map
from magnetar.bounds import SCHEMA_WAIT
from magnetar.broker.schema.definition import key_and_value
from magnetar.broker.schema.examination import Examination
from magnetar.broker.schema.registry import Version, schema_id
from magnetar.errors import IncompatibleSchema, NamespaceNotFound, SchemaNotFound, ServiceNotReady, TenantNotFound
from magnetar.names import PERSISTENT, TopicName
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType

_VERSION = re.compile(r"-?[0-9]{1,19}")
_VERSION_MAX = 2**63 - 1
_WAIT_MAX_S = SCHEMA_WAIT.limit

T = TypeVar("T")


class SchemaBody(msgspec.Struct, forbid_unknown_fields=True):
    """`schema` is the definition as text; for a KEY_VALUE schema a JSON object with `key` and `value`."""

    type: str
    schema: str | None = ""
    properties: dict[str, str] | None = None


class SchemaReply(msgspec.Struct):
    version: int
    type: str
    timestamp: int
    data: str
    properties: dict[str, str]


class SchemasReply(msgspec.Struct, rename={"schemas": "getSchemaResponses"}):
    schemas: list[SchemaReply]


class VersionReply(msgspec.Struct):
    version: int


class UploadReply(msgspec.Struct):
    version: VersionReply


class CompatibilityReply(msgspec.Struct, rename="camel", omit_defaults=True):
    """`reason` explains an incompatibility; Pulsar does not have it."""

    compatibility: bool
    schema_compatibility_strategy: str
    reason: str = ""


_body: BodyReader[SchemaBody] = BodyReader(SchemaBody)


# -- reading


def get(call: Call) -> SchemaReply:
    return _reply(_found(call.broker.schemas.latest(schema_id(_topic(call)))))


def get_version(call: Call) -> SchemaReply:
    text = call.path["version"]
    if not _VERSION.fullmatch(text) or not -_VERSION_MAX <= int(text) <= _VERSION_MAX:
        raise BadRequest(f"version {text[:100]!r} is not a 64-bit integer")
    return _reply(_found(call.broker.schemas.at(schema_id(_topic(call)), int(text))))


def list_versions(call: Call) -> SchemasReply:
    return SchemasReply([_reply(version) for version in call.broker.schemas.versions(_schema_id(call))])


async def find_version(call: Call) -> VersionReply:
    """Find the version of the schema in the body; -1 if there is none."""
    name, schema = _schema_id(call), _schema_in(call)

    def find() -> VersionReply:
        found = call.broker.schemas.find(name, schema)
        return VersionReply(-1 if found is None else found.number)

    return await _examined(call, schema, Examination.find, find)


async def check_compatibility(call: Call) -> Response:
    """202 with the verdict, even for an incompatible schema."""
    name, schema = _schema_id(call), _schema_in(call)
    strategy = call.broker.catalog.policies_of_topic(_topic(call)).schema_compatibility

    def check() -> CompatibilityReply:
        try:
            call.broker.schemas.check_compatible(name, schema, strategy)
        except IncompatibleSchema as error:
            return CompatibilityReply(False, strategy, str(error))
        return CompatibilityReply(True, strategy)

    reply = await _examined(call, schema, lambda ahead: ahead.check_compatible(strategy), check)
    return Response(msgspec.json.encode(reply), status_code=202, media_type="application/json")


# -- changing


async def upload(call: Call) -> UploadReply:
    name, schema = _schema_id(call), _schema_in(call)
    strategy = call.broker.catalog.policies_of_topic(_topic(call)).schema_compatibility
    put = partial(call.broker.schemas.put, name, schema, strategy)
    number = await _examined(call, schema, lambda ahead: ahead.find_or_check(strategy), put)
    return UploadReply(VersionReply(number))


def delete(call: Call) -> VersionReply:
    """Returns the version that marks the schema as deleted; -1 with `force`, which leaves nothing."""
    force, name, registry = call.flag("force"), _schema_id(call), call.broker.schemas
    if force:
        registry.forget(name, call.broker.commits.batch())
        return VersionReply(-1)
    return VersionReply(registry.delete(name))


# -- schemas that take long


async def _examined(call: Call, schema: Schema, work: Callable[[Examination], object], then: Callable[[], T]) -> T:
    """`then` makes the decision; what it needs is found out aside, again if the versions change meanwhile."""
    registry, name = call.broker.schemas, schema_id(_topic(call))
    ready: Examination | None = None
    while True:
        with registry.using(ready):
            ahead = registry.examination(name, schema)
            if ahead.is_ready or not ahead.is_large:
                return then()
            ahead.check_attempt()
        ready = await _made_aside(call, ahead, partial(work, ahead))


async def _made_aside(call: Call, examination: Examination, work: Callable[[], object]) -> Examination:
    alarm, made = call.alarm(), False

    def finish() -> None:
        nonlocal made
        made = True
        alarm.ring()

    principal = call.principal
    call.broker.examinations.run(work, finish, principal.original or principal.role or "HTTP")
    await alarm.wait(_WAIT_MAX_S)
    if not made:  # the time is over, the client has left, or the broker stops
        raise ServiceNotReady(f"the schema is not compared yet: requests wait {_WAIT_MAX_S} s for others")
    return examination


# -- bodies


def _topic(call: Call) -> TopicName:
    """Partitions and non-persistent topics share the schema of the persistent topic of the same name."""
    path = call.path
    return TopicName.parse(f"{PERSISTENT}://{path['tenant']}/{path['namespace']}/{path['topic']}").base


def _schema_id(call: Call) -> str:
    name, catalog = _topic(call), call.broker.catalog
    if name.tenant not in catalog.tenants:
        raise TenantNotFound("Tenant does not exist")
    if name.namespace_full not in catalog.namespaces:
        raise NamespaceNotFound("Namespace does not exist")
    return schema_id(name)


def _found(version: Version | None) -> Version:
    if version is None:
        raise SchemaNotFound("Schema not found")
    return version


def _reply(version: Version) -> SchemaReply:
    schema = version.schema
    is_pair = schema.type is SchemaType.KEY_VALUE
    text = _key_value_text(schema) if is_pair else schema.data.decode(errors="replace")
    return SchemaReply(version.number, schema.type.name, version.created_ms, text, schema.properties)


def _schema_in(call: Call) -> Schema:
    body = call.body_as(_body)
    if body is None:
        raise BadRequest("the request body is empty: a schema with type, schema and properties is expected")
    if body.type not in SchemaType.__members__:
        raise BadRequest(f"type {body.type[:100]!r} is not one of {', '.join(SchemaType.__members__)}")
    check_map("schema properties", body.properties or {})
    type, text = SchemaType[body.type], body.schema or ""
    if type is SchemaType.BYTES:
        type = SchemaType.NONE
    data = _key_value_data(text) if type is SchemaType.KEY_VALUE else text.encode()
    return Schema(type, data, body.properties or {})


def _key_value_text(schema: Schema) -> str:
    parts = [
        "" if part.type in PRIMITIVE or not part.data else msgspec.Raw(part.data) for part in key_and_value(schema)
    ]
    return msgspec.json.encode({"key": parts[0], "value": parts[1]}).decode()


def _key_value_data(text: str) -> bytes:
    try:
        pair = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"schema of type KEY_VALUE is not a JSON object with key and value: {error}") from error
    for part in ("key", "value"):
        if part not in pair:
            raise BadRequest(f"schema of type KEY_VALUE has no {part}")
    definitions = [b"" if pair[part] == "" else msgspec.json.encode(pair[part]) for part in ("key", "value")]
    return encode_key_value(*definitions)
