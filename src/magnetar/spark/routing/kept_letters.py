"""The subscription that keeps the dead letters of a pipeline on Apache Pulsar, where a topic without one keeps nothing.

A Magnetar broker keeps dead letter topics by itself. Writes no letters.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.client.message import EARLIEST
from magnetar.deadletter.topics import HANDLED_SUBSCRIPTION
from magnetar.spark.clients import blocking_client
from magnetar.spark.sink.options import SinkOptions

_KEEPS_BY_ITSELF = "Magnetar"


def keep_letters(topic: str, options: Mapping[str, str]) -> None:
    """Creates the topic and the subscription where they are needed and missing. `options` are those of the sink."""
    with blocking_client(SinkOptions.of(options).client) as client:
        if client.server_version(topic).startswith(_KEEPS_BY_ITSELF):
            return
        client.consumer(
            topic, HANDLED_SUBSCRIPTION, subscription_type="Shared", initial_position=EARLIEST, queue_size=1
        ).close()
