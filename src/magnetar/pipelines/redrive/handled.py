"""Acknowledgement of handled letters where the broker knows no moves: by the cursors of all durable subscriptions.

Whole entries only: a batch is acknowledged when all its messages were sent in one round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from magnetar.client.async_client import AsyncClient
from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.consume.cursor import AsyncCursor
from magnetar.client.errors import ConsumerBusy
from magnetar.client.message import EARLIEST, MessageId
from magnetar.pipelines.run import RunFailed
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin

_BUSY_S = 5.0


def acknowledge_handled(endpoint: ClusterEndpoint, admin: CursorAdmin, handled: Mapping[str, str]) -> None:
    """`handled` are positions by partition, in the form of the stage. Raises `ClientError`, and `RunFailed` for a
    subscription that has consumers."""

    async def acknowledge(cursor: AsyncCursor) -> None:
        await cursor.acknowledge_each(whole_entries(handled[cursor.topic]))

    _with_each_cursor(endpoint, admin, handled, acknowledge)


def check_free(endpoint: ClusterEndpoint, admin: CursorAdmin, partitions: Iterable[str]) -> None:
    """Raises `RunFailed` for a subscription that has consumers: what is sent could not be acknowledged."""

    async def open_it(cursor: AsyncCursor) -> None:
        await cursor.position()

    _with_each_cursor(endpoint, admin, partitions, open_it)


def _with_each_cursor(
    endpoint: ClusterEndpoint,
    admin: CursorAdmin,
    partitions: Iterable[str],
    call: Callable[[AsyncCursor], Coroutine[Any, Any, None]],
) -> None:
    """One after the other, of all durable subscriptions."""

    async def of_all() -> None:
        async with AsyncClient(
            endpoint.service_url, security=endpoint.security, admin_url=endpoint.admin_url
        ) as client:
            for partition in partitions:
                for subscription in admin.durable_subscriptions(partition):
                    async with _cursor(client, partition, subscription) as cursor:
                        await call(cursor)

    thread = LoopThread()
    try:
        thread.run(of_all())
    except ConsumerBusy as error:
        raise RunFailed(
            f"{error.text}: a redrive acknowledges there what it has sent, so close its consumers first"
        ) from error
    finally:
        thread.stop()


@asynccontextmanager
async def _cursor(client: AsyncClient, partition: str, subscription: str) -> AsyncIterator[AsyncCursor]:
    cursor = await client.cursor(partition, subscription, initial_position=EARLIEST, busy_s=_BUSY_S)
    try:
        yield cursor
    finally:
        await cursor.close_and_wait()


def whole_entries(text: str) -> list[MessageId]:
    """The entries of `ledger:entry` and `ledger:entry.index/size`, batches only if all their messages are there: the
    protocol has no way to acknowledge one of them for good."""
    found: set[tuple[int, int]] = set()
    batches: dict[tuple[int, int, int], set[int]] = defaultdict(set)
    for position in filter(None, text.split(",")):
        ledger, entry, index, size = parse_handled(position)
        if size:
            batches[ledger, entry, size].add(index)
        else:
            found.add((ledger, entry))
    found.update((ledger, entry) for (ledger, entry, size), indexes in batches.items() if len(indexes) == size)
    return [MessageId(ledger_id, entry_id) for ledger_id, entry_id in sorted(found)]


def parse_handled(position: str) -> tuple[int, int, int, int]:
    """Ledger, entry, batch index and size of the batch, 0 for none."""
    ledger, _, rest = position.partition(":")
    entry, _, rest = rest.partition(".")
    index, _, size = rest.partition("/")
    return int(ledger), int(entry), int(index or -1), int(size or 0)


def handled_text(ids: Iterable[MessageId]) -> str:
    return ",".join(map(_text, ids))


def _text(one: MessageId) -> str:
    batch = f".{one.batch_index}/{one.batch_size}" if one.batch_size > 0 else ""
    return f"{one.ledger_id}:{one.entry_id}{batch}"
