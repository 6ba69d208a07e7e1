"""The move of a producer: from which topic its entries move messages, for which subscriptions, and whom they are for.

Owns the names in the producer's metadata, and finds topic and subscriptions again for each entry, since both may be
deleted while it is connected. Knows no cursors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from magnetar.errors import MetadataInvalid, NotAllowed, RightMissing, SubscriptionNotFound, TopicNotFound
from magnetar.names import TopicName
from magnetar.wire.moves import ALL_SUBSCRIPTIONS, MOVE_ONLY, MOVE_SUBSCRIPTION, MOVE_TOPIC, Positions

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.catalog.record import TopicRecord
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.topic import Topic

_NAMES = (MOVE_TOPIC, MOVE_SUBSCRIPTION, MOVE_ONLY)

MayUse = Callable[[TopicName, str], bool]
"""Whether the producer's client may use a subscription of a topic."""


class MoveNames(NamedTuple):
    """What the metadata of a producer says. `only` is empty where entries are for every subscription."""

    source: TopicName
    subscription: str
    only: str

    @property
    def is_for_all(self) -> bool:
        return self.subscription == ALL_SUBSCRIPTIONS

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> MoveNames | None:
        """None for a producer that moves nothing."""
        if not any(name in metadata for name in _NAMES):
            return None
        source, subscription, only = (metadata.get(name, "") for name in _NAMES)
        if not source or not subscription:
            raise MetadataInvalid(
                f"metadata of a producer that moves messages needs {MOVE_TOPIC} and {MOVE_SUBSCRIPTION}"
            )
        return cls(TopicName.parse(source), subscription, only)


class MoveSource(NamedTuple):
    """Where the positions of one entry are, and the subscriptions that they are acknowledged for."""

    topic: PersistentTopic
    subscriptions: list[Subscription]


class Move:
    """`source` finds what an entry moves, `others` the subscriptions that it is not for; both raise MagnetarError."""

    __slots__ = ("_broker", "_may_use", "_names", "_of_ledger")

    def __init__(self, broker: Broker, names: MoveNames, may_use: MayUse) -> None:
        self._broker = broker
        self._names = names
        self._may_use = may_use
        self._of_ledger: dict[int, TopicName] = {}  # the topic or partition of each ledger that was found

    @classmethod
    def open(cls, target: Topic, names: MoveNames, may_use: MayUse) -> Move:
        """Raises MagnetarError where nothing can be moved."""
        if not target.name.is_persistent:
            raise NotAllowed(f"messages cannot be moved to {target.name.full}, which is not persistent")
        move = cls(target.broker, names, may_use)
        move._check_source()
        move.others(target)  # type: ignore[arg-type]  # it is persistent
        return move

    # -- the source

    def _check_source(self) -> None:
        """A partition may lack the subscription: then its own messages are refused."""
        refusals: list[SubscriptionNotFound | NotAllowed] = []
        for name in self._partitions():
            try:
                subscriptions_of(self._topic(name), self._names.subscription)
                return
            except (SubscriptionNotFound, NotAllowed) as error:
                refusals.append(error)
        raise refusals[0] if refusals else self._not_found()

    def _partitions(self) -> Iterator[TopicName]:
        """The existing partitions of the source, or the topic itself."""
        name, catalog = self._names.source, self._broker.catalog
        if not name.is_persistent:
            raise NotAllowed(f"messages cannot be moved from {name.full}, which is not persistent")
        partitioned = catalog.partitioned.get(name.full)
        names = [name] if partitioned is None else map(name.with_partition, range(partitioned.partitions))
        return (one for one in names if one.full in catalog.topics)

    def _not_found(self) -> TopicNotFound:
        return TopicNotFound(f"topic {self._names.source.full}, which messages are moved from, does not exist")

    def _topic(self, name: TopicName) -> PersistentTopic:
        return self._broker.topic(name)  # type: ignore[return-value]  # the catalog has persistent ones only

    def source(self, positions: Positions) -> MoveSource:
        """The topic or partition with their ledger, and its subscriptions."""
        topic = self._topic(self._name_of(positions.ledger_id))
        check_stored(topic, positions)
        found = subscriptions_of(topic, self._names.subscription)
        if self._names.is_for_all:
            check_is_kept_by_one(topic, positions)
            for one in found:
                if not self._may_use(topic.name, one.name):
                    raise RightMissing(
                        f"subscription {one.name!r} of {topic.name.full} is not for this producer's role"
                    )
        return MoveSource(topic, found)

    def _name_of(self, ledger_id: int) -> TopicName:
        topics = self._broker.catalog.topics
        known = self._of_ledger.get(ledger_id)
        if known is not None and _has_ledger(topics.get(known.full), ledger_id):
            return known
        is_missing = True
        for name in self._partitions():
            is_missing = False
            if _has_ledger(topics[name.full], ledger_id):
                self._of_ledger[ledger_id] = name
                return name
        if is_missing:
            raise self._not_found()
        raise NotAllowed(f"ledger {ledger_id} is not one of topic {self._names.source.full}")

    # -- the target

    def others(self, target: PersistentTopic) -> list[Subscription]:
        """The durable subscriptions of the target that its entries are not for."""
        only = self._names.only
        if not only:
            return []
        subscriptions_of(target, only)
        return [one for one in target.cursors if one.durable and not one.is_internal and one.name != only]


