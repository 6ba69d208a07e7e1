"""The expected handling of failed messages: counted, backed off, suspected, and finally dead-lettered.

Follows nacks and lost consumers, and registers every message that must become a dead letter with `dead_letters`.
Deviations of the broker are found by comparing the models, and by `dead_letters`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.single_messages import parse_id
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.subscription.suspects import ALONE_PATIENCE_MS
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb

from .dead_letters import DeadMessage, messages_in, whole_message
from .failure import expect
from .model import Model, indexes_of
from .snapshot import Failed, subscription_state_of

if TYPE_CHECKING:
    from .client import Connection
    from .world import World

Holder = tuple[PersistentTopic, Subscription, Consumer, list[int]]  # a consumer, and the entries it holds
LostConsumer = tuple[
    PersistentTopic, Subscription, Consumer, list[int], bool
]  # the same; and whether the entry is blamed
Reasons = tuple[str, ...]
_FAILED, _CRASHED, _EXPIRED = ("MaxRedeliveries",), ("ConsumerCrash",), ("Expired", "BacklogEvicted")
ORDERED = (SubscriptionType.Exclusive, SubscriptionType.Failover)


class FailureModel:
    def __init__(self, world: World) -> None:
        self._world = world

    def _models(self) -> dict[Subscription, Model]:
        return self._world.oracle.models

    def nack(
        self,
        redeliver: pb.CommandRedeliverUnacknowledgedMessages,
        topic: PersistentTopic,
        subscription: Subscription,
        model: Model,
        consumer: Consumer,
        held: list[int],
    ) -> None:
        returned, others = sorted(held), []
        named: dict[int, list[int]] = {}
        for message_id in redeliver.message_ids:
            if message_id.ledgerId == topic.ledger_id:
                entry, index = parse_id(message_id.entryId)
                named.setdefault(entry, []).append(message_id.batch_index if index < 0 else index)
        if redeliver.message_ids:
            returned = [entry for entry in returned if entry in named]
        elif subscription.type in ORDERED:
            if self._policy(subscription, model) is not None:
                model.redelivery_for = model.redelivery_for or consumer  # settled later, after the acks already sent
                return
            returned = returned[:1]  # entries behind the first were only waiting
        for entry in returned:
            indexes = named.get(entry, [-1])
            bits = None if -1 in indexes else sum(1 << index for index in set(indexes))
            if entry in model.singles:
                is_all = not redeliver.message_ids
                self._nack_singles(topic, subscription, model, entry, -1 if is_all else bits or 0, is_all=is_all)
                continue
            others.append(entry)
            model.fail(entry, self.messages_in(topic, subscription, entry), self._world.clock.now_ms(), bits)
        for entry in others:
            self._settle(topic, subscription, model, entry, _FAILED)

    def _nack_singles(
        self, topic: PersistentTopic, subscription: Subscription, model: Model, entry: int, bits: int, *, is_all: bool
    ) -> None:
        """Each message counts once; the entry comes back when all of its open messages are nacked."""
        messages, nacked = self.messages_in(topic, subscription, entry), model.singles[entry]
        bits &= model.open_bits(entry, messages) & ~nacked
        if bits:
            model.fail(entry, messages, self._world.clock.now_ms(), bits)
        if is_all:
            model.take_back(entry)
        elif bits:
            model.singles[entry] = nacked | bits
            if model.is_nacked(entry, messages):
                model.take_back(entry)
        else:
            return
        self._settle(topic, subscription, model, entry, _FAILED, backs_off=entry not in model.singles)

    def return_nacked(self, topic: PersistentTopic, subscription: Subscription, model: Model, entry: int) -> None:
        """The last message of a batch that was neither acknowledged nor nacked is acknowledged."""
        if not model.is_acked(entry) and model.is_nacked(entry, self.messages_in(topic, subscription, entry)):
            model.take_back(entry)
            self._settle(topic, subscription, model, entry, _FAILED)

    def is_next_single(
        self,
        subscription: Subscription,
        model: Model,
        entry: int,
        index: int,
        stored: bytes,
        blob: bytes,
        what: str,
    ) -> bool:
        """Whether it is a further one of the single messages of a batch; they are checked to be what is expected."""
        parts = messages_in(stored) or []
        may_split = subscription.type not in ORDERED and self._policy(subscription, model) is not None
        must_split = may_split and len(parts) > 1 and model.count(entry, len(parts)) > 0
        expect(must_split == (index >= 0), f"{what}: message {index} of {len(parts)}, expected alone: {must_split}")
        if index >= 0:
            expect(whole_message(blob) == parts[index], f"{what}: message {index} has other bytes than in its batch")
        return index >= 0 and entry in model.unsent

    def before_pump(self) -> list[Holder]:
        """Consumers with an unhandled request to redeliver everything, and the entries they hold."""
        return [
            (topic, subscription, model.redelivery_for, sorted(model.redelivery_for.pending))
            for topic in self._world.broker.topics.values()
            if isinstance(topic, PersistentTopic)
            for subscription in topic.cursors
            if (model := self._models().get(subscription)) is not None and model.redelivery_for is not None
        ]

    def after_pump(self, waiting: list[Holder]) -> None:
        """Handled requests: the first unacknowledged entry failed, entries behind it were only waiting."""
        for topic, subscription, consumer, held in waiting:
            model = self._models()[subscription]
            if subscription._nacked_all is not None:
                continue
            model.redelivery_for = None
            if consumer in subscription.consumers:
                model.in_flight.clear()
                for entry in held[:1]:
                    model.fail(entry, self.messages_in(topic, subscription, entry), self._world.clock.now_ms())
                    self._settle(topic, subscription, model, entry, _FAILED)

    def leaving(self, connection: Connection) -> list[LostConsumer]:
        """The consumers of a connection that is about to be lost, and the entries they hold."""
        lost: list[LostConsumer] = []
        for handle in connection.session.consumers.values():
            consumer, topic, subscription = handle.consumer, handle.topic, handle.consumer.subscription
            if not isinstance(subscription, Subscription) or not isinstance(topic, PersistentTopic):
                continue
            if consumer in subscription.consumers:
                is_blamed = consumer.entries_max == len(consumer.pending) == 1
                lost.append((topic, subscription, consumer, sorted(consumer.pending), is_blamed))
        return lost

    def vanished(self, lost: list[LostConsumer]) -> None:
        """Entries held by a lost consumer are suspects; an entry held alone is blamed."""
        gone: set[Subscription] = set()
        for topic, subscription, consumer, held, is_blamed in lost:
            model = self._models().get(subscription)
            if model is None or not held or not self._has_suspects(subscription, model):
                gone.add(subscription)
                continue
            # In ordered types, the first lost consumer may have passed its entries to one that stays.
            if (
                subscription in gone
                and consumer.type in ORDERED
                and subscription_state_of(subscription) == model.state()
            ):
                continue
            gone.add(subscription)
            may_blame = len(held) == 1 and model.consumer_limit(held[0]) == 1
            expect(may_blame or not is_blamed, f"one of {held} is blamed for {consumer.name} without proof")
            must_blame = may_blame and held[0] in model.watched
            expect(is_blamed or not must_blame, f"{held} is not blamed for {consumer.name}, which held nothing else")
            if is_blamed:
                model.fail(held[0], self.messages_in(topic, subscription, held[0]), self._world.clock.now_ms())
                self._settle(topic, subscription, model, held[0], _CRASHED)
            else:
                for entry in held:
                    model.suspect(entry)

    def _has_suspects(self, subscription: Subscription, model: Model) -> bool:
        """Shared clients may have their own policy, unknown to the broker; ordered types have none."""
        if not subscription.durable or subscription.is_internal:
            return False
        return subscription.type not in ORDERED or self._policy(subscription, model) is not None

    def _policy(self, subscription: Subscription, model: Model) -> DeadLetterPolicy | None:
        setup = self._world.dead_letter_setup
        if not subscription.durable or setup is None:
            return None
        return model.rules.policy or setup.default

    def expire(self, topic: PersistentTopic, subscription: Subscription, model: Model, entry: int) -> None:
        """An expired or evicted entry: all its open messages become dead letters, whatever their count."""
        if model.is_acked(entry):
            return
        failed, now_ms = model.failures.get(entry, Failed()), self._world.clock.now_ms()
        failed = failed._replace(first_ms=failed.first_ms or now_ms, last_ms=failed.last_ms or now_ms)
        policy = self._policy(subscription, model) or DeadLetterPolicy(1)
        ledger = self._target_ledger(topic, subscription, policy, entry)
        expect(ledger is not None, f"{subscription.name} expired {entry} without a target for its dead letter")
        assert ledger is not None
        dead = indexes_of(model.open_bits(entry, self.messages_in(topic, subscription, entry)))
        self._dead_letter(topic, subscription, model, entry, dead, failed, ledger, _EXPIRED)

    def messages_in(self, topic: PersistentTopic, subscription: Subscription, entry: int) -> int:
        stored = self._world.durable.entries.get((topic.ledger_id, entry))
        is_trimmed = (
            entry < topic.log.first and not subscription.durable
        )  # trimmed under a reader, which does not prevent trimming
        return 1 if stored is None or is_trimmed else stored.messages

    def _settle(
        self,
        topic: PersistentTopic,
        subscription: Subscription,
        model: Model,
        entry: int,
        reasons: Reasons,
        *,
        backs_off: bool = True,
    ) -> None:
        """Dead-letters the exhausted messages of a failed entry."""
        if entry not in model.failures:
            return
        policy = self._policy(subscription, model)
        messages, failed = self.messages_in(topic, subscription, entry), model.failures[entry]
        open_bits = model.open_bits(entry, messages)
        limit = policy.max_redeliver_count if policy is not None else 0
        dead = [index for index in indexes_of(open_bits) if policy is not None and failed.count_of(index) > limit]
        ledger = self._target_ledger(topic, subscription, policy, entry) if policy is not None and dead else None
        if ledger is None:
            if backs_off:
                model.back_off(entry, messages, self._world.clock.now_ms())
            return
        self._dead_letter(topic, subscription, model, entry, dead, failed, ledger, reasons)

    def _dead_letter(
        self,
        topic: PersistentTopic,
        subscription: Subscription,
        model: Model,
        entry: int,
        dead: list[int],
        failed: Failed,
        ledger: int,
        reasons: Reasons,
    ) -> None:
        messages = self.messages_in(topic, subscription, entry)
        open_bits = model.open_bits(entry, messages)
        worst = max(failed.count_of(index) for index in dead)
        blob = self._world.durable.entries[topic.ledger_id, entry].blob
        parts = messages_in(blob)
        for index in [-1] if parts is None else dead:
            bits = open_bits if parts is None else 1 << index
            dead_message = DeadMessage(
                model.id,
                entry,
                bits,
                index,
                ledger,
                f"{topic.ledger_id}:{entry}:{topic.name.partition}{f':{index}' if index >= 0 else ''}",
                topic.name.full,
                subscription.name,
                reasons,
                worst if parts is None else failed.count_of(index),
                worst,
                failed.first_ms,
                failed.last_ms,
                whole_message(blob) if parts is None else parts[index],
            )
            self._world.dead_letters.add(dead_message, self._world.steps.synced)
            open_bits &= ~bits
        model.ack_part(entry, open_bits, messages)

    def _target_ledger(
        self, topic: PersistentTopic, subscription: Subscription, policy: DeadLetterPolicy, entry: int
    ) -> int | None:
        """The ledger of the dead letter topic; None without a usable one, and the message stays."""
        catalog = self._world.broker.catalog
        name = TopicName.parse(policy.topic or f"{topic.name.base.full}-{subscription.name}-DLQ")
        if name.base.full == topic.name.base.full:
            return None
        if not policy.topic and topic.name.base.local.endswith("-DLQ"):
            return None  # no dead letter topic for an auto-created dead letter topic
        partitioned = catalog.partitioned.get(name.full)
        if partitioned is not None:
            name = name.with_partition(entry % partitioned.partitions)
        record = catalog.topics.get(name.full)
        expect(record is not None, f"{name.full} was not created for the dead letters of {subscription.name}")
        return None if record is None or record.terminated else record.id

    def check_isolation(
        self, subscription: Subscription, model: Model, consumer: Consumer, entry: int, what: str
    ) -> None:
        """A suspect is delivered with few entries or alone, but nothing is held back indefinitely."""
        held = [e for e, holder in model.in_flight.items() if holder is consumer and e != entry]
        consumer_limit = model.consumer_limit(entry)
        if self._world.clock.monotonic_ms() >= subscription.suspects.free_until_ms:
            suspects = [e for e in held if e in model.watched]
            limit = min([consumer_limit, *(model.consumer_limit(e) for e in suspects)])
            expect(
                len(held) < limit,
                f"{what}: delivered with {held}, suspects {suspects}, at most {limit} are allowed",
            )
            if consumer_limit < inf:
                model.watched.add(entry)

    def _check_patience(self, subscription: Subscription, model: Model) -> None:
        now_ms, free_until_ms = self._world.clock.monotonic_ms(), subscription.suspects.free_until_ms
        if now_ms < model.suspected_since_ms and any(model.consumer_limit(entry) < inf for entry in model.failures):
            model.suspected_since_ms = now_ms
        if free_until_ms != model.free_until_ms:
            waited_ms = now_ms - model.suspected_since_ms
            expect(
                waited_ms >= ALONE_PATIENCE_MS,
                f"{subscription.name} stopped isolating suspects after {waited_ms} ms",
            )
            model.free_until_ms = free_until_ms
            model.watched.clear()
        model.watched &= model.in_flight.keys()

    def check(self, subscription: Subscription, model: Model, what: str) -> None:
        """Checks the model after every step."""
        self._check_patience(subscription, model)
        if model.redelivery_for is not None and subscription._nacked_all is None:
            expect(
                not model.redelivery_for.pending,
                f"{what}: {model.redelivery_for.name} requested redelivery of everything and was ignored",
            )
            model.redelivery_for = None
