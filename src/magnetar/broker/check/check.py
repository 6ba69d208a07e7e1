"""The check as a whole: all keys of both spaces, in the order in which one needs the other. Reads only.

A finding that another one may explain has no repair yet: `repair` checks again until nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.broker import keys
from magnetar.broker.check import records, runs, state
from magnetar.broker.check.finding import Finding, delete, shown_key
from magnetar.broker.check.inventory import Inventory
from magnetar.broker.check.reading import Hole, Row, rows
from magnetar.storage.api import Space, Storage

_END = b"\xff" * 64
_SINGLE = (keys.LAST_ID, keys.OWN_CLUSTER)
_KINDS = (
    *_SINGLE,
    keys.TENANT,
    keys.DYNAMIC_SETTING,
    keys.CLUSTER,
    keys.PIPELINE,
    keys.NAMESPACE,
    keys.PARTITIONED,
    keys.PULSAR_REPLICATED,
    keys.SUBSCRIPTION,
    keys.TOPIC,
    keys.SCHEMA,
    keys.ROUTE,
    keys.CURSOR,
    keys.DEDUPLICATION,
    keys.FIRST,
    keys.DELAYED,
    keys.POSITION,
    keys.REPLICATED,
)


class DataCheck:
    """`findings` is read once; then `inventory` and `holes` are complete."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.inventory = Inventory()
        self.holes: list[Hole] = []

    def findings(self) -> Iterator[Finding]:
        found = self.inventory
        yield from records.clusters(self._all(keys.CLUSTER))
        yield from records.tenants(self._all(keys.TENANT), found)
        yield from records.namespaces(self._all(keys.NAMESPACE), found)
        yield from records.topics(self._all(keys.TOPIC), found)
        yield from records.partitioned(self._all(keys.PARTITIONED), found)
        yield from records.route_policies(self._all(keys.ROUTE))
        yield from records.pipelines(self._all(keys.PIPELINE), found)
        yield from records.schemas(self._all(keys.SCHEMA))
        yield from records.dynamic_settings(self._all(keys.DYNAMIC_SETTING))
        with_entries: set[int] = set()
        bounds, findings = state.bounds_in(self._rows(keys.FIRST), found)
        yield from findings
        for topic_id, topic in found.topics.items():
            topic.first = bounds.get(topic_id, (0, 0))[0]
            topic.last = topic.first - 1
        yield from runs.runs(self._readable(Space.ENTRIES, b"", _END), found, bounds, with_entries)
        yield from state.orphaned_bounds(bounds, found, with_entries)
        yield from records.lost_topics(found)
        yield from records.orphaned_data(found, with_entries)
        yield from state.subscriptions(self._rows(keys.SUBSCRIPTION), found)
        yield from state.cursors(self._rows(keys.CURSOR), found)
        yield from state.entry_states(self._rows(keys.POSITION), found)
        for kind in (keys.DEDUPLICATION, keys.REPLICATED, keys.PULSAR_REPLICATED):
            yield from state.producers(self._rows(kind), kind, found)
        yield from state.delayed(self._rows(keys.DELAYED), found)
        single = dict(self._readable(Space.STATE, keys.LAST_ID, keys.after(keys.OWN_CLUSTER)))
        yield from state.own_cluster(single.get(keys.OWN_CLUSTER))
        yield from state.last_id(single.get(keys.LAST_ID), found)
        yield from self._unknown()

    def _unknown(self) -> Iterator[Finding]:
        """Keys that no kind of record has."""
        start = b""
        for kind in sorted(_KINDS):
            for key, _ in self._readable(Space.STATE, start, kind):
                yield _foreign(key)
            start = keys.after(kind)
            if kind in _SINGLE:
                for key, _ in self._readable(Space.STATE, kind + b"\0", start):
                    yield _foreign(key)
        for key, _ in self._readable(Space.STATE, start, _END):
            yield _foreign(key)

    def _all(self, kind: bytes) -> list[Row]:
        found = list(self._rows(kind))
        self.inventory.records += len(found)
        return found

    def _rows(self, kind: bytes) -> Iterator[Row]:
        return self._readable(Space.STATE, kind, keys.after(kind))

    def _readable(self, space: Space, start: bytes, end: bytes) -> Iterator[Row]:
        for row in rows(self._storage, space, start, end):
            if isinstance(row, Hole):
                self.holes.append(row)
            else:
                yield row


def _foreign(key: bytes) -> Finding:
    return Finding(
        "unknown",
        shown_key(key),
        "no kind of record has this key",
        "export and delete it",
        key=key,
        changes=(delete(key),),
    )
