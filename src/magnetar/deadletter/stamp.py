"""The stamp of a dead letter: writes the properties that `properties` reads, and the metadata of its new publisher.

The only writer, for the broker's dead letters and for entries that replication sets aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from magnetar.bounds import DEATHS_KEPT
from magnetar.deadletter.properties import (
    DEATH_BATCH_SIZE,
    DEATH_CLIENT_VERSION,
    DEATH_CONSUMER,
    DEATH_CONSUMER_ADDRESS,
    DEATH_DESCRIPTION,
    DEATH_ERROR,
    DEATH_HISTORY,
    DEATH_REASON,
    ERROR_MAX,
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

HISTORY_MAX = DEATHS_KEPT.limit
"""Failures that are kept: a message that is redriven and fails again and again must not grow without bound."""

_ERROR_IN_HISTORY_MAX = 200


def stamp(
    properties: RepeatedCompositeFieldContainer[KeyValue], failure: FailureRecord, message_id: str, description: str
) -> None:
    """Adds the properties of a failure in place of those of an earlier one, which stays in the history."""
    before = text_properties(properties)
    error = failure.error
    if not error and DEATH_REASON not in before:  # otherwise it is the error of an earlier death
        error = before.get(DEATH_ERROR, "")[:ERROR_MAX]  # of the application, when it sent the message to a retry topic
    if failure.error != error[:_ERROR_IN_HISTORY_MAX]:
        failure = msgspec.structs.replace(failure, error=error[:_ERROR_IN_HISTORY_MAX])
    added = {
        REAL_TOPIC: failure.topic,
        REAL_SUBSCRIPTION: failure.subscription,
        ORIGIN_MESSAGE_ID: message_id,
        DEATH_REASON: failure.reason,
        DEATH_DESCRIPTION: description,
        DEATH_CONSUMER: failure.consumer,
        DEATH_CONSUMER_ADDRESS: failure.address,
        DEATH_CLIENT_VERSION: failure.client_version,
        DEATH_ERROR: error,
        DEATH_BATCH_SIZE: str(failure.batch or ""),
        DEATH_HISTORY: msgspec.json.encode([*read_history(before), failure][-HISTORY_MAX:]).decode(),
    }
    for index in reversed(range(len(properties))):
        if properties[index].key in added:
            del properties[index]
    for key, value in added.items():
        if value:
            properties.add(key=key, value=value)


def set_publisher(metadata: MessageMetadata, producer_name: str, sequence_id: int) -> None:
    """Replaces the original producer. The dead letter is visible immediately and is not replicated selectively."""
    metadata.producer_name = producer_name
    metadata.sequence_id = sequence_id
    for field in ("highest_sequence_id", "deliver_at_time", "replicate_to"):
        metadata.ClearField(field)
