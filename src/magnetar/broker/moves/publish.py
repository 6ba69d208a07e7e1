"""Publishing by a producer that moves: each entry is stored with the acknowledgement of the messages that it names.

Both are in one group of the commits: after a crash at any instant a message is either open in its source or replaced in
the target. Positions are the identity of an entry, so sequence ids deduplicate nothing here. Owns the decision and the
reply for each entry; the topic stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from magnetar.broker.moves.move import Move
from magnetar.broker.moves.positions import NamedPositions, acknowledge, find, settle
from magnetar.broker.topic.admission import FORGED, delay_refusal, delayed_among, deliver_at_ms_of, is_guarded
from magnetar.errors import MagnetarError, MetadataInvalid, NotAllowed
from magnetar.pipeline_bounds import MOVED_RANGES
from magnetar.wire.metadata import MetadataError, claims_origin, metadata_of
from magnetar.wire.moves import MOVED, Positions, parse_positions

if TYPE_CHECKING:
    from magnetar.broker.commit import Group
    from magnetar.broker.peer import Receipt
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.producer import Producer
    from magnetar.broker.topic.run import NewEntry
    from magnetar.broker.topic.topic import Publish


class _Accepted(NamedTuple):
    subscriptions: list[Subscription]
    positions: NamedPositions


def publish_moves(topic: PersistentTopic, move: Move, producer: Producer, publishes: Sequence[Publish]) -> None:
    """Stores entries in order. Nothing is stored after one that was refused: it would overtake its messages."""
    group = topic.broker.commits.open()
    group.durable = True
    transaction = _Transaction(topic, move, producer, group)
    for publish in publishes:
        if producer.refused is None:
            try:
                transaction.add(publish)
                continue
            except MagnetarError as error:
                producer.refused = error
        producer.peer.send_error(producer, publish[0], producer.refused)
    transaction.end()


class _Transaction:
    """Decides on entries one after another. Those that are accepted wait until another one names an entry that they
    name too, so that most are stored as one run."""

    def __init__(self, topic: PersistentTopic, move: Move, producer: Producer, group: Group) -> None:
        self._topic = topic
        self._move = move
        self._producer = producer
        self._group = group
        self._now_ms = topic.broker.now_ms()
        self._others: list[Subscription] = []
        self._new: list[NewEntry] = []
        self._receipts: list[Receipt] = []
        self._accepted: list[_Accepted] = []
        self._named: dict[PersistentTopic, BitMap64] = {}  # by those that are accepted and not stored
        self._acked: dict[Subscription, list[int]] = {}  # with the entries of which single messages were acknowledged
        self._size = 0

    def add(self, publish: Publish) -> None:
        """Raises MagnetarError, and stores nothing of this one."""
        sequence_id, highest_id, messages, blob, may_be_delayed, is_chunk = publish
        topic = self._topic
        if is_guarded(topic, self._producer) and claims_origin(blob):
            raise FORGED
        positions = _positions_in(blob, is_chunk)
        self._others = self._move.others(topic)
        deliver_at_ms = deliver_at_ms_of(topic, blob, self._now_ms) if may_be_delayed else 0
        if deliver_at_ms and (refusal := delay_refusal(topic, deliver_at_ms - self._now_ms)):
            raise refusal
        source = self._move.source(positions)
        found = find(source.subscriptions, positions.ranges)
        named = self._named.setdefault(source.topic, BitMap64())
        if found.touches(named):
            self._store()
            found = find(source.subscriptions, positions.ranges)
        if not found.open:
            self._receipts.append((sequence_id, highest_id, -1))
            return
        if found.open < found.named:
            raise NotAllowed(
                f"{found.named - found.open} of {found.named} positions of {source.topic.name.full} that an entry moves"
                f" are acknowledged already, the first range is {positions.ranges[0].text}"
            )
        found.note_in(named)
        self._receipts.append((sequence_id, highest_id, topic.log.last + 1 + len(self._new)))
        self._new.append((messages, deliver_at_ms, blob))
        self._accepted.append(_Accepted(source.subscriptions, found))

    def _store(self) -> None:
        # Entries first: after an error between the two, an entry without its acknowledgement is a message too many, and
        # the other way round a lost one.
        topic, new, first = self._topic, self._new, self._topic.log.last + 1
        admitted = new, self._receipts, delayed_among(new, first), ()
        self._size += topic.append(self._group, self._producer, self._now_ms, admitted)
        for subscriptions, positions in self._accepted:
            acknowledge(subscriptions, positions)
            for subscription in subscriptions:
                self._acked.setdefault(subscription, []).extend(positions.parts)
        if new and self._others:
            withhold(topic, self._group, self._others, range(first, topic.log.last + 1))
        self._new, self._receipts, self._accepted = [], [], []
        for named in self._named.values():
            named.clear()

    def end(self) -> None:
        if self._receipts:
            self._store()
        # One group for all of it, which grows last: a full one would be closed in between. What follows from an
        # acknowledgement may grow it too.
        assert self._topic.broker.commits.open() is self._group
        self._group.grow(self._size)
        for subscription, parts in self._acked.items():
            settle(subscription, parts)


def withhold(topic: PersistentTopic, group: Group, others: Iterable[Subscription], entries: range) -> None:
    """Entries are acknowledged for these subscriptions with the group that stores them, in memory once they exist."""
    for subscription in others:
        subscription.cursor.ack_ahead(group.batch, entries)
    group.completions.append(partial(_withheld, topic, others, entries))


def _withheld(topic: PersistentTopic, others: Iterable[Subscription], entries: range) -> None:
    if topic.is_unloaded:
        return  # a topic that is opened again finds it on disk
    for subscription in others:
        if topic.subscription(subscription.name) is subscription:
            for entry_id in entries:
                subscription.ack(entry_id)


def _positions_in(blob: bytes, is_chunk: bool) -> Positions:
    try:
        metadata = metadata_of(blob)
    except MetadataError as error:
        raise MetadataInvalid(str(error)) from error
    if is_chunk or metadata.num_chunks_from_msg > 1:
        raise NotAllowed("a message in chunks cannot replace others: each chunk is an entry of its own")
    text = next((pair.value for pair in metadata.properties if pair.key == MOVED), None)
    if not isinstance(text, str):
        raise MetadataInvalid(f"entry of a producer that moves messages has no property {MOVED}")
    return parse_bounded(text, f"property {MOVED}")


def parse_bounded(text: str, what: str) -> Positions:
    """Raises MetadataInvalid, whose text begins with `what`."""
    ranges = text.count(",") + 1
    if ranges > MOVED_RANGES.limit:
        raise MetadataInvalid(f"{what} has {ranges} ranges of positions, the limit is {MOVED_RANGES.limit}")
    try:
        return parse_positions(text)
    except ValueError as error:
        raise MetadataInvalid(f"{what}: {error}") from error
