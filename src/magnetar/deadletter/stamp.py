"""The stamp of a dead letter: writes the properties that `properties` reads, and the metadata of its new publisher.

The only writer, for the broker's dead letters and for entries that replication sets aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from magnetar.deadletter.properties import (
    DEATH_DESCRIPTION,
    DEATH_HISTORY,
    DEATH_REASON,
    ORIGIN_MESSAGE_ID,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    FailureRecord,
    read_history,
)
from magnetar.wire.metadata import text_properties
from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

HISTORY_MAX = 20
"""Failures that are kept: a message that is redriven and fails again and again must not grow without bound."""


def stamp(
    properties: RepeatedCompositeFieldContainer[KeyValue], failure: FailureRecord, message_id: str, description: str
) -> None:
    """Adds the properties of a failure in place of those of an earlier one, which stays in the history."""
    history = [*read_history(text_properties(properties)), failure][-HISTORY_MAX:]
    added = {
        REAL_TOPIC: failure.topic,
        REAL_SUBSCRIPTION: failure.subscription,
        ORIGIN_MESSAGE_ID: message_id,
        DEATH_REASON: failure.reason,
        DEATH_DESCRIPTION: description,
        DEATH_HISTORY: msgspec.json.encode(history).decode(),
    }
    for index in reversed(range(len(properties))):
        if properties[index].key in added:
            del properties[index]
    for key, value in added.items():
        properties.add(key=key, value=value)


def set_publisher(metadata: MessageMetadata, producer_name: str, sequence_id: int) -> None:
    """Replaces the original producer. The dead letter is visible immediately and is not replicated selectively."""
    metadata.producer_name = producer_name
    metadata.sequence_id = sequence_id
    for field in ("highest_sequence_id", "deliver_at_time", "replicate_to"):
        metadata.ClearField(field)
