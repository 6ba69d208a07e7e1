"""Purge: acknowledges chosen dead letters for every durable subscription of their topics, which makes them handled.

Owns the choice by a condition in SQL, and the two ways of acknowledging: a Magnetar broker takes positions by REST and
any message of a batch, Apache Pulsar whole entries by the protocol. Nothing is deleted: retention decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from magnetar.client.errors import NotAllowed, NotFound, NotSupported
from magnetar.client.inline import InlineClient
from magnetar.client.message import EARLIEST, MessageId
from magnetar.deadletter.topics import HANDLED_SUBSCRIPTION
from magnetar.names import TopicName
from magnetar.spark.clients import inline_client
from magnetar.spark.dead_letters.cursor_admin import NO_SUCH_PATH, CursorAdmin
from magnetar.spark.dead_letters.letters import letters_of
from magnetar.spark.dead_letters.plan import LetterPlan, cursor_admin
from magnetar.spark.sink.sequence_ids import message_positions
from magnetar.wire.moves import positions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 10_000
"""Messages of one request."""

_ID, _TOPIC = "__messageId", "__sourceTopic"

OnProgress = Callable[[int], None]
"""Called with the number of letters that were dealt with."""


@dataclass(frozen=True)
class ChosenLetters:
    """Letters of one topic or partition, in its order. `batch_sizes` is 0 outside a batch."""

    topic: str
    ledgers: NDArray[np.int64]
    entries: NDArray[np.int64]
    batch_indexes: NDArray[np.int64]
    batch_sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.entries)


@dataclass
class Purged:
    """`in_batches` stay: Apache Pulsar would acknowledge the other messages of their batches too."""

    acknowledged: int = 0
    in_batches: int = 0
    deleted: int = 0  # with their topic, meanwhile
    created: list[str] = field(default_factory=list)  # topics that got a subscription


def chosen_letters(spark: SparkSession, plan: LetterPlan, where: str | None, columns: set[str]) -> list[ChosenLetters]:
    """The letters of a plan for which the condition is true; `columns` are those that it names."""
    letters = letters_of(spark, plan, [_TOPIC, _ID, *sorted(columns - {_TOPIC, _ID})])
    if where is not None:
        letters = letters.where(where)
    table = letters.select(_TOPIC, _ID).toArrow()
    topics = table[_TOPIC].unique().to_pylist()
    return [_chosen(topic, table.filter(pc.equal(table[_TOPIC], topic))[_ID]) for topic in sorted(topics)]


def _chosen(topic: str, ids: pa.ChunkedArray) -> ChosenLetters:
    column = ids.combine_chunks()
    ledgers, entries, indexes = message_positions(_ID, column)
    sizes = np.zeros(len(entries), np.int64)
    for row in np.flatnonzero(indexes >= 0).tolist():
        sizes[row] = MessageId.from_bytes(column[row].as_py()).batch_size
    order = np.lexsort((indexes, entries, ledgers))
    return ChosenLetters(topic, ledgers[order], entries[order], indexes[order], sizes[order])


def purge(plan: LetterPlan, chosen: list[ChosenLetters], on_progress: OnProgress = lambda count: None) -> Purged:
    """Acknowledges them; repeated, it acknowledges what is left."""
    purged = Purged()
    client = inline_client(plan.options.client)
    with cursor_admin(plan.options.client) as admin:
        for letters in chosen:
            _purge(admin, client, letters, purged, on_progress)
    return purged


def _purge(
    admin: CursorAdmin, client: InlineClient, letters: ChosenLetters, purged: Purged, on_progress: OnProgress
) -> None:
    try:
        subscriptions = admin.durable_subscriptions(letters.topic)
    except NotFound:
        purged.deleted += len(letters)
        on_progress(len(letters))
        return
    if not subscriptions:
        admin.create_subscription(letters.topic, HANDLED_SUBSCRIPTION)
        purged.created.append(letters.topic)
        subscriptions = [HANDLED_SUBSCRIPTION]
    try:
        for text, count in _position_texts(letters):
            admin.acknowledge(letters.topic, text)
            purged.acknowledged += count
            on_progress(count)
    except (NotFound, NotSupported, NotAllowed) as error:
        if error.status not in NO_SUCH_PATH:
            raise
        _acknowledge_entries(client, letters, subscriptions, purged, on_progress)


def _position_texts(letters: ChosenLetters) -> Iterator[tuple[str, int]]:
    for ledger in np.unique(letters.ledgers).tolist():
        rows = np.flatnonzero(letters.ledgers == ledger)
        messages = zip(letters.entries[rows].tolist(), letters.batch_indexes[rows].tolist(), strict=True)
        while part := list(islice(messages, CHUNK)):
            yield positions_of(ledger, part).text, len(part)


def _acknowledge_entries(
    client: InlineClient,
    letters: ChosenLetters,
    subscriptions: list[str],
    purged: Purged,
    on_progress: OnProgress,
) -> None:
    """By the protocol, in chunks; an entry counts when the last subscription has acknowledged it."""
    whole = _whole_entries(letters)
    in_batches = len(letters) - sum(count for _, count in whole)
    purged.in_batches += in_batches
    on_progress(in_batches)
    partition = TopicName.parse(letters.topic).partition
    for subscription in subscriptions:
        is_last = subscription == subscriptions[-1]

        async def acknowledge(subscription: str = subscription, is_last: bool = is_last) -> None:
            cursor = await client.client.cursor(letters.topic, subscription, initial_position=EARLIEST)
            try:
                for start in range(0, len(whole), CHUNK):
                    part = whole[start : start + CHUNK]
                    await cursor.acknowledge_each([MessageId(*position, partition) for position, _ in part])
                    if is_last:
                        count = sum(count for _, count in part)
                        purged.acknowledged += count
                        on_progress(count)
            finally:
                await cursor.close_and_wait()

        client.run(acknowledge())


def _whole_entries(letters: ChosenLetters) -> list[tuple[tuple[int, int], int]]:
    """Entries all of whose messages are chosen, with their number."""
    positions = np.stack((letters.ledgers, letters.entries), axis=1)
    entries, firsts, counts = np.unique(positions, axis=0, return_index=True, return_counts=True)
    is_whole = counts >= np.maximum(letters.batch_sizes[firsts], 1)
    return [
        ((int(ledger), int(entry)), int(count))
        for (ledger, entry), count, whole in zip(entries.tolist(), counts.tolist(), is_whole.tolist(), strict=True)
        if whole
    ]
