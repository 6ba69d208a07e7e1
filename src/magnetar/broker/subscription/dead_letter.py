"""The move of dead messages to the dead letter topic.

Publishing the letter and acknowledging the message are in one group of the commits: after a crash at any instant the
message is in exactly one of the two topics (DL4). Calls go down to the places, the breaker and the log, and to the dead
letter topic. Knows no counting and no consumers: the subscription decides which entries are dead, and pauses itself
when the breaker trips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from magnetar.access.needs import Need, right_on_topic
from magnetar.broker.bits import bits_at, indexes_in
from magnetar.broker.catalog import creation
from magnetar.broker.subscription.breaker import Breaker
from magnetar.broker.subscription.dead_letter_blobs import FailureSite, dead_letter_blobs
from magnetar.broker.subscription.entry_state import EntryState
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.deadletter.properties import Reason
from magnetar.errors import MagnetarError, NotAllowed, RightMissing
from magnetar.wire.metadata import messages_in

if TYPE_CHECKING:
    from magnetar.broker.catalog.failure_policy import BreakerPolicy, DeadLetterPolicy
    from magnetar.broker.subscription.places import Places
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.run import Entry
    from magnetar.names import TopicName

_MOVED_TOGETHER, _MOVED_SIZE = 64, 1 << 20


class Moved(NamedTuple):
    """Entries that cannot be moved now, and the reason to pause the subscription if the breaker tripped."""

    staying: list[int]
    pause_reason: str


class _Letters(NamedTuple):
    """`left_open` are the messages of a batch that stay."""

    entry_id: int
    left_open: int
    target: PersistentTopic
    blobs: list[bytes]


class DeadLetterMove:
    """Owns the circuit breaker, which decides on each move.

    `moved` counts letters since the topic was opened; `problem` is why the last move failed, if it did.
    """

    __slots__ = ("_breaker", "_places", "_subscription", "_topic", "moved", "problem")

    def __init__(self, topic: PersistentTopic, subscription: str, places: Places) -> None:
        self._topic = topic
        self._subscription = subscription
        self._places = places
        self._breaker = Breaker(topic.broker.clock.monotonic_ms())
        self.moved: Counter[Reason] = Counter()
        self.problem = ""

    @staticmethod
    def is_exhausted(state: EntryState, policy: DeadLetterPolicy) -> bool:
        return state.highest_count > policy.max_redeliver_count

    def move(
        self,
        entry_ids: Sequence[int],
        reason: Reason,
        policy: DeadLetterPolicy,
        breaker: BreakerPolicy | None,
        text: str = "",
    ) -> Moved:
        """Moves the exhausted messages of entries or, with a `text` that says why, all open ones; many together."""
        staying: list[int] = []
        batch: list[_Letters] = []
        size, pause_reason = 0, ""
        for entry_id, entry in self._entries(entry_ids):
            if breaker is not None and not pause_reason:
                pause_reason = self._breaker.trip(breaker, *self._finished())
            letters = None if entry is None or pause_reason else self._letters_of(entry, reason, policy, text)
            if letters is None:
                staying.append(entry_id)
                continue
            batch.append(letters)
            size += sum(map(len, letters.blobs))
            # The breaker decides on each message after the one before it is counted.
            if len(batch) == _MOVED_TOGETHER or size > _MOVED_SIZE or breaker is not None:
                self._commit(batch, reason)
                batch, size = [], 0
        if batch:
            self._commit(batch, reason)
        if entry_ids and not staying:
            self.problem = ""
        return Moved(staying, pause_reason)

    def _finished(self) -> tuple[int, int, int]:
        """The time, and the messages acknowledged and dead-lettered in total."""
        return self._topic.broker.clock.monotonic_ms(), self._places.acked_messages, self.moved.total()

    def begin_breaker_window(self) -> None:
        self._breaker.begin_window(*self._finished())

    def roll_breaker_window(self, policy: BreakerPolicy) -> None:
        self._breaker.roll_window(policy, *self._finished())

    def _entries(self, entry_ids: Sequence[int]) -> Iterator[tuple[int, Entry | None]]:
        """Neighbours are read together: the log stores entries in runs, and would decode one run for each entry."""
        found: dict[int, Entry] = {}
        for index, entry_id in enumerate(entry_ids):
            if entry_id not in found:
                count = 1
                while count < _MOVED_TOGETHER and entry_ids[index + count : index + count + 1] == [entry_id + count]:
                    count += 1
                found = {entry[0]: entry for entry in self._topic.log.read(entry_id, count, _MOVED_SIZE)}
            yield entry_id, found.get(entry_id)

    def _letters_of(self, entry: Entry, reason: Reason, policy: DeadLetterPolicy, text: str) -> _Letters | None:
        entry_id, messages, _, blob = entry
        state = self._places.cursor.state_of(entry_id) or EntryState()
        is_open = (1 << messages) - 1 if state.open_bits is None else state.open_bits
        dead = list(indexes_in(is_open)) if text else _exhausted(is_open, state, policy.max_redeliver_count)
        failures = {index: (state.count_of(index), state.first_ms, state.last_ms) for index in dead}
        try:
            target = self._target(policy, entry_id)
            text = text or _describe(reason, max(count for count, _, _ in failures.values()), policy)
            blobs, is_whole = dead_letter_blobs(blob, self._site(entry, reason, text, state), failures, messages)
        except MagnetarError as error:
            self.problem = str(error)
            return None
        except Exception as error:  # it stays, and the others go on
            self.problem = f"{type(error).__name__}: {error}"
            self._topic.broker.commits.host.fault("dispatch", error, self._topic.name.full)
            return None
        return _Letters(entry_id, 0 if is_whole else is_open & ~bits_at(dead), target, blobs)

    def _commit(self, batch: Sequence[_Letters], reason: Reason) -> None:
        # One group for both, which grows last: a full one would be closed in between. Letters first: after an error
        # between the two, a letter without its ack is a letter too many, and an ack without its letter a lost message.
        commits = self._topic.broker.commits
        group = commits.open()
        group.durable = True
        by_target: dict[PersistentTopic, list[bytes]] = {}
        for letters in batch:
            by_target.setdefault(letters.target, []).extend(letters.blobs)
        size = 0
        for target, blobs in by_target.items():
            size += target.append_moved(group, [(messages_in(blob), 0, blob) for blob in blobs])
            self.moved[reason] += len(blobs)
        for letters in batch:
            self._places.take_out(letters.entry_id, letters.left_open)
        assert commits.open() is group
        group.grow(size)

    def _site(self, entry: Entry, reason: Reason, description: str, state: EntryState) -> FailureSite:
        entry_id, messages, _, _ = entry
        topic = self._topic
        consumer, address, client_version = state.failed_by.split("\n") if state.failed_by else ("", "", "")
        return FailureSite(
            topic=topic.name.full,
            subscription=self._subscription,
            ledger_id=topic.ledger_id,
            entry_id=entry_id,
            partition=topic.name.partition,
            reason=reason,
            description=description,
            producer=f"{topic.name.full}-{self._subscription}-DLQ",
            now_ms=topic.broker.now_ms(),
            consumer=consumer,
            address=address,
            client_version=client_version,
            error_of=state.error_of,
            batch_failed=frozenset(range(messages)) - state.index_counts.keys() if state.count and messages > 1 else (),
        )

    def _target(self, policy: DeadLetterPolicy, entry_id: int) -> PersistentTopic:
        """The dead letter topic or one of its partitions, created if it is missing. Raises MagnetarError."""
        broker = self._topic.broker
        name = policy.topic_for(self._topic.name, self._subscription)
        if name.base.full == self._topic.name.base.full:
            raise NotAllowed(f"dead letters of {self._subscription!r} cannot go to their own topic {name.full}")
        creation.require_dead_letter_topic(broker.catalog, name)
        partitioned = broker.catalog.partitioned.get(name.full)
        if partitioned is not None:
            name = name.with_partition(entry_id % partitioned.partitions)
        self._check_right(name, policy)
        target = broker.dead_letter_topic(name, self._topic.name, policy.author)
        if policy.initial_subscription and policy.initial_subscription not in target.subscriptions:
            target.create_subscription(SubscribeRequest(policy.initial_subscription, from_earliest=True))
        return target

    def _check_right(self, target: TopicName, policy: DeadLetterPolicy) -> None:
        """Raises RightMissing. In its own namespace a policy needs no other right than to be set."""
        authorization, source = self._topic.broker.authorization, self._topic.name
        if not authorization.is_enabled or target.namespace_full == source.namespace_full:
            return
        if policy.author is None and target.tenant == source.tenant:
            return
        right = right_on_topic(Need.PRODUCE, target)
        if not authorization.allows_author(policy.author, [right]):
            raise RightMissing(
                f"{_author_of(policy)} may not publish to {target.full}, where its dead letter policy leads"
            )


def _author_of(policy: DeadLetterPolicy) -> str:
    return "an unknown role" if policy.author is None else f"role {policy.author.role!r}"


def _exhausted(is_open: int, state: EntryState, limit: int) -> list[int]:
    return [index for index in indexes_in(is_open) if state.count_of(index) > limit]


def _describe(reason: Reason, count: int, policy: DeadLetterPolicy) -> str:
    failed = (
        f"Consumers that held only this message crashed {count} times"
        if reason is Reason.ConsumerCrash
        else f"It failed {count} times"
    )
    return f"{failed}, maxRedeliverCount is {policy.max_redeliver_count}."
