"""Where rows go: the topics that are written to, their partitions, and which of them a row belongs to.

Owns what a process remembers of a topic for a while, so that not every task asks. Sends nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from magnetar import errors as server_errors
from magnetar.client.inline import InlineClient
from magnetar.client.produce.routing import HASHES
from magnetar.names import TopicName
from magnetar.spark.clients import patiently
from magnetar.spark.errors import UnwritableRow
from magnetar.spark.source.options import ClientOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REMEMBERED_S = 60.0


@dataclass(frozen=True)
class Target:
    """A topic to write to."""

    topic: str
    partitions: tuple[str, ...]
    deduplicates: bool | None
    """None: nobody could tell."""


class _Key(NamedTuple):
    process: int
    client: ClientOptions
    topic: str


_remembered: dict[_Key, tuple[float, Target]] = {}


def target_of(client: InlineClient, options: ClientOptions, topic: str) -> Target:
    """What is known of the topic; it is created where the broker allows that."""
    key = _Key(os.getpid(), options, topic)
    asked_s, target = _remembered.get(key, (0.0, None))
    if target is not None and time.monotonic() - asked_s < _REMEMBERED_S:
        return target
    partitions = patiently(
        lambda: client.run(client.client.get_partitions_for_topic(topic)), options.operation_timeout_s
    )
    deduplicates: bool | None = False
    if TopicName.parse(topic).is_persistent:
        deduplicates = patiently(lambda: client.run(client.client.deduplicates(topic)), options.operation_timeout_s)
    target = Target(topic, tuple(partitions), deduplicates)
    _remembered[key] = time.monotonic(), target
    return target


def forget_targets() -> None:
    """What went wrong may be because they are not as they were."""
    _remembered.clear()


def full_name(column: str, topic: str) -> str:
    try:
        return TopicName.parse(topic).full
    except server_errors.InvalidName as error:
        raise UnwritableRow(f"column {column}: {error}") from None


def partition_of(topic: str) -> int:
    """The index of a partition; 0 for a topic without."""
    return max(0, TopicName.parse(topic).partition)


def routes(keys: pa.Array | None, otherwise: NDArray[np.int64], partitions: int, scheme: str) -> NDArray[np.int64]:
    """The partition of each row: where the hash of its key says, or the one of `otherwise`, which wraps around."""
    chosen: NDArray[np.int64] = otherwise % partitions
    if keys is None or partitions == 1 or keys.null_count == len(keys):
        return chosen
    # Keys come again and again: each is hashed once.
    encoded = keys.dictionary_encode()
    hash_of = HASHES[scheme]
    hashes = np.array([hash_of(key.decode()) % partitions for key in encoded.dictionary.to_pylist()], np.int64)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(codes >= 0, hashes[codes], chosen)
