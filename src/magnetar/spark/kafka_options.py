"""Kafka's options, as users of its Spark source type them, and what to use here instead.

The reference page has the table; errors give the hint.
"""

from __future__ import annotations

from collections.abc import Mapping

KAFKA_OPTIONS: Mapping[str, str] = {
    "kafka.bootstrap.servers": "`service.url`, such as `pulsar://host:6650`",
    "subscribe": "`topic`, or `topics` for several",
    "subscribePattern": "`topicsPattern`",
    "assign": "`topics` with names of partitions, such as `orders-partition-0`",
    "startingTimestamp": "`startingTime`, or a time in `startingOffsets`",
    "startingOffsetsByTimestamp": "`startingTime`, or times in `startingOffsets`",
    "endingTimestamp": "`endingTime`, or a time in `endingOffsets`",
    "endingOffsetsByTimestamp": "`endingTime`, or times in `endingOffsets`",
    "maxOffsetsPerTrigger": "`maxMessagesPerTrigger`",
    "minOffsetsPerTrigger": "a trigger with a processing time",
    "maxTriggerDelay": "a trigger with a processing time",
    "groupIdPrefix": "`predefinedSubscription`, which is optional",
    "kafka.group.id": "`predefinedSubscription`, which is optional",
    "includeHeaders": "the column `__messageProperties`, which is always there",
    "kafkaConsumer.pollTimeoutMs": "`pulsar.client.operationTimeoutMs`",
}
"""`startingOffsets`, `endingOffsets`, `failOnDataLoss`, `minPartitions` and the sink's `topic` have the same names."""

_BY_NAME = {name.lower(): hint for name, hint in KAFKA_OPTIONS.items()}


def kafka_hint(name: str) -> str | None:
    """What to use instead of an option of Kafka; None if it is not one."""
    hint = _BY_NAME.get(name.lower())
    if hint is None and name.lower().startswith("kafka."):
        return "`pulsar.client.…` for the client and `pulsar.producer.…` for the producer"
    return hint
