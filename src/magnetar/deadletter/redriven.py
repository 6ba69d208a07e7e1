"""Redriven messages: what a dead letter begins its new life with.

Owns which properties it loses and gains, and the change of its metadata in place: payload, key, ordering key, event
time and schema version stay as they are, byte by byte. Knows neither where a letter goes nor who may send it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from magnetar.deadletter.properties import (
    DEATH_BATCH_SIZE,
    DEATH_CLIENT_VERSION,
    DEATH_CONSUMER,
    DEATH_CONSUMER_ADDRESS,
    DEATH_DESCRIPTION,
    DEATH_ERROR,
    DEATH_EXCEPTION,
    DEATH_FINGERPRINT,
    DEATH_HISTORY,
    DEATH_REASON,
    DEATH_STACK_TRACE,
    DELAY_TIME,
    ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_ID_MISSPELT,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUMETIMES,
    REDRIVE_GENERATION,
    REDRIVE_SUBSCRIPTION,
    FailureRecord,
    origin_of,
    read_count,
    read_reason,
    read_subscription,
)
from magnetar.deadletter.stamp import ERROR_IN_HISTORY_MAX
from magnetar.names import TopicName
from magnetar.wire.property_map import MapMetadata

QUARANTINED = "REDRIVE_QUARANTINED"
"""Why a letter is in quarantine."""

RESET = (
    REAL_TOPIC,
    REAL_SUBSCRIPTION,
    ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_ID_MISSPELT,
    RECONSUMETIMES,
    DELAY_TIME,
    DEATH_REASON,
    DEATH_DESCRIPTION,
    DEATH_CONSUMER,
    DEATH_CONSUMER_ADDRESS,
    DEATH_CLIENT_VERSION,
    DEATH_ERROR,
    DEATH_EXCEPTION,
    DEATH_STACK_TRACE,
    DEATH_FINGERPRINT,
    DEATH_BATCH_SIZE,
    REDRIVE_GENERATION,
    REDRIVE_SUBSCRIPTION,
    QUARANTINED,
)
"""Properties that a redriven message does not keep; clients do not replace those of an earlier death."""

_RESET = frozenset(RESET)
_CLEARED = ("highest_sequence_id", "deliver_at_time", "replicate_to", "replicated_from")
_GENERATION_DIGITS = 9


class OriginKey(NamedTuple):
    """Topic, its partition, and subscription of a letter, as its properties say; None for unknown."""

    topic: str | None
    partition: int | None
    subscription: str | None


ANY_ORIGIN = OriginKey("", None, None)
"""Stands for all others in a table of targets; no letter has an empty topic."""


def origin_key(properties: Mapping[str, str], letter_topic: TopicName) -> OriginKey:
    topic, partition = origin_of(properties.get(REAL_TOPIC))
    return OriginKey(topic, partition, read_subscription(properties, letter_topic))


def plain_properties(metadata: MapMetadata) -> dict[str, str] | None:
    """The properties of a letter that can go back as it is; None for one that is not a single message with texts."""
    if metadata.HasField("num_messages_in_batch") or metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        return None
    stored = metadata.properties
    try:
        properties = {name: stored[name] for name in stored}
        "".join(properties.values()) + metadata.partition_key
    except (TypeError, UnicodeError):  # protobuf has what is not UTF-8 as bytes, and does not find such a name
        return None
    return properties


def generation_in(properties: Mapping[str, str]) -> int | None:
    """How often a letter was redriven; None if its property is no number."""
    text = properties.get(REDRIVE_GENERATION)
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _GENERATION_DIGITS else None


def redrive_metadata(
    metadata: MapMetadata,
    properties: Mapping[str, str],
    origin: OriginKey,
    generation: int,
    producer: str,
    sequence_id: int,
    now_ms: int,
    names_subscription: bool,
) -> None:
    """Changes the metadata of a plain letter into those of the message that it becomes."""
    changed = metadata.properties
    for name in properties:
        if name in _RESET:
            del changed[name]
    changed[REDRIVE_GENERATION] = str(generation + 1)
    if names_subscription and origin.subscription is not None:
        changed[REDRIVE_SUBSCRIPTION] = origin.subscription
    if DEATH_HISTORY not in properties and origin.topic is not None:
        changed[DEATH_HISTORY] = _first_death(properties, origin, metadata.publish_time)
    for field in _CLEARED:
        metadata.ClearField(field)
    metadata.producer_name = producer
    metadata.sequence_id = sequence_id
    metadata.publish_time = now_ms


def _first_death(properties: Mapping[str, str], origin: OriginKey, published_ms: int) -> str:
    """The history of a letter whose client wrote none."""
    error = properties.get(DEATH_ERROR, "")[:ERROR_IN_HISTORY_MAX]
    before, after = _around_times(origin, read_reason(properties), read_count(properties) or 0, error)
    return f'{before}"first":{published_ms},"last":{published_ms}{after}'


@lru_cache(maxsize=1000)
def _around_times(origin: OriginKey, reason: str, count: int, error: str) -> tuple[str, str]:
    """Most letters of an origin differ in their times only."""
    record = FailureRecord(
        topic=origin.topic or "",
        subscription=origin.subscription or "",
        reason=reason,
        count=count,
        first=0,
        last=0,
        error=error,
    )
    before, _, after = msgspec.json.encode([record]).decode().partition('"first":0,"last":0')
    return before, after
