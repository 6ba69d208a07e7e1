"""Target topics: their partitions and deduplication, and the partition of each row.

Owns a process-wide cache of target topics, so that not every task looks them up. Sends nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from magnetar import errors as server_errors
from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.inline import InlineClient
from magnetar.client.produce.routing import HASHES
from magnetar.names import TopicName
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.errors import UnwritableRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CACHED_S = 60.0


@dataclass(frozen=True)
class TargetTopic:
    """A topic that rows are written to."""

    topic: str
    partitions: tuple[str, ...]
    deduplicates: bool | None
    """None: unknown."""


class _Key(NamedTuple):
    process: int
    client: SparkClientOptions
    topic: str


_cache: dict[_Key, tuple[float, TargetTopic]] = {}


def target_topic(
    client: InlineClient, options: SparkClientOptions, topic: str, *, is_first: bool = False
) -> TargetTopic:
    """Looks up the topic, which the broker creates if it allows auto-creation.

    The first request of a write gives up sooner: the address may be wrong.
    """
    key = _Key(os.getpid(), options, topic)
    cached_at_s, target = _cache.get(key, (0.0, None))
    if target is not None and time.monotonic() - cached_at_s < _CACHED_S:
        return target
    give_up_s = options.connect_timeout_s if is_first else options.operation_timeout_s
    partitions = with_retry_blocking(lambda: client.run(client.client.get_partitions_for_topic(topic)), give_up_s)
    deduplicates: bool | None = False
    if TopicName.parse(topic).is_persistent:
        deduplicates = with_retry_blocking(
            lambda: client.run(client.client.deduplicates(topic)), options.operation_timeout_s
        )
    target = TargetTopic(topic, tuple(partitions), deduplicates)
    _cache[key] = time.monotonic(), target
    return target


def clear_target_cache() -> None:
    """After a failure: target topics may have changed."""
    _cache.clear()


def full_name(column: str, topic: str) -> str:
    try:
        return TopicName.parse(topic).full
    except server_errors.InvalidName as error:
        raise UnwritableRow(f"column {column}: {error}") from None


def partition_of(topic: str) -> int:
    """The partition index; 0 for a topic without partitions."""
    return max(0, TopicName.parse(topic).partition)


def choose_partitions(
    keys: pa.Array | None, keyless: NDArray[np.int64], partitions: int, scheme: str
) -> NDArray[np.int64]:
    """The partition of each row: by the hash of its key, or `keyless` modulo the number of partitions."""
    chosen: NDArray[np.int64] = keyless % partitions
    if keys is None or partitions == 1 or keys.null_count == len(keys):
        return chosen
    # Keys repeat: each is hashed once.
    encoded = keys.dictionary_encode()
    hash_of = HASHES[scheme]
    hashes = np.array([hash_of(key.decode()) % partitions for key in encoded.dictionary.to_pylist()], np.int64)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(codes >= 0, hashes[codes], chosen)
