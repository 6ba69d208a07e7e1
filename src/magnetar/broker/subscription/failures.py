"""Messages of a subscription that failed: counted, given time, and moved to the dead letter topic when it is enough.

Owns the place `resting` of the subscription's table (what waits for the end of its back-off), the suspects of consumers
that vanished, the circuit breaker, and the move itself: publishing the letter and acknowledging the message are in one
group of the commits, so that after a crash at any instant the message is in exactly one of the two places (DL4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from magnetar.broker.catalog import creation
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.dead_letter_blobs import FailureSite, dead_letter_blobs
from magnetar.broker.subscription.entry_state import EntryState
from magnetar.broker.subscription.failure_policy import COUNT_MAX, DeadLetterPolicy
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.deadletter.properties import Reason
from magnetar.errors import MagnetarError, NotAllowed

if TYPE_CHECKING:
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.run import Entry

SUSPICIONS_UNTIL_FEW, SUSPICIONS_UNTIL_ALONE = 2, 3
"""How often a consumer may vanish while it held a message, before that has few others beside it, and none at all.

Clients acknowledge some ten times a second, so a thousand suspects one by one would take minutes: in groups of `FEW`,
and then one by one only those of the group that killed its consumer, they take seconds.
"""

FEW = 32

ALONE_PATIENCE_MS = 10_000
"""How long others are held back for a suspect, and how long they are not when that was in vain: a consumer may want
many messages before it acknowledges any, or none ever."""

_ANY = DeadLetterPolicy(COUNT_MAX)
_BUCKET_MS = 50  # resting entries wake together, so that a million of them need a few timers
_BURIED_PER_TURN = 100
_SIZE_MAX = 128 << 20  # of a batch, uncompressed
_MOVED_TOGETHER, _MOVED_SIZE = 64, 1 << 20


class _Move(NamedTuple):
    """`left_open` are the messages of a batch that stay."""

    entry_id: int
    left_open: int
    target: PersistentTopic
    letters: list[bytes]


class FailedMessages:
    __slots__ = (
        "_buckets",
        "_free_until_ms",
        "_held_back_ms",
        "_is_watched",
        "_subscription",
        "_topic",
        "_window",
        "backing_off",
        "dead",
        "problem",
    )

    def __init__(self, topic: PersistentTopic, subscription: Subscription) -> None:
        self._topic = topic
        self._subscription = subscription
        self.backing_off = BitMap64()
        self._buckets: dict[int, BitMap64] = {}
        self.dead: Counter[Reason] = Counter()  # messages moved since the topic was opened
        self.problem = ""  # why the last message that should have been moved was not
        self._window = (topic.broker.now_ms(), 0, 0)  # its start in ms, messages acknowledged and dead by then
        self._held_back_ms = 0  # since when others wait for a suspect
        self._free_until_ms = 0  # nobody waits until then
        self._is_watched = False

    # -- what is in force

    @property
    def policy(self) -> DeadLetterPolicy | None:
        if not self._subscription.durable or self._subscription.is_internal:
            return None
        return self._subscription.record.dead_letters or self._topic.policies.dead_letters

    # -- failures

    def count(self, entry_id: int, indexes: int | None = None) -> None:
        """A failure of the entry, or of those open messages of it whose bits are set in `indexes`."""
        if self._subscription.is_internal:
            return  # what a pipeline gives back did not fail: it was killed, or the other cluster was
        if indexes is not None:
            indexes &= self._subscription.open_bits(entry_id)
            if not indexes:
                return  # a client names what is acknowledged, or was never there
        self._subscription.cursor.count_redelivery(entry_id, self._topic.broker.now_ms(), indexes)

    def settle(self, entry_ids: Iterable[int], reason: Reason = Reason.MaxRedeliveries) -> None:
        """Buries those of the counted entries that have failed too often, and gives the others time."""
        policy, cursor = self.policy, self._subscription.cursor
        exhausted: list[int] = []
        for entry_id in entry_ids:
            position = cursor.known(entry_id)
            if position is None:
                continue
            if policy is not None and self._is_enough(position, policy):
                exhausted.append(entry_id)
            else:
                self._rest(entry_id, position)
        if policy is not None:
            for entry_id in self._dead_letter(exhausted, reason, policy):
                self._rest(entry_id, cursor.known(entry_id) or EntryState())

    @staticmethod
    def _is_enough(position: EntryState, policy: DeadLetterPolicy) -> bool:
        return position.highest_count > policy.max_redeliver_count

    # -- back-off

    def _rest(self, entry_id: int, position: EntryState) -> None:
        """Sets the time before which a failed entry is not delivered again, if there is a back-off."""
        steps = self._subscription.record.backoff_ms
        delay_ms = steps[min(position.highest_count, len(steps)) - 1] if steps and position.highest_count else 0
        if not delay_ms:
            return
        due_ms = self._topic.broker.now_ms() + delay_ms
        self._subscription.cursor.change(entry_id, lambda found: found.rest(due_ms))
        self._subscription.back_off(entry_id, due_ms)

    def due_ms(self, entry_id: int) -> int:
        """When the entry may be delivered; 0 for at once."""
        position = self._subscription.cursor.known(entry_id)
        return 0 if position is None else position.due_ms

    def is_backing_off(self, entry_id: int) -> bool:
        """Whether an entry that was read has to wait: then it is resting from now on."""
        due_ms = self.due_ms(entry_id)
        if due_ms <= self._topic.broker.now_ms():
            return False
        self.back_off_until(entry_id, due_ms)
        return True

    def back_off_until(self, entry_id: int, due_ms: int) -> None:
        self.backing_off.add(entry_id)
        bucket_ms = -(-due_ms // _BUCKET_MS) * _BUCKET_MS  # never early
        bucket = self._buckets.get(bucket_ms)
        if bucket is None:
            bucket = self._buckets[bucket_ms] = BitMap64()
            self._topic.broker.wake_at(bucket_ms, self._wake)
        bucket.add(entry_id)

    def rewind(self) -> None:
        """Everything unacknowledged is unread again, and finds its time when it is read."""
        self.backing_off.clear()
        self._buckets.clear()

    def _wake(self) -> None:
        now_ms = self._topic.broker.now_ms()
        for bucket_ms in [bucket_ms for bucket_ms in self._buckets if bucket_ms <= now_ms]:
            rested = (self._buckets.pop(bucket_ms) & self.backing_off).to_array()
            for entry_id in rested:
                self.backing_off.remove(entry_id)
            self._subscription.wait_again(rested)
        self._subscription.schedule_pump()

    # -- consumers that vanish

    def vanished(self, consumer: Consumer) -> list[int]:
        """Its connection broke while it held messages. Returns the entry that is to blame for it, if that is clear."""
        if self.policy is None or not consumer.pending:
            return []
        if consumer.entries_max == len(consumer.pending) == 1:
            (entry_id,) = consumer.pending
            self.count(entry_id)
            return [entry_id]
        for entry_id in consumer.pending:
            self._subscription.cursor.change(entry_id, EntryState.suspect)
        return []

    def company_of(self, entry_id: int) -> int:
        """How many entries a consumer may hold when this is one of them; 0 for any number."""
        if not self._subscription.cursor.knows_any or self._topic.broker.now_ms() < self._free_until_ms:
            return 0
        position = self._subscription.cursor.known(entry_id)
        if position is None or position.suspicions < SUSPICIONS_UNTIL_FEW:
            return 0
        return FEW if position.suspicions < SUSPICIONS_UNTIL_ALONE else 1

    def hold_back(self) -> None:
        """Others wait for a suspect from now on, but not for ever."""
        self._held_back_ms = self._held_back_ms or self._topic.broker.now_ms()
        if not self._is_watched:
            self._is_watched = True
            self._topic.broker.wake_at(self._held_back_ms + ALONE_PATIENCE_MS, self._lose_patience)

    def progressed(self, consumer: Consumer) -> None:
        """A consumer that held suspects holds one entry less."""
        self._held_back_ms = 0
        if len(consumer.pending) <= FEW:
            limits = [limit for entry_id in consumer.pending if (limit := self.company_of(entry_id))]
            consumer.entries_max = min(limits, default=0)
        if consumer.entries_max:
            self.hold_back()

    def _lose_patience(self) -> None:
        now_ms = self._topic.broker.now_ms()
        self._is_watched = False
        if not self._held_back_ms or not self._subscription.consumers:
            self._held_back_ms = 0
            return
        if now_ms - self._held_back_ms < ALONE_PATIENCE_MS:
            self.hold_back()
            return
        self._held_back_ms = 0
        self._free_until_ms = now_ms + ALONE_PATIENCE_MS
        for consumer in self._subscription.consumers:
            consumer.entries_max = 0
        self._subscription.schedule_pump()

    # -- the move

    def dead_letter(self, entry_id: int, reason: Reason, description: str) -> bool:
        """Moves all that is open of an entry, whatever its counts: its time is over, or there is no room for it."""
        return not self._dead_letter([entry_id], reason, self.policy or _ANY, description)

    def dead_letter_up_to(self, last: int, reason: Reason, description: str) -> None:
        """The same for all entries up to `last`, some per turn of the loop; stops at one that cannot be moved."""
        subscription = self._subscription
        if self._topic.is_unloaded or self._topic.subscriptions.get(subscription.name) is not subscription:
            return  # deleted between two turns
        for _ in range(_BURIED_PER_TURN):
            entry_id = subscription.cursor.mark_delete + 1
            if entry_id > last or not self.dead_letter(entry_id, reason, description):
                return
            subscription.expired_messages += 1
        self._topic.broker.wake_at(
            self._topic.broker.now_ms(), lambda: self.dead_letter_up_to(last, reason, description)
        )

    def _dead_letter(
        self, entry_ids: Sequence[int], reason: Reason, policy: DeadLetterPolicy, text: str = ""
    ) -> list[int]:
        """Moves entries, many together; returns those that cannot be moved now and stay: `problem` says why."""
        staying: list[int] = []
        moves: list[_Move] = []
        size = 0
        for entry_id, entry in self._entries(entry_ids):
            move = None if entry is None else self._prepare(entry, reason, policy, text)
            if move is None:
                staying.append(entry_id)
                continue
            moves.append(move)
            size += sum(map(len, move.letters))
            # A circuit breaker looks at each death before the next.
            if len(moves) == _MOVED_TOGETHER or size > _MOVED_SIZE or self._subscription.record.breaker is not None:
                self._move(moves, reason)
                moves, size = [], 0
        if moves:
            self._move(moves, reason)
        if entry_ids and not staying:
            self.problem = ""
        return staying

    def _entries(self, entry_ids: Sequence[int]) -> Iterator[tuple[int, Entry | None]]:
        """Neighbours are read together: the log keeps entries in runs, and would take one apart for each."""
        found: dict[int, Entry] = {}
        for index, entry_id in enumerate(entry_ids):
            if entry_id not in found:
                count = 1
                while count < _MOVED_TOGETHER and entry_ids[index + count : index + count + 1] == [entry_id + count]:
                    count += 1
                found = {entry[0]: entry for entry in self._topic.log.read(entry_id, count, _MOVED_SIZE)}
            yield entry_id, found.get(entry_id)

    def _prepare(self, entry: Entry, reason: Reason, policy: DeadLetterPolicy, text: str) -> _Move | None:
        """The letters of what is dead of an entry: what failed too often or, with a `text` why, all that is open."""
        subscription, (entry_id, messages, _, blob) = self._subscription, entry
        if subscription.record.paused or self._trips():
            return None
        position = subscription.cursor.known(entry_id) or EntryState()
        is_open = (1 << messages) - 1 if position.open_bits is None else position.open_bits
        dead = _indexes(is_open) if text else _failed(is_open, position, policy.max_redeliver_count)
        failures = {index: (position.count_of(index), position.first_ms, position.last_ms) for index in dead}
        try:
            target = self._target(policy, entry_id)
            text = text or _describe(reason, max(count for count, _, _ in failures.values()), policy)
            letters, is_whole = dead_letter_blobs(blob, self._site(entry_id, reason, text), failures, _SIZE_MAX)
        except MagnetarError as error:
            self.problem = str(error)
            return None
        return _Move(entry_id, 0 if is_whole else is_open & ~sum(1 << index for index in dead), target, letters)

    def _move(self, moves: Sequence[_Move], reason: Reason) -> None:
        # One group for both. It is opened first: closing a full one later would store an ack without its letter.
        commits = self._topic.broker.commits
        group = commits.open()
        group.durable = True
        letters: dict[PersistentTopic, list[bytes]] = {}
        for move in moves:
            self._subscription.take_out(move.entry_id, move.left_open)
            letters.setdefault(move.target, []).extend(move.letters)
        assert commits.open() is group
        for target, blobs in letters.items():
            target.append_dead_letters(group, blobs)
            self.dead[reason] += len(blobs)

    def _site(self, entry_id: int, reason: Reason, description: str) -> FailureSite:
        topic, subscription = self._topic, self._subscription
        return FailureSite(
            topic=topic.name.full,
            subscription=subscription.name,
            ledger_id=topic.ledger_id,
            entry_id=entry_id,
            partition=topic.name.partition,
            reason=reason,
            description=description,
            producer=f"{topic.name.full}-{subscription.name}-DLQ",
            now_ms=topic.broker.now_ms(),
        )

    def _target(self, policy: DeadLetterPolicy, entry_id: int) -> PersistentTopic:
        """The dead letter topic, made if it is missing, or one of its partitions. Raises MagnetarError."""
        broker = self._topic.broker
        name = policy.topic_for(self._topic.name, self._subscription.name)
        if name.base.full == self._topic.name.base.full:
            raise NotAllowed(f"dead letters of {self._subscription.name!r} cannot go to their own topic {name.full}")
        creation.require_dead_letter_topic(broker.catalog, name)
        partitioned = broker.catalog.partitioned.get(name.full)
        if partitioned is not None:
            name = name.with_partition(entry_id % partitioned.partitions)
        target = broker.dead_letter_topic(name, self._topic.name)
        if policy.initial_subscription and policy.initial_subscription not in target.subscriptions:
            target.create_subscription(SubscribeRequest(policy.initial_subscription, from_earliest=True))
        return target

    # -- the circuit breaker

    def _trips(self) -> bool:
        """Whether one more dead message is one too many: then the subscription is paused instead."""
        breaker = self._subscription.record.breaker
        if breaker is None:
            return False
        self.roll_window()
        _, acked, dead = self._window
        dying = self.dead.total() - dead + 1
        finished = dying + self._subscription.acked_messages - acked
        if finished < breaker.minimum or dying * 100 <= breaker.percent * finished:
            return False
        self._subscription.pause(
            f"{dying} of {finished} messages within {breaker.window_s} s are dead, the limit is {breaker.percent} %"
        )
        return True

    def roll_window(self) -> None:
        """Begins a new window if the last one is over; also from time to time, so that a quiet hour is no window."""
        breaker, now_ms = self._subscription.record.breaker, self._topic.broker.now_ms()
        if breaker is not None and now_ms - self._window[0] > breaker.window_s * 1000:
            self.resumed()

    def resumed(self) -> None:
        self._window = (self._topic.broker.now_ms(), self._subscription.acked_messages, self.dead.total())


def _indexes(bits: int) -> list[int]:
    return [index for index in range(bits.bit_length()) if bits >> index & 1]


def _failed(is_open: int, position: EntryState, limit: int) -> list[int]:
    return [index for index in _indexes(is_open) if position.count_of(index) > limit]


def _describe(reason: Reason, count: int, policy: DeadLetterPolicy) -> str:
    what = "given back" if reason is Reason.MaxRedeliveries else "alone with a consumer that vanished"
    return f"It was {what} {count} times, the limit is {policy.max_redeliver_count}."
