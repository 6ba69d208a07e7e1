"""Cursors of subscriptions by REST: what is not acknowledged, and acknowledging by position.

Owns the difference between a Magnetar broker, which has paths for both, and Apache Pulsar, whose `internalStats` shows
the cursors and which acknowledges by the binary protocol only. For one thread.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from magnetar.client.connection.address import parse_service_url
from magnetar.client.connection.http import HttpTransport, check_status
from magnetar.client.connection.rest_path import topic_path
from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.errors import InvalidArgument, NotAllowed, NotFound, NotSupported, ServerFailure
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.names import TopicName
from magnetar.replication.model import is_replication_subscription
from magnetar.security.credentials import Security
from magnetar.spark.dead_letters.unacknowledged import Unacknowledged, cursor_state, of_cursors, of_positions
from magnetar.wire.moves import ALL_SUBSCRIPTIONS

_T = TypeVar("_T")

NO_SUCH_PATH = (404, 405, 501)  # a path that the broker does not have, or a topic that does not exist


class _Page(msgspec.Struct, rename="camel"):
    """Waiting positions of one ledger; `next` is the `after` of the next page."""

    ledger_id: int
    positions: str = ""
    next: int | None = None


class _Cursor(msgspec.Struct, rename="camel"):
    mark_delete_position: str
    individually_deleted_messages: str | None = None


class _InternalStats(msgspec.Struct):
    cursors: dict[str, _Cursor] = {}


class _Subscription(msgspec.Struct, rename="camel"):
    is_durable: bool = True


class _Stats(msgspec.Struct):
    subscriptions: dict[str, _Subscription] = {}


class _NamedTopic(msgspec.Struct):
    topic: str


class _Overview(msgspec.Struct):
    topics: list[_NamedTopic]
    next: str | None = None


class CursorAdmin:
    """Requests to one cluster; retries while it is not ready. A context manager."""

    def __init__(self, admin_url: str, security: Security | None = None, timeout_s: float = 30) -> None:
        url = parse_service_url(admin_url)
        if not url.is_http:
            raise InvalidArgument(f"admin url {url} does not start with http:// or https://")
        urls = [f"{url.scheme}://{address}" for address in url.addresses]
        self._http = HttpTransport(urls, security, timeout_s)
        self._timeout_s = timeout_s

    def unacknowledged(self, topic: str, subscription: str = ALL_SUBSCRIPTIONS) -> Unacknowledged:
        """Of one partition, or a topic without partitions: what `subscription` has not acknowledged, or for
        `*` what not every durable subscription has; all of it where there is none."""
        try:
            return self._of_magnetar(topic, subscription)
        except (NotFound, NotSupported, NotAllowed) as error:
            if error.status not in NO_SUCH_PATH:
                raise
        return self._of_cursors(topic, subscription)

    def _of_magnetar(self, topic: str, subscription: str) -> Unacknowledged:
        texts: list[str] = []
        ledger_id, query = 0, {"subscription": subscription}
        while True:
            page = self._get(_path(topic, "unacknowledged"), _Page, f"unacknowledged messages of {topic}", query)
            ledger_id = page.ledger_id
            texts.append(page.positions)
            if page.next is None:
                return of_positions(ledger_id, texts)
            if page.next <= int(query.get("after", -1)):
                raise ServerFailure(f"unacknowledged messages of {topic}: the page after {page.next} repeats")
            query["after"] = str(page.next)

    def _of_cursors(self, topic: str, subscription: str) -> Unacknowledged:
        cursors = self._get(_path(topic, "internalStats"), _InternalStats, f"cursors of {topic}").cursors
        names = self.durable_subscriptions(topic) if subscription == ALL_SUBSCRIPTIONS else [subscription]
        found = [cursors[name] for name in names if name in cursors]
        if subscription != ALL_SUBSCRIPTIONS and not found:
            raise NotFound(f"{topic} has no subscription {subscription!r}")
        return of_cursors(
            [cursor_state(one.mark_delete_position, one.individually_deleted_messages or "") for one in found]
        )

    def durable_subscriptions(self, topic: str) -> list[str]:
        """Those of the applications, sorted."""
        subscriptions = self._get(_path(topic, "stats"), _Stats, f"subscriptions of {topic}").subscriptions
        return sorted(
            name for name, one in subscriptions.items() if one.is_durable and not is_replication_subscription(name)
        )

    def acknowledge(self, topic: str, positions: str, subscription: str = ALL_SUBSCRIPTIONS) -> None:
        """On a Magnetar broker; `positions` in the form of `wire.moves`. `NotSupported` on Apache Pulsar."""
        body = msgspec.json.encode({"subscription": subscription, "positions": positions})
        what = f"acknowledging messages of {topic}"
        self._request("POST", _path(topic, "acknowledge"), what, body=body)

    def redrive(self, topic: str, body: bytes) -> bytes:
        """One request for letters of a Magnetar broker. Not repeated after an error: what it did is acknowledged."""
        what = f"redriving letters of {topic}"
        response = self._http.request("POST", _path(topic, "redrive"), what, body=body)
        check_status(response, what)
        return response.content

    def create_subscription(self, topic: str, subscription: str) -> None:
        """A durable one, before the first stored message."""
        position = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        what = f"creating subscription {subscription!r} of {topic}"
        self._request("PUT", _path(topic, "subscription", subscription), what, body=msgspec.json.encode(position))

    def dead_letter_topics(self, namespace: str) -> list[str]:
        """Full names without partitions, sorted: those that a Magnetar broker knows, on Apache Pulsar those with the
        suffix. `NotFound` if the namespace does not exist."""
        try:
            return self._known_dead_letter_topics(namespace)
        except (NotFound, NotSupported, NotAllowed) as error:
            if error.status not in NO_SUCH_PATH:
                raise
        names = self._get(f"/admin/v2/persistent/{namespace}", list[str], f"topics of {namespace}")
        bases = {TopicName.parse(name).base for name in names}
        return sorted(name.full for name in bases if name.local.endswith(DEAD_LETTER_SUFFIX))

    def _known_dead_letter_topics(self, namespace: str) -> list[str]:
        names: list[str] = []
        query = {"limit": "1000"}
        while True:
            path = f"/admin/v2/namespaces/{namespace}/deadLetters"
            page = self._get(path, _Overview, f"dead letter topics of {namespace}", query)
            names += [one.topic for one in page.topics]
            if not page.next:
                return sorted(names)
            query["after"] = page.next

    # -- requests

    def _get(self, path: str, kind: type[_T], what: str, query: dict[str, str] | None = None) -> _T:
        content = self._request("GET", path, what, query=query)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise ServerFailure(f"{what}: the response does not have the form of the REST API: {error}") from None

    def _request(
        self, method: str, path: str, what: str, *, query: dict[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        def attempt() -> bytes:
            response = self._http.request(method, path, what, query=query, body=body)
            check_status(response, what)
            return response.content

        return with_retry_blocking(attempt, self._timeout_s)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _path(topic: str, *words: str) -> str:
    parts = "".join(f"/{quote(word, safe='')}" for word in words)
    return f"/admin/v2/{topic_path(TopicName.parse(topic))}{parts}"