def _has_ledger(record: TopicRecord | None, ledger_id: int) -> bool:
    return record is not None and (record.ledger_id == ledger_id or ledger_id in record.former_ledgers)


def subscriptions_of(topic: PersistentTopic, name: str) -> list[Subscription]:
    """The durable subscription, or with `*` all that are not internal. Raises if there is none."""
    if name != ALL_SUBSCRIPTIONS:
        return [_durable(topic, name)]
    for damaged in topic.damaged.reasons:
        topic.damaged.check(damaged)
    found = [one for one in topic.cursors if one.durable and not one.is_internal]
    if not found:
        raise NotAllowed(f"topic {topic.name.full} has no durable subscription: nothing of it can be acknowledged")
    return found


def _durable(topic: PersistentTopic, name: str) -> Subscription:
    topic.damaged.check(name)
    found = topic.subscription(name)
    if found is None:
        raise SubscriptionNotFound(f"subscription {name!r} not found on topic {topic.name.full}")
    if not found.durable or found.is_internal:
        kind = "is not durable" if not found.durable else "belongs to replication"
        raise NotAllowed(f"subscription {name!r} of topic {topic.name.full} {kind}: messages are not moved for it")
    return found


def check_stored(topic: PersistentTopic, positions: Positions) -> None:
    """Raises for positions of another topic, and for those that it never had or lost."""
    ledger_id, ranges = positions
    if not _has_ledger(topic.record, ledger_id):
        raise NotAllowed(f"ledger {ledger_id} is not one of topic {topic.name.full}, which has {topic.ledger_id}")
    last = topic.log.confirmed
    if ledger_id != topic.ledger_id:
        last = min(last, topic.record.former_ledgers[ledger_id] - 1)
    if ranges[-1].last > last:
        raise NotAllowed(f"entry {ranges[-1].last} of {topic.name.full} does not exist: the last one is {last}")


def check_is_kept_by_one(topic: PersistentTopic, positions: Positions) -> None:
    """Raises for waiting messages from before the first durable subscription: no cursor can acknowledge them."""
    read_from, first = topic.read_from, topic.log.first
    for part in positions.ranges:
        if part.first < read_from and part.last >= first:
            raise NotAllowed(
                f"entry {max(part.first, first)} of {topic.name.full} is older than its durable subscriptions, so none"
                " can acknowledge it: create one at the earliest message, or reset one to it"
            )
