"""One topic: statistics, messages, schema and policies, from calls that Apache Pulsar has too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from magnetar.client.consume.peeked import messages_of_response
from magnetar.client.errors import UnreadableMessage
from magnetar.client.message import Message
from magnetar.console.rest.admin import AdminApi
from magnetar.console.rest.errors import LoginRefused, RequestRefused, RightRefused
from magnetar.console.rest.model import PartitionedMetadataAnswer, PartitionedStatsAnswer, TopicSchema, TopicStatsAnswer
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import Schema, SchemaType

MESSAGES_PER_PAGE = 5
_POLICIES = (
    ("Retention", "retention"),
    ("Time to live", "messageTTL"),
    ("Backlog quotas", "backlogQuotaMap"),
    ("Deduplication", "deduplicationEnabled"),
    ("Dead letters", "deadLetterPolicy"),
    ("Publish rate", "publishRate"),
    ("Dispatch rate", "dispatchRate"),
    ("Most producers", "maxProducers"),
    ("Most consumers", "maxConsumers"),
    ("Most unacknowledged, of a subscription", "maxUnackedMessagesOnSubscription"),
)
_VERSION_SIZE = 8


def segments_of(topic: TopicName) -> tuple[str, ...]:
    return (topic.domain, topic.tenant, topic.namespace, topic.local)


def parsed(domain: str, tenant: str, namespace: str, local: str) -> TopicName | None:
    """The topic of an address; None if there is no such name."""
    try:
        return TopicName.parse(f"{domain}://{tenant}/{namespace}/{local}")
    except InvalidName:
        return None


async def stats_of(api: AdminApi, topic: TopicName) -> TopicStatsAnswer:
    """Of a partitioned topic the sum, with those of each partition."""
    metadata = await api.get(PartitionedMetadataAnswer, *segments_of(topic), "partitions")
    if not metadata.partitions:
        return await api.get(TopicStatsAnswer, *segments_of(topic), "stats")
    path = (*segments_of(topic), "partitioned-stats")
    return await api.get(PartitionedStatsAnswer, *path, query={"perPartition": True})


async def schema_of(api: AdminApi, topic: TopicName, version: int | None = None) -> TopicSchema | None:
    """The newest, or one version; None if there is none."""
    number = () if version is None else (str(version),)
    try:
        return await api.get(TopicSchema, "schemas", topic.tenant, topic.namespace, topic.base.local, "schema", *number)
    except (LoginRefused, RightRefused):
        raise
    except RequestRefused as error:
        if error.is_missing:
            return None
        raise


async def policies_of(api: AdminApi, topic: TopicName) -> list[tuple[str, str]]:
    """Those in force, of the topic, its namespace or the broker. What a cluster lacks, or this role may not see, is
    left out."""

    async def one(name: str) -> str | None:
        try:
            response = await api.request("GET", (*segments_of(topic.base), name), query={"applied": True})
        except LoginRefused:
            raise
        except RequestRefused:
            return None
        text = response.text.strip()
        return text if text not in ("", "null", "{}") else None

    found = await asyncio.gather(*(one(name) for _, name in _POLICIES))
    return [(title, value) for (title, _), value in zip(_POLICIES, found, strict=True) if value is not None]


# -- messages


class Peeked(msgspec.Struct, frozen=True):
    """A message that was read and not consumed, or the reason why it cannot be."""

    id: str
    message: Message | None = None
    fault: str = ""
    schema: Schema | None = None


async def peek(api: AdminApi, topic: TopicName, position: int, *, from_end: bool) -> list[Peeked]:
    """The messages of some entries, counted from 1 at the first, or at the last."""

    async def one(number: int) -> list[Peeked]:
        start = "latest" if from_end else "earliest"
        query = {"initialPosition": start, "messagePosition": number}
        response = await api.request("GET", (*segments_of(topic), "examinemessage"), query=query)
        try:
            messages = messages_of_response(topic.full, topic.partition, response.headers, response.content)
        except UnreadableMessage as error:
            return [Peeked(str(error.message_id), fault=str(error))]
        return [Peeked(str(message.id), message) for message in messages]

    entries = await asyncio.gather(*map(one, range(position, position + MESSAGES_PER_PAGE)))
    # A position after the end is answered with the last entry, again.
    found = {peeked.id: peeked for entry in entries for peeked in entry}
    return await _with_schemas(api, topic, list(found.values()))


async def _with_schemas(api: AdminApi, topic: TopicName, found: list[Peeked]) -> list[Peeked]:
    versions = {one.message.schema_version for one in found if one.message is not None}
    known = {version: await _schema(api, topic, version) for version in versions if version}
    return [
        one
        if one.message is None or not one.message.schema_version
        else msgspec.structs.replace(one, schema=known[one.message.schema_version])
        for one in found
    ]


async def _schema(api: AdminApi, topic: TopicName, version: bytes) -> Schema | None:
    if len(version) != _VERSION_SIZE:
        return None
    try:
        found = await schema_of(api, topic, int.from_bytes(version, "big", signed=True))
    except RightRefused:
        return None
    return None if found is None else definition_of(found)


def definition_of(found: TopicSchema) -> Schema | None:
    """None for a type that is unknown here, or a definition that cannot be read."""
    if found.type not in SchemaType.__members__:
        return None
    type_ = SchemaType[found.type]
    if type_ is not SchemaType.KEY_VALUE:
        return Schema(type_, found.data.encode(), found.properties)
    try:
        pair: Any = json.loads(found.data)
        parts = [_part(pair.get(name)) for name in ("key", "value")]
    except (ValueError, AttributeError, RecursionError):
        return None
    return Schema(type_, encode_key_value(*parts), found.properties)


def _part(part: object) -> bytes:
    return part.encode() if isinstance(part, str) else json.dumps(part).encode()
