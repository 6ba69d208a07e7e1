"""The source cluster of a diagnosis: its declaration, positions of replication and next entries.

Also the clients of a diagnosis: short timeouts, and optional results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec

from magnetar.cli.doctor.facts import NextEntry
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Refused, Rest, RestError
from magnetar.client import LATEST, InlineClient, MessageId, Security
from magnetar.client.errors import ClientError
from magnetar.names import TopicName
from magnetar.pipelines.copy.copy_encoder import is_for, parse_entry
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import Declaration, Status
from magnetar.replication.route_parts import RouteParts

_NOT_FOUND = 404
_OPERATION_S = 5.0
_CONNECT_S = 3.0
_ENTRIES_CHECKED_MAX = 1000

_T = TypeVar("_T")


class SourceCluster:
    """The source cluster."""

    def __init__(self, rest: Rest, declaration: Declaration) -> None:
        self.rest = rest
        self.declaration = declaration
        self._client: InlineClient | None = None

    def statuses(self, topic: str | None = None) -> list[Status]:
        found = self.rest.get("replication", "status", query={"topic": topic})
        return msgspec.convert(found, list[Status])

    def internal_stats(self, topic: str) -> dict[str, Any] | None:
        """None if the topic does not exist."""
        return none_if_missing(lambda: self.rest.get(*topic_path(TopicName.parse(topic), "internalStats")))

    def conditions(self, topic: str, remote: str) -> dict[str, str]:
        """The conditions that apply to a topic, by the scope that sets them: the topic itself, its namespace."""
        name = TopicName.parse(topic)
        own, inherited = (
            msgspec.convert(self.rest.get("replication", "routes", remote, *scope) or {}, RouteParts)
            for scope in ((name.tenant, name.namespace, name.local), (name.tenant, name.namespace))
        )
        found = {topic: own.where, name.namespace_full: "" if own.unfiltered else inherited.where}
        return {scope: where for scope, where in found.items() if where}

    def next_entry(self, topic: str, after: MessageId, remote: str) -> tuple[NextEntry, bytes] | None:
        """The first entry after a position to copy to the remote cluster, and its schema version."""
        for position, blob in islice(self._entries(topic, after), _ENTRIES_CHECKED_MAX):
            try:
                entry = parse_entry(blob)
            except MessageRefused:
                return None
            if is_for(entry.metadata, remote):
                shown = f"{position.ledger_id}:{position.entry_id}"
                return NextEntry(topic, shown, len(entry.payload)), entry.version
        return None

    def _entries(self, topic: str, after: MessageId) -> Iterator[tuple[MessageId, bytes]]:
        if self._client is None:
            addresses = self.rest.get("clusters", self.declaration.cluster)
            service_url = addresses.get("brokerServiceUrlTls") or addresses.get("brokerServiceUrl")
            if not service_url:
                return
            self._client = short_client(service_url, self.rest.security)
        client = self._client
        reader = client.run(client.client.entries(topic, after, LATEST, bytes_max=1))
        try:
            while entries := client.run(reader.next()):
                for entry in entries:
                    yield entry.id, entry.blob
        finally:
            client.run(reader.close())

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def identity_of(declaration: Declaration) -> str:
    """The same in all replies of one broker until it restarts."""
    return declaration.version.rpartition("-")[0]


def parts_of(topic: str, partitions: int) -> list[str]:
    name = TopicName.parse(topic)
    return [name.with_partition(index).full for index in range(partitions)] or [name.full]


def short_client(service_url: str, security: Security | None, admin_url: str | None = None) -> InlineClient:
    return InlineClient(
        service_url,
        security=security,
        admin_url=admin_url,
        operation_timeout_s=_OPERATION_S,
        connect_timeout_s=_CONNECT_S,
        reconnect_timeout_s=_CONNECT_S,
    )


def none_if_missing(request: Callable[[], _T]) -> _T | None:
    try:
        return request()
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise
        return None


def or_none(request: Callable[[], _T]) -> _T | None:
    """None if the request fails."""
    try:
        return request()
    except (RestError, ClientError):
        return None
