"""Cursors of a topic's subscriptions in one cluster: read, created and moved by REST, without a consumer.

A consumer would take the subscription from its users; REST does not, and moves a position forward only. Works with any
Pulsar. Owns the connections to a cluster, and the REST calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import msgspec

from magnetar.client import EARLIEST, AsyncClient, Entry, MessageId, Security
from magnetar.client.connection.address import parse_service_url
from magnetar.client.connection.http_lookup import HttpLookup
from magnetar.client.connection.rest_path import topic_path
from magnetar.client.errors import ConnectionLost, InvalidArgument, NotFound, NotSupported, ServerFailure, Timeout
from magnetar.client.message import Position
from magnetar.names import TopicName
from magnetar.pipelines.subscriptions.consumed import Ledgers
from magnetar.replication.cluster import ClusterEndpoint

_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 2.0
_READ_AHEAD_BYTES = 4 << 20
_TOPICS_AT_ONCE = 500
_MANY = "replication/cursors"

# A message id in REST.
_EARLIEST_BODY = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


class _Ledger(msgspec.Struct, rename="camel"):
    ledger_id: int
    entries: int = 0


class _Cursor(msgspec.Struct, rename="camel"):
    mark_delete_position: str = "-1:-1"
    individually_deleted_messages: str = "[]"
    active: bool = False


class _Internals(msgspec.Struct, rename="camel"):
    last_confirmed_entry: str = "-1:-1"
    number_of_entries: int = 0
    total_size: int = 0
    current_ledger_entries: int = 0
    ledgers: list[_Ledger] = []
    cursors: dict[str, _Cursor] = {}


class _Subscription(msgspec.Struct):
    consumers: list[msgspec.Raw] = []


class _Stats(msgspec.Struct):
    subscriptions: dict[str, _Subscription] = {}


class Cursors(msgspec.Struct, frozen=True):
    """The cursors of one topic or partition at one moment. `marks` are the acknowledged positions by subscription."""

    ledgers: Ledgers
    marks: dict[str, Position]
    ragged: frozenset[str]  # subscriptions with acknowledged entries after their mark
    active: frozenset[str]  # subscriptions that may have consumers: `has_consumers` is exact
    entry_size: float  # on average

    @property
    def last(self) -> Position:
        return self.ledgers.last


class CursorClient:
    """A client of one cluster, for one event loop."""

    def __init__(self, endpoint: ClusterEndpoint) -> None:
        if endpoint.admin_url is None:
            raise NotSupported(f"cluster {endpoint.name} has no HTTP address, which replicated subscriptions need")
        security = endpoint.security or Security()
        self.name = endpoint.name
        self.failure = ""
        """Why the cluster cannot be reached; other topics need not try."""
        self._knows_many = True
        self._rest = HttpLookup(parse_service_url(endpoint.admin_url), _TIMEOUT_S, security)
        self._client = AsyncClient(
            endpoint.service_url,
            security=security,
            operation_timeout_s=_TIMEOUT_S,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            reconnect_timeout_s=_TIMEOUT_S,
        )

    async def cursors(self, topic: TopicName) -> Cursors:
        what = f"the cursors of {topic.full} in cluster {self.name}"
        with self._noting_failure():
            found = await self._rest.show(f"{topic_path(topic)}/internalStats", _Internals, what)
        return _cursors_of(found, what)

    async def cursors_of_many(self, topics: Sequence[TopicName]) -> dict[str, Cursors]:
        """By full name, for the topics that exist. Empty for Apache Pulsar, which has no such call."""
        found: dict[str, Cursors] = {}
        what = f"the cursors of {len(topics)} topics in cluster {self.name}"
        for start in range(0, len(topics) if self._knows_many else 0, _TOPICS_AT_ONCE):
            names = [topic.full for topic in topics[start : start + _TOPICS_AT_ONCE]]
            try:
                with self._noting_failure():
                    answer = await self._rest.show(_MANY, dict[str, _Internals], what, body=names)
            except (NotFound, NotSupported):
                self._knows_many = False
                return {}
            found.update((name, _cursors_of(internals, what)) for name, internals in answer.items())
        return found

    async def has_consumers(self, topic: TopicName, subscription: str) -> bool:
        what = f"the consumers of {topic.full} in cluster {self.name}"
        with self._noting_failure():
            found = await self._rest.show(f"{topic_path(topic)}/stats", _Stats, what)
        return bool(found.subscriptions.get(subscription, _Subscription()).consumers)

    async def create(self, topic: TopicName, subscription: str) -> None:
        """A replicated subscription before the first stored entry."""
        what = f"creating subscription {subscription!r} of {topic.full} in cluster {self.name}"
        with self._noting_failure():
            await self._rest.change("PUT", _path(topic, subscription), {"replicated": "true"}, _EARLIEST_BODY, what)

    async def move_up_to(self, topic: TopicName, subscription: str, position: Position) -> None:
        """Acknowledges the entry and all before it; a subscription that is further ahead stays there."""
        what = f"moving subscription {subscription!r} of {topic.full} in cluster {self.name}"
        ledger_id, entry_id = position
        body = {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": topic.partition}
        with self._noting_failure():
            await self._rest.change("POST", f"{_path(topic, subscription)}/expireMessages", {}, body, what)

    async def acknowledge_each(self, topic: TopicName, subscription: str, positions: list[Position]) -> None:
        """These entries alone, by a consumer: for a few milliseconds no other one can connect."""
        with self._noting_failure():
            cursor = await self._client.cursor(topic.full, subscription, initial_position=EARLIEST)
            try:
                await cursor.acknowledge_each([MessageId(*position) for position in positions])
            finally:
                await cursor.close_and_wait()

    async def entries(self, topic: TopicName, after: Position, up_to: Position) -> AsyncGenerator[list[Entry]]:
        start, end = MessageId(*after), MessageId(*up_to)
        with self._noting_failure():
            async with await self._client.entries(topic.full, start, end, bytes_max=_READ_AHEAD_BYTES) as reader:
                while entries := await reader.next():
                    yield entries

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except (ConnectionLost, Timeout) as error:
            self.failure = f"cluster {self.name}: {error.text}"
            raise

    async def close(self) -> None:
        await self._rest.close()
        await self._client.close()


def _cursors_of(found: _Internals, what: str) -> Cursors:
    last = _position_of(found.last_confirmed_entry, what)
    sizes = {ledger.ledger_id: ledger.entries for ledger in found.ledgers}
    if sizes and last[0] == max(sizes):  # the list has no size of the open ledger
        sizes[last[0]] = max(sizes[last[0]], found.current_ledger_entries)
    cursors = found.cursors.items()
    return Cursors(
        Ledgers(tuple(sorted(sizes.items())), last),
        {name: _position_of(cursor.mark_delete_position, what) for name, cursor in cursors},
        frozenset(name for name, cursor in cursors if cursor.individually_deleted_messages not in ("", "[]")),
        frozenset(name for name, cursor in cursors if cursor.active),
        found.total_size / found.number_of_entries if found.number_of_entries > 0 else 0.0,
    )


def _path(topic: TopicName, subscription: str) -> str:
    return f"{topic_path(topic)}/subscription/{quote(subscription, safe='')}"


def _position_of(text: str, what: str) -> Position:
    try:
        return MessageId.parse(text).position
    except InvalidArgument as error:
        raise ServerFailure(f"{what}: {error.text}") from None
