"""A consumer process that one message kills: it exits hard, as a segmentation fault or the kernel would make it exit.

    python tests/compat/poison.py SERVICE_URL TOPIC SUBSCRIPTION MAX_REDELIVER_COUNT

Writes one line per message that it has processed, its payload and its redelivery count, and ends with status 0 when no
more come. The poison message ends it with status 99, before anything of it is said.
"""

from __future__ import annotations

import os
import sys

import pulsar

POISON = b"poison"
KILLED = 99
_IDLE_MS = 1_000


def main(service_url: str, topic: str, subscription: str, limit: str) -> None:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic,
        subscription,
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        properties={"deadLetterPolicy.maxRedeliverCount": limit},
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
