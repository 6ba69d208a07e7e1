"""A consumer process that one message kills: it exits hard, as after a segmentation fault.

    python tests/compat/poison.py SERVICE_URL TOPIC SUBSCRIPTION MAX_REDELIVER_COUNT broker|client

The last argument is whose dead letter policy the count is for. Prints a line with payload and redelivery count for each
processed message, and exits with status 0 when no more arrive. The poison message makes it exit with status 99 at once.
"""

from __future__ import annotations

import os
import sys

import pulsar

POISON = b"poison"
KILLED = 99
_IDLE_MS = 1_000


def main(service_url: str, topic: str, subscription: str, limit: str, policy: str) -> None:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    options = (
        {"properties": {"deadLetterPolicy.maxRedeliverCount": limit}}
        if policy == "broker"
        else {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(int(limit))}
    )
    consumer = client.subscribe(
        topic,
        subscription,
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        **options,
    )
    while True:
        try:
            message = consumer.receive(_IDLE_MS)
        except pulsar.Timeout:
            break
        if message.data() == POISON:
            os._exit(KILLED)
        print(message.data().decode(), message.redelivery_count(), flush=True)
        consumer.acknowledge(message)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
