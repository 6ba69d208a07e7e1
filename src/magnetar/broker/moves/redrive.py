"""Redriving plain letters inside the broker: they are stored in their targets and acknowledged in one commit.

Nothing of a letter leaves the broker. Owns the walk through what is open in a dead letter topic, a bounded transaction
at a time, in order: a letter that is not plain, or whose origin the caller did not name, ends it. Where letters of an
origin may go is the caller's decision, and its right. Letters that are chosen or edited go by `pipelines/redrive`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from magnetar.broker.moves.move import check_is_kept_by_one, check_stored, subscriptions_of
from magnetar.broker.moves.positions import NamedPositions, acknowledge, open_entries, settle
from magnetar.broker.moves.publish import withhold
from magnetar.broker.subscription.cursor import first_missing
from magnetar.deadletter.properties import REAL_SUBSCRIPTION, REAL_TOPIC
from magnetar.deadletter.redriven import OriginKey, generation_in, origin_key, plain_properties, redrive_metadata
from magnetar.errors import EntriesDamaged, NotAllowed, RightMissing, ServiceNotReady, TopicTerminated
from magnetar.names import TopicName
from magnetar.pipeline_bounds import REDRIVEN_AHEAD, REDRIVEN_BYTES, REDRIVEN_TOGETHER
from magnetar.wire.errors import EntryError
from magnetar.wire.key_hash import java_string_hash
from magnetar.wire.metadata import checked_bounds, join_blob
from magnetar.wire.moves import ALL_SUBSCRIPTIONS, PositionRange, Positions
from magnetar.wire.property_map import MapMetadata, parse_map_metadata

if TYPE_CHECKING:
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.run import Entry

PRODUCER = "magnetar.redrive"
"""The name of the producer in redriven messages."""

_LOOKED_THROUGH = 1 << 16  # positions of one transaction, most of which may be acknowledged
_AHEAD_BYTES = 4 << 20  # of letters that are searched for unknown origins


class Destination(NamedTuple):
    """Where letters of an origin go; without a topic they stay. With `only`, the others of the topic's subscriptions do
    not receive them."""

    topic: str
    only: str = ""


@dataclass(frozen=True)
class RedriveOrder:
    """At most `letters` letters after entry `after`, up to `up_to`. Those of an origin that is not in `targets` go to
    `anywhere`."""

    ledger_id: int
    after: int
    up_to: int
    letters: int
    published_until_ms: int
    generations_max: int
    targets: Mapping[OriginKey, Destination]
    anywhere: Destination | None = None


@dataclass
class RedriveFound:
    """All letters up to `up_to` are sent, or stay. Without `is_plain` the next one needs more than a broker does;
    `unknown` are origins without a target that come next."""

    up_to: int
    is_plain: bool = True
    sent: Counter[OriginKey] = field(default_factory=Counter)
    sent_anywhere: int = 0
    kept: Counter[OriginKey] = field(default_factory=Counter)
    unknown: set[OriginKey] = field(default_factory=set)


_End = tuple[bool, OriginKey | None]
"""Before a letter: whether it is plain, and its origin if that is unknown."""


_Named = tuple[str | None, str | None]
"""Topic and subscription in the properties of a letter."""


@dataclass(slots=True, eq=False)
class _Course:
    """Where letters of an origin go."""

    origin: OriginKey
    destination: Destination | None
    is_partitioned: bool


@dataclass(slots=True)
class _Transaction:
    """`blobs` by topic and the only subscription, in order; `entries` are those that they replace."""

    up_to: int
    blobs: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    entries: list[int] = field(default_factory=list)
    taken: int = 0
    counts: Counter[_Course] = field(default_factory=Counter)


class BrokerRedrive:
    """One request. `turn` raises MagnetarError, and nothing of that turn has happened then."""

    def __init__(self, source: PersistentTopic, order: RedriveOrder, may_use: Callable[[str], bool]) -> None:
        self._source = source
        self._order = order
        self._may_use = may_use
        self._left = order.letters
        self._names_subscription = order.anywhere is None
        self._courses: dict[_Named, _Course] = {}
        self.found = RedriveFound(order.after)

    def turn(self) -> bool:
        """One transaction; whether there may be more to do."""
        source, order, found = self._source, self._order, self.found
        if source.broker.topics.get(source.name.full) is not source:
            raise ServiceNotReady(f"topic {source.name.full} was closed while its letters were redriven")
        last = min(order.up_to, source.log.confirmed, found.up_to + _LOOKED_THROUGH)
        if last <= found.up_to or not self._left:
            return False
        subscriptions = self._subscriptions()
        first = max(found.up_to + 1, source.log.first)
        if first <= last:
            positions = Positions(order.ledger_id, (PositionRange(first, last),))
            check_stored(source, positions)
            check_is_kept_by_one(source, positions)
        opened = open_entries([one.cursor for one in subscriptions], first, last)
        transaction = _Transaction(last)
        end = self._fill(transaction, opened)
        self._commit(transaction, subscriptions)
        self._count(transaction)
        if end is not None:
            found.is_plain, unknown = end
            if unknown is not None:
                found.unknown = {unknown} | self._ahead(opened)
        return end is None

    def _count(self, transaction: _Transaction) -> None:
        found = self.found
        found.up_to = transaction.up_to
        self._left -= transaction.taken
        for course, count in transaction.counts.items():
            if course.destination is not None and not course.destination.topic:
                found.kept[course.origin] += count
            elif course.origin in self._order.targets:
                found.sent[course.origin] += count
            else:
                found.sent_anywhere += count

    def _subscriptions(self) -> list[Subscription]:
        topic = self._source
        subscriptions = subscriptions_of(topic, ALL_SUBSCRIPTIONS)
        for one in subscriptions:
            if not self._may_use(one.name):
                raise RightMissing(f"subscription {one.name!r} of {topic.name.full} is not for this role")
        return subscriptions

    # -- letters

    def _fill(self, transaction: _Transaction, opened: BitMap64) -> _End | None:
        """Adds letters until the transaction is full or the redrive ends. Those before damaged ones are redriven."""
        try:
            return self._add(transaction, opened)
        except EntriesDamaged as error:
            if not transaction.taken:
                raise
            transaction.up_to = error.first - 1
            return None

    def _add(self, transaction: _Transaction, opened: BitMap64) -> _End | None:
        broker, order = self._source.broker, self._order
        now_ms, names_subscription = broker.now_ms(), self._names_subscription
        blobs, entries, counts, courses = transaction.blobs, transaction.entries, transaction.counts, self._courses
        until_ms, generations_max = order.published_until_ms, order.generations_max
        left, size = self._left, 0
        for number, (entry_id, messages, _, blob) in enumerate(_read(self._source, opened)):
            if transaction.taken >= left or number >= REDRIVEN_TOGETHER.limit or size >= REDRIVEN_BYTES.limit:
                transaction.up_to = entry_id - 1
                return None
            size += len(blob)
            found = _open(blob) if messages == 1 else None
            if found is None:
                return self._ended(transaction, entry_id)
            metadata, start = found
            if _stays(metadata, until_ms):
                continue
            properties = plain_properties(metadata)
            generation = None if properties is None else generation_in(properties)
            if properties is None or generation is None or generation >= generations_max:
                return self._ended(transaction, entry_id)
            named = properties.get(REAL_TOPIC), properties.get(REAL_SUBSCRIPTION)
            course = courses.get(named) or self._course(named, properties)
            destination = course.destination
            if destination is None:
                self._ended(transaction, entry_id)
                return True, course.origin
            counts[course] += 1
            transaction.taken += 1
            if not destination.topic:
                continue
            redrive_metadata(
                metadata, properties, course.origin, generation, PRODUCER, entry_id, now_ms, names_subscription
            )
            place = destination
            if course.is_partitioned:
                place = Destination(self._partition(destination.topic, metadata), destination.only)
            redriven = join_blob(metadata.SerializePartialToString(), blob[start:])
            entries.append(entry_id)
            if place in blobs:
                blobs[place].append(redriven)
            else:
                blobs[place] = [redriven]
        return None

    def _ended(self, transaction: _Transaction, entry_id: int) -> _End:
        transaction.up_to = entry_id - 1
        return False, None

    def _course(self, named: _Named, properties: Mapping[str, str]) -> _Course:
        origin = origin_key(properties, self._source.name)
        destination = self._order.targets.get(origin, self._order.anywhere)
        is_partitioned = destination is not None and destination.topic in self._source.broker.catalog.partitioned
        course = self._courses[named] = _Course(origin, destination, is_partitioned)
        return course

    def _partition(self, topic: str, metadata: MapMetadata) -> str:
        """The one that clients choose by the key; without a key the one of the same number."""
        if metadata.HasField("partition_key"):
            number = java_string_hash(metadata.partition_key)
        else:
            number = max(0, self._source.name.partition)
        partitioned = self._source.broker.catalog.partitioned.get(topic)
        return topic if partitioned is None else f"{topic}-partition-{number % partitioned.partitions}"

    def _ahead(self, opened: BitMap64) -> set[OriginKey]:
        """Unknown origins of the letters that come next, so that the caller finds their targets together."""
        unknown: set[OriginKey] = set()
        opened.remove_range(0, self.found.up_to + 1)
        size = 0
        with contextlib.suppress(EntriesDamaged):  # the redrive comes there later
            for number, (_, _, _, blob) in enumerate(_read(self._source, opened)):
                found = _open(blob) if number < REDRIVEN_AHEAD.limit and size < _AHEAD_BYTES else None
                if found is None:
                    break
                size += len(blob)
                if _stays(found[0], self._order.published_until_ms):
                    continue
                properties = plain_properties(found[0])
                if properties is None:
                    break
                unknown.add(origin_key(properties, self._source.name))
        return unknown - self._order.targets.keys()

    # -- the commit

    def _commit(self, transaction: _Transaction, subscriptions: list[Subscription]) -> None:
        if not transaction.entries:
            return
        targets = [self._target(name, only) for name, only in transaction.blobs]
        group = self._source.broker.commits.open()
        group.durable = True
        size = 0
        # Entries first: an error between the two leaves a message too many, and not one too few.
        for (topic, others), blobs in zip(targets, transaction.blobs.values(), strict=True):
            first = topic.log.last + 1
            size += topic.append_moved(group, [(1, 0, blob) for blob in blobs])
            withhold(topic, group, others, range(first, topic.log.last + 1))
        count = len(transaction.entries)
        acknowledge(subscriptions, NamedPositions(BitMap64(transaction.entries), named=count, open=count))
        group.grow(size)
        for subscription in subscriptions:
            settle(subscription, ())

    def _target(self, name: str, only: str) -> tuple[PersistentTopic, list[Subscription]]:
        """The topic, and the subscriptions that the letters are not for. Raises before anything is stored."""
        parsed = TopicName.parse(name)
        if not parsed.is_persistent:
            raise NotAllowed(f"letters cannot go to {name}, which is not persistent")
        topic: PersistentTopic = self._source.broker.topic(parsed)  # type: ignore[assignment]  # it is persistent
        if topic.is_terminated:
            raise TopicTerminated(f"topic {name} was terminated")
        topic.check_quota()
        if not only:
            return topic, []
        subscriptions_of(topic, only)
        return topic, [one for one in topic.cursors if one.durable and not one.is_internal and one.name != only]


def _stays(metadata: MapMetadata, until_ms: int) -> bool:
    """A marker of another broker, or a letter for another redrive."""
    return metadata.HasField("marker_type") or metadata.publish_time > until_ms


def _open(blob: bytes) -> tuple[MapMetadata, int] | None:
    """Metadata, and the offset of the payload; None for an entry that cannot be opened."""
    try:
        start, end = checked_bounds(blob)
        return parse_map_metadata(blob[start:end]), end
    except EntryError:
        return None


def _read(topic: PersistentTopic, opened: BitMap64) -> Iterator[Entry]:
    """The entries at these positions, in order; not those that are lost."""
    log, last = topic.log, opened.max() if opened else -1
    entry_id = opened.min() if opened else 0
    while entry_id <= last:
        count = min(first_missing(opened, entry_id) - entry_id, REDRIVEN_TOGETHER.limit)
        found = log.read(entry_id, count, REDRIVEN_BYTES.limit)
        yield from found
        after = found[-1][0] if found else entry_id + count - 1
        if after >= last:
            return
        entry_id = opened.next_set_bit(after + 1)
