"""Origins of rows: their source topics and positions, checked for order and grouped.

Knows nothing of target topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from magnetar.spark.errors import UnwritableRow
from magnetar.spark.sink.sequence_ids import SourcePositions
from magnetar.spark.sink.targets import full_name, partition_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RowOrigins:
    """Source topic and position of each row. `codes` are indexes into `topics`."""

    topics: tuple[str, ...]
    codes: NDArray[np.int64]
    positions: SourcePositions

    @property
    def partitions(self) -> NDArray[np.int64]:
        """Partition indexes, 0 for topics without partitions."""
        return np.array([partition_of(topic) for topic in self.topics], np.int64)[self.codes]

    def take(self, indexes: NDArray[np.int64]) -> RowOrigins:
        positions = SourcePositions(self.positions.ledgers[indexes], self.positions.sequence_ids[indexes])
        return RowOrigins(self.topics, self.codes[indexes], positions)

    def order(self) -> NDArray[np.int64]:
        """Row indexes sorted by source topic and position."""
        return np.lexsort((self.positions.sequence_ids, self.positions.ledgers, self.codes))


def distinct_topics(name: str, column: pa.Array) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The distinct full names in a column of topics, and the index of each row's name."""
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise UnwritableRow(f"column {name} is null in row {row}: a topic is required")
    encoded = column.dictionary_encode()
    topics = tuple(full_name(name, topic) for topic in encoded.dictionary.to_pylist())
    return topics, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


class OrderCheck:
    """Checks that the rows of each source arrive in the order of their positions, throughout a task."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def check(self, origins: RowOrigins) -> None:
        for code, topic in enumerate(origins.topics):
            rows = np.flatnonzero(origins.codes == code)
            if len(rows):
                self._check_topic(topic, origins.take(rows).positions)

    def _check_topic(self, topic: str, positions: SourcePositions) -> None:
        ledgers, numbers = positions.ledgers, positions.sequence_ids
        last = self._last.get(topic)
        if last is not None:
            ledgers, numbers = np.insert(ledgers, 0, last[0]), np.insert(numbers, 0, last[1])
        is_back = (ledgers[1:] < ledgers[:-1]) | ((ledgers[1:] == ledgers[:-1]) & (numbers[1:] < numbers[:-1]))
        if is_back.any():
            row = int(np.flatnonzero(is_back)[0])
            seen = SourcePositions(ledgers, numbers)
            raise UnwritableRow(
                f"rows of {topic} are out of order: {seen.text(row + 1)} comes after {seen.text(row)}. The query"
                " shuffles or sorts them between source and sink; set option sortByPosition=true, or exactlyOnce=off"
            )
        self._last[topic] = int(ledgers[-1]), int(numbers[-1])


def row_groups(*codes: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64] | None]]:
    """Groups rows by all `codes`, keeping their order: the codes and the row indexes, or None for all rows."""
    if all((code == code[0]).all() for code in codes):
        yield tuple(int(code[0]) for code in codes), None
        return
    combined = np.zeros(len(codes[0]), np.int64)
    for code in codes:
        values, ranks = np.unique(code, return_inverse=True)
        combined = combined * len(values) + ranks
    order = np.argsort(combined, kind="stable")
    starts = np.flatnonzero(np.diff(combined[order])) + 1
    for rows in np.split(order, starts):
        yield tuple(int(code[rows[0]]) for code in codes), rows
