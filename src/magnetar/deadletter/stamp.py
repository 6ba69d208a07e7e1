"""The stamp of a dead letter: writes the properties that `properties` reads, and the metadata of its new publisher.

The only writer, for the broker's dead letters and for messages that pipelines set aside.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    DEATH_EXCEPTION,
    DEATH_FINGERPRINT,
    DEATH_HISTORY,
    DEATH_REASON,
    DEATH_STACK_TRACE,
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

ERROR_IN_HISTORY_MAX = 200
EXCEPTION_MAX = 200
"""Characters of the name of an exception that are kept."""

STACK_TRACE_MAX = 8192
"""Characters of a stack trace that are kept: the last ones, which are nearest to the exception."""


class Raised(msgspec.Struct, frozen=True):
    """The exception that a message failed with, as a pipeline met it."""

    exception: str
    text: str
    stack_trace: str
    fingerprint: str


def death_properties(
    before: Mapping[str, str],
    failure: FailureRecord,
    message_id: str,
    description: str,
    raised: Raised | None = None,
) -> dict[str, str]:
    """The properties of a failure, by name; those that are empty replace the ones of an earlier failure too."""
    error = failure.error if raised is None else raised.text[:ERROR_MAX]
    if not error and DEATH_REASON not in before:  # otherwise it is the error of an earlier death
        error = before.get(DEATH_ERROR, "")[:ERROR_MAX]  # of the application, when it sent the message to a retry topic
    if failure.error != error[:ERROR_IN_HISTORY_MAX]:
        failure = msgspec.structs.replace(failure, error=error[:ERROR_IN_HISTORY_MAX])
    return {
        REAL_TOPIC: failure.topic,
        REAL_SUBSCRIPTION: failure.subscription,
        ORIGIN_MESSAGE_ID: message_id,
        DEATH_REASON: failure.reason,
        DEATH_DESCRIPTION: description,
        DEATH_CONSUMER: failure.consumer,
        DEATH_CONSUMER_ADDRESS: failure.address,
        DEATH_CLIENT_VERSION: failure.client_version,
        DEATH_ERROR: error,
        DEATH_EXCEPTION: "" if raised is None else raised.exception[:EXCEPTION_MAX],
        DEATH_STACK_TRACE: "" if raised is None else raised.stack_trace[-STACK_TRACE_MAX:],
        DEATH_FINGERPRINT: "" if raised is None else raised.fingerprint,
        DEATH_BATCH_SIZE: str(failure.batch or ""),
        DEATH_HISTORY: msgspec.json.encode([*read_history(before), failure][-HISTORY_MAX:]).decode(),
    }


def stamped(
    before: Mapping[str, str],
    failure: FailureRecord,
    message_id: str,
    description: str,
    raised: Raised | None = None,
) -> dict[str, str]:
    """All properties of the dead letter of a message that has these."""
    added = death_properties(before, failure, message_id, description, raised)
    return {key: value for key, value in {**before, **added}.items() if value or key not in added}


def stamp(
    properties: RepeatedCompositeFieldContainer[KeyValue], failure: FailureRecord, message_id: str, description: str
) -> None:
    """Adds the properties of a failure in place of those of an earlier one, which stays in the history."""
    added = death_properties(text_properties(properties), failure, message_id, description)
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
