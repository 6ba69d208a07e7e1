"""The topics of an archive run: their partitions, the subscription that keeps what is not archived, and the backlog.

Owns the cursors, one per partition, which hold the subscription exclusively: no other run archives these topics
meanwhile. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from magnetar.client.blocking.readers import Cursor
from magnetar.client.errors import ClientError, ConsumerBusy, NotFound
from magnetar.client.message import EARLIEST, MessageId, Position
from magnetar.declared.topic_set import TopicSet
from magnetar.names import TopicName
from magnetar.pipelines.archive.clients import topics_of
from magnetar.pipelines.archive.layout import short_name
from magnetar.pipelines.run import RunFailed
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark.source.entry_range import EntryRange
from magnetar.spark.source.limits import Backlog, Limits, limited_ends
from magnetar.spark.source.offsets import whole_entry

_BUSY_S = 5.0
"""The wait for a subscription that is in use: the connection of a killed run ends at once, or by the keep-alive."""

_SYSTEM_PREFIX = "__"

Partitions = dict[int, str]
"""Full names of partitions by index; -1 is a topic without partitions."""


class SourceTopics:
    """`topics` are the partitions of each topic, by short name. `positions` are the ends of what is acknowledged."""

    def __init__(self, endpoint: ClusterEndpoint, sets: Sequence[TopicSet], subscription: str) -> None:
        self._lookup = topics_of(endpoint)
        self._subscription = subscription
        self._cursors: dict[str, Cursor] = {}
        self._turn = 0
        self.topics: dict[str, Partitions] = {}
        self.positions: dict[str, Position] = {}
        try:
            self.topics = self._found(sets)
        except BaseException:
            self._lookup.close()
            raise

    def _found(self, sets: Sequence[TopicSet]) -> dict[str, Partitions]:
        names = {name for one in sets for name in (self._named(one) if one.is_topic else self._listed(one))}
        found: dict[str, Partitions] = {}
        for name in sorted(names, key=lambda name: (name.full, name.partition)):
            found.setdefault(short_name(name), {})[name.partition] = name.full
        return found

    def _named(self, one: TopicSet) -> list[TopicName]:
        try:
            return [TopicName.parse(name) for name in self._lookup.partitions(str(one))]
        except NotFound:
            raise RunFailed(f"topic {one} does not exist") from None

    def _listed(self, one: TopicSet) -> list[TopicName]:
        """Without the topics of the broker itself."""
        try:
            listed = [TopicName.parse(name) for name in self._lookup.listed(one.namespace)]
        except NotFound:
            raise RunFailed(f"namespace {one.namespace} does not exist") from None
        return [name for name in listed if one.has(name) and not name.local.startswith(_SYSTEM_PREFIX)]

    # -- subscription

    def hold(self) -> None:
        """Takes the subscription of every partition, and creates it at the first message where it is missing."""
        for partition in self._all():
            cursor = self._lookup.cursor(partition, self._subscription, EARLIEST, busy_s=_BUSY_S)
            self._cursors[partition] = cursor
            try:
                self.positions[partition] = cursor.position().position
            except ConsumerBusy as error:
                raise RunFailed(
                    f"{error}: one run at a time archives a topic, by a subscription that nothing else uses"
                ) from None

    def _all(self) -> Iterable[str]:
        return (name for partitions in self.topics.values() for name in partitions.values())

    def check_held(self, partitions: Iterable[str]) -> None:
        """Raises an error of the client if another run has taken over one of these subscriptions."""
        for partition in partitions:
            self._cursors[partition].position()

    def acknowledge(self, partition: str, position: Position) -> None:
        """All up to a position, which is archived."""
        if position > self.positions[partition]:
            self._cursors[partition].acknowledge_up_to(MessageId(*position))
            self.positions[partition] = position

    # -- backlog

    def ends(self, archived: dict[str, Position]) -> dict[str, MessageId]:
        """The last entries of the partitions with messages. `archived` are the ends of the committed rounds."""
        found = {}
        for partition in self._all():
            last = whole_entry(self._lookup.last(partition))
            if last.entry_id < 0:
                continue
            done = archived.get(partition)
            if done is not None and done > last.position:
                raise RunFailed(
                    f"{partition} ends at {last.ledger_id}:{last.entry_id}, but it is archived up to"
                    f" {done.ledger_id}:{done.entry_id}: the archive is of a topic of the same name in another cluster,"
                    " or of one that was deleted"
                )
            found[partition] = last
        return found

    def next_ranges(self, ends: dict[str, MessageId], bytes_max: int) -> list[EntryRange]:
        """The ranges of the next round, of about so many bytes; [] when everything up to the ends is archived."""
        backlogs = [
            Backlog(partition, self._start(partition, end), end)
            for partition, end in ends.items()
            if end.position > self.positions[partition]
        ]
        if not backlogs:
            return []
        self._turn += 1
        further = limited_ends(self._lookup, backlogs, Limits(None, bytes_max), self._turn)
        return [EntryRange(each.topic, each.start, further[each.topic]) for each in backlogs if each.topic in further]

    def _start(self, partition: str, end: MessageId) -> MessageId:
        return MessageId(*self.positions[partition], end.partition)

    # -- life

    def close(self) -> None:
        try:
            for cursor in self._cursors.values():
                cursor.close()
        except ClientError:
            pass  # a broker that is gone holds no subscription
        finally:
            self._lookup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
