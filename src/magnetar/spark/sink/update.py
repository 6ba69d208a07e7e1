"""Updates of a streaming aggregation, written to a topic.

Spark offers output mode `update` to its own sinks only, so each micro-batch is written as a batch. A repeated
micro-batch is written again: the last message of a key has its value, which is what a reader of updates keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from magnetar.spark.errors import InvalidOption


def update_to(topic: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that writes each micro-batch to a topic; `options` are those of the sink."""
    if not topic:
        raise InvalidOption("no target topic: update_to needs the name of a topic")

    def write(updates: DataFrame, batch_id: int) -> None:
        updates.write.format("pulsar").mode("append").options(**options, topic=topic).save()

    return write
