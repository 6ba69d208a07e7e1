"""A persistent topic: publishes into the log, wakes subscriptions, and keeps the log within its limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.catalog.changes import report_subscription
from magnetar.broker.catalog.policies import Policies
from magnetar.broker.catalog.record import SubscriptionRecord, TopicRecord
from magnetar.broker.commit import Group
from magnetar.broker.damage.subscriptions import DamagedSubscriptions
from magnetar.broker.moves.publish import publish_moves
from magnetar.broker.peer import Receipt
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.throttling.limits import is_of_replication
from magnetar.broker.timers import MovedTimer
from magnetar.broker.topic import backlog_quota, retention
from magnetar.broker.topic.admission import Admitted, admit
from magnetar.broker.topic.deduplication import Deduplication, delete_all
from magnetar.broker.topic.delayed import DelayedIndex
from magnetar.broker.topic.expiry import dead_letter_up_to
from magnetar.broker.topic.log import Log
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.replicated import PulsarReplicatedEntries, ReplicatedEntries
from magnetar.broker.topic.run import NewEntry
from magnetar.broker.topic.topic import Publish, SubscribeRequest, Topic, TopicSubscription
from magnetar.deadletter.properties import Reason
from magnetar.errors import EntriesDamaged, NotAllowed, QuotaHold, SubscriptionNotFound, TopicBusy, TopicTerminated
from magnetar.log.events import CRASH_ATTRIBUTED
from magnetar.names import TopicName
from magnetar.replication.model import (
    is_pipeline_producer,
    is_pulsar_replicator,
    is_replication_subscription,
    remote_of,
    subscription_of,
)
from magnetar.storage.api import Batch

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

_EARLIEST, _LATEST = -1, (1 << 63) - 1


class PersistentTopic(Topic):
    """`ledger_id` is never reused, so message ids of a deleted topic never match a new one of the same name.

    It is the topic's id, unless messages were lost. Keys of the storage have the id.
    """

    def __init__(self, broker: Broker, name: TopicName, topic_record: TopicRecord, *, is_new: bool) -> None:
        super().__init__(broker, name)
        self.record = topic_record
        self.ledger_id = topic_record.ledger_id
        self.epoch = topic_record.epoch
        self.log = Log(broker.storage, broker.cache, topic_record.id, self._met_damage)
        self.is_ended = topic_record.terminated  # durably: consumers may be notified
        self.delayed = DelayedIndex(broker.storage, broker.commits, topic_record.id)
        self.deduplication: Deduplication | None = None
        self._replicated: ReplicatedEntries | None = None
        self._pulsar_replicated: PulsarReplicatedEntries | None = None
        self._delay = MovedTimer(broker.timers, self.wake_delayed)
        self._subscriptions: dict[str, Subscription] = {}
        self.damaged = DamagedSubscriptions(self)
        if not is_new:
            self.log.load()
            self.delayed.load()
            self._load_subscriptions()
            self.apply_rates()
        if self.policies.deduplication:
            self.deduplication = Deduplication(broker.storage, topic_record.id)

    @property
    def subscriptions(self) -> dict[str, TopicSubscription]:
        return self._subscriptions  # type: ignore[return-value]  # invariance of dict: callers do not add to it

    def subscription(self, name: str) -> Subscription | None:
        return self._subscriptions.get(name)

    @property
    def cursors(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    def replicator(self, remote: str) -> Subscription | None:
        """The subscription with the position of replication to a remote cluster."""
        return self._subscriptions.get(subscription_of(remote))

    @property
    def is_terminated(self) -> bool:  # type: ignore[override]
        return self.record.terminated

    def _met_damage(self, error: EntriesDamaged) -> None:
        self.broker.damage.note("topic", self.name.full, error, position=f"{self.ledger_id}:{error.first}")

    # -- publish

    def publish(self, producer: Producer, publishes: Sequence[Publish]) -> None:
        """Appends in order; receipts and dispatch follow when the group is durable."""
        if self.record.terminated:
            error = TopicTerminated(f"topic {self.name.full} was terminated")
            for publish in publishes:
                producer.peer.send_error(producer, publish[0], error)
            return
        if producer.move is not None:
            publish_moves(self, producer.move, producer, publishes)
            return
        now_ms = self.broker.now_ms()
        group = self.broker.commits.open()
        group.durable = True
        group.grow(self.append(group, producer, now_ms, admit(self, producer, publishes, now_ms)))

    def _is_read(self) -> bool:
        return any(subscription.consumers for subscription in self._subscriptions.values())

    def append(self, group: Group, producer: Producer, now_ms: int, admitted: Admitted) -> int:
        """Entries, in a group that the caller makes grow by the bytes that are returned."""
        log, size_before = self.log, self.log.size
        new, receipts, delayed, records = admitted
        log.append(group.batch, now_ms, new, keep=self._is_read())
        for note in records:
            note(group.batch, now_ms, self.broker.settings.brokerDeduplicationMaxNumberOfProducers)
        for deliver_at_ms, entry_id in delayed:
            self.delayed.add(group.batch, deliver_at_ms, entry_id)
        messages, size = sum([entry[0] for entry in new]), log.size - size_before
        self.messages_in += messages
        self.bytes_in += size
        producer.messages_in += messages
        producer.bytes_in += size
        if producer.source:
            self.inbound[producer.source].count(messages, size)
        if self.limits.publish is not None:
            self.limits.publish.take(producer.peer, messages, size)
        group.completions.append(partial(self._published, producer, receipts, log.last, delayed))
        return size

    def _published(
        self, producer: Producer, receipts: list[Receipt], last: int, delayed: list[tuple[int, int]]
    ) -> None:
        for deliver_at_ms, entry_id in delayed:
            self.delayed.confirmed(deliver_at_ms, entry_id, self.broker.now_ms())
        self._stored(last)
        producer.peer.receipts(producer, receipts)
        if delayed:
            self._delay.move(self.delayed.next_ms)

    def append_moved(self, group: Group, new: Sequence[NewEntry]) -> int:
        """Entries that the broker moves here, dead letters or redriven ones, in the group that also acknowledges where
        they come from; the caller makes it grow by the bytes that are returned."""
        log, size_before = self.log, self.log.size
        log.append(group.batch, self.broker.now_ms(), new, keep=self._is_read())
        self.messages_in += len(new)
        self.bytes_in += log.size - size_before
        group.completions.append(partial(self._stored, log.last))
        return log.size - size_before

    def _stored(self, last: int) -> None:
        """Everything up to this entry is durable: subscriptions may deliver it."""
        self.log.confirmed = max(self.log.confirmed, last)
        for subscription in self._subscriptions.values():
            if subscription.dispatcher is not None:
                subscription.schedule_pump()

    def check_quota(self) -> None:
        if self.broker.held:
            raise QuotaHold(self.broker.held)
        if self.broker.settings.backlogQuotaCheckEnabled:
            backlog_quota.check(self)

    def add_producer(self, producer: Producer) -> bool:
        if is_pipeline_producer(producer.name):
            if producer.source == self.broker.settings.clusterName:
                raise NotAllowed(
                    f"this broker is cluster {producer.source} itself, or has its name: a message is never copied to"
                    " the cluster that it comes from"
                )
            producer.replicated = self._replicated_entries()
        elif is_pulsar_replicator(producer.name):
            if self._pulsar_replicated is None:
                self._pulsar_replicated = PulsarReplicatedEntries(self.broker.storage, self.record.id)
            producer.replicated = self._pulsar_replicated
        return super().add_producer(producer)

    def _replicated_entries(self) -> ReplicatedEntries:
        # Loaded on first use: most topics have no replicated entries, and until then none can change.
        if self._replicated is None:
            self._replicated = ReplicatedEntries(self.broker.storage, self.record.id)
        return self._replicated

    def last_sequence_id(self, producer_name: str) -> int:
        if is_pipeline_producer(producer_name):
            return self._replicated_entries().last_sequence(producer_name)
        return -1 if self.deduplication is None else self.deduplication.last_sequence(producer_name)

    def apply_rates(self) -> None:
        super().apply_rates()
        for subscription in self._subscriptions.values():
            self.limits.throttle(subscription, self.policies)

    def apply_policies(self, policies: Policies) -> None:
        super().apply_policies(policies)
        for subscription in self._subscriptions.values():
            subscription.limits_changed()
        if policies.deduplication == (self.deduplication is not None):
            return
        # Sequence ids from before it was switched off are out of date when it is on again.
        delete_all(self.broker.commits.batch(), keys.DEDUPLICATION, self.record.id)
        self.deduplication = Deduplication(None, self.record.id) if policies.deduplication else None

    # -- delayed messages

    @property
    def has_delayed(self) -> bool:
        return self.delayed.next_ms is not None

    def wake_delayed(self) -> None:
        next_ms = self.delayed.next_ms
        if next_ms is None or self.is_unloaded:
            return
        if next_ms > self.broker.now_ms():
            self._delay.move(next_ms)  # the clock may have been set back
            return
        due = self.delayed.take_due(self.broker.now_ms())
        self._delay.move(self.delayed.next_ms)
        for subscription in self._subscriptions.values():
            try:
                for entry_id in due:
                    subscription.wake(entry_id)
            except Exception as error:  # the entries are taken: the other subscriptions would wait for good
                self.broker.fault("timer", error, f"delayed messages of {subscription.name} of {self.name.full}")
            if subscription.dispatcher is not None:
                subscription.schedule_pump()

    # -- subscriptions

    def _load_subscriptions(self) -> None:
        for name, found, cursor in self.damaged.load():
            self._subscriptions[name] = Subscription(self, name, found, cursor, durable=True)
        self._delay.move(self.delayed.next_ms)  # also without subscriptions: later ones rely on it

    def subscribe(self, consumer: Consumer, request: SubscribeRequest) -> TopicSubscription:
        subscription = super().subscribe(consumer, request)
        if is_of_replication(consumer.metadata):
            assert isinstance(subscription, Subscription)
            self.limits.throttle(subscription, self.policies)
        return subscription

    def _find_or_create(self, request: SubscribeRequest) -> Subscription:
        self.damaged.check(request.name)
        existing = self._subscriptions.get(request.name)
        if existing is not None:
            if existing.durable != request.durable:
                kind = "durable" if existing.durable else "non-durable"
                raise NotAllowed(f"topic {self.name.full} already has a {kind} subscription {request.name!r}")
            return existing
        if request.durable and not self.policies.auto_subscription_creation:
            raise SubscriptionNotFound(
                f"subscription {request.name!r} does not exist on topic {self.name.full}"
                " and auto-creation of subscriptions is off"
            )
        return self.create_subscription(request)

    def create_subscription(self, request: SubscribeRequest) -> Subscription:
        if is_replication_subscription(request.name):
            raise NotAllowed(f"subscription name {request.name!r} is reserved: the broker creates those of replication")
        self.damaged.check(request.name)
        self.check_subscription_limit()
        return self._create(request)

    def _create(self, request: SubscribeRequest) -> Subscription:
        start = self._start_of(request)
        mark_delete = start - 1
        if not request.durable:
            cursor = Cursor(None, 0, mark_delete)
            subscription = Subscription(self, request.name, SubscriptionRecord(id=0), cursor, durable=False)
        else:
            batch = self.broker.commits.batch()
            subscription_record = SubscriptionRecord(
                id=self.broker.next_id(batch),
                properties=request.properties,
                replicated=request.replicated,
                begins=start if self.policies.keeps_unhandled else 0,
            )
            cursor = Cursor(self.broker.commits, subscription_record.id, mark_delete, self.broker.storage)
            cursor.create(batch)
            self.broker.commits.put(self._subscription_key(request.name), record.encode(subscription_record))
            subscription = Subscription(self, request.name, subscription_record, cursor, durable=True)
        self._subscriptions[request.name] = subscription
        self.limits.throttle(subscription, self.policies)
        if subscription.record.replicated:
            self.broker.replication.topic_changed(self.name)
        return subscription

    def start_over(self, request: SubscribeRequest) -> None:
        """Creates a subscription again whose record was given up, also one of replication."""
        self._create(request)

    def begin_replication(self, name: str, *, from_earliest: bool) -> None:
        """Creates the subscription with the position of replication to a remote cluster."""
        if name in self.damaged:
            return  # replication waits: its position is not known
        self._create(SubscribeRequest(name, from_earliest=from_earliest))

    def end_replication(self, name: str) -> None:
        """Deletes the subscription of a remote cluster that the topic is no longer replicated to."""
        subscription = self._subscriptions[name]
        subscription.disconnect_consumers()
        self._drop(subscription)

    def _start_of(self, request: SubscribeRequest) -> int:
        """The first entry of a new subscription."""
        log = self.log
        if request.rollback_ms > 0:
            return log.first_published_from(self.broker.now_ms() - request.rollback_ms)
        if request.start is not None and not request.durable:
            return self.entry_after(*request.start)
        return log.first if request.from_earliest else log.confirmed + 1

    def entry_after(self, ledger_id: int, entry_id: int) -> int:
        """The first entry after a client's message id; ids of other ledgers are before or after all entries."""
        if ledger_id == _LATEST or ledger_id > self.ledger_id:
            return self.log.confirmed + 1
        if ledger_id < self.ledger_id:
            left = self.record.former_ledgers.get(ledger_id)
            if left is None:
                return self.log.first
            entry_id = min(entry_id, left - 1)
        return min(max(entry_id + 1, self.log.first), self.log.confirmed + 1)

    def delete_subscription(self, name: str, *, force: bool = False) -> None:
        if name not in self.damaged:
            super().delete_subscription(name, force=force)
            return
        if not force:
            self.damaged.check(name)
        self.damaged.erase(name, self.broker.commits.batch())

    def _drop(self, subscription: TopicSubscription) -> None:
        assert isinstance(subscription, Subscription)
        del self._subscriptions[subscription.name]
        if self.broker.damage:
            self.broker.damage.clear("subscription", *subscription.where)
        if subscription.durable:
            self._erase(subscription, self.broker.commits.batch())
        if subscription.record.replicated:
            self.broker.replication.topic_changed(self.name)

    def drop_if_deserted(self, subscription: Subscription) -> None:
        """Deletes a non-durable subscription whose consumer did not reconnect."""
        if not subscription.consumers and self._subscriptions.get(subscription.name) is subscription:
            self._drop(subscription)

    def _erase(self, subscription: Subscription, batch: Batch) -> None:
        batch.delete(self._subscription_key(subscription.name))
        subscription.cursor.delete(batch)

    def crash_attributed(self, subscription: str, consumer: Consumer, entry_id: int) -> None:
        self.broker.event(
            CRASH_ATTRIBUTED,
            position=f"{self.ledger_id}:{entry_id}",
            topic=self.name.full,
            subscription=subscription,
            consumer=consumer.name,
            client=consumer.peer.address,
        )

    def save_subscription(self, subscription: Subscription, subscription_record: SubscriptionRecord) -> None:
        report_subscription(
            self.broker.event, self.name.full, subscription.name, subscription.record, subscription_record
        )
        replicates_differently = subscription.record.replicated != subscription_record.replicated
        subscription.record = subscription_record
        if replicates_differently:
            self.broker.replication.topic_changed(self.name)
        if subscription.durable:
            self.broker.commits.put(self._subscription_key(subscription.name), record.encode(subscription_record))

    def _subscription_key(self, name: str) -> bytes:
        return keys.under(keys.SUBSCRIPTION, self.record.id, name.encode())

    # -- termination and deletion

    def terminate(self) -> int:
        """Rejects messages from now on, and notifies consumers that have read everything. Returns the last entry."""
        if not self.record.terminated:
            self.record.terminated = True
            self._save_record()
            for producer in list(self.producers.by_name.values()):
                producer.peer.close_producer(producer)
                self.producers.remove(producer)
            self.broker.commits.after(self._ended)
        return self.log.last

    def _ended(self) -> None:
        self.is_ended = True
        for subscription in self._subscriptions.values():
            subscription.schedule_pump()

    def check_replicated(self) -> None:
        for subscription in self._subscriptions.values():
            if subscription.is_internal and subscription.backlog:
                raise TopicBusy(
                    f"Topic {self.name.full} has {subscription.backlog} messages that cluster"
                    f" {remote_of(subscription.name)} does not have yet:"
                    " deleting with force loses them there"
                )

    def delete(self, batch: Batch) -> None:
        """Deletes the topic from disk, in the transaction of `batch`."""
        self.disconnect_all()
        for subscription in self._subscriptions.values():
            self._erase(subscription, batch)
        self._subscriptions.clear()
        self.damaged.erase_all(batch)
        batch.delete(keys.named(keys.TOPIC, self.name.full))
        self._note_deleted(self.log.size_from(self.log.first))
        self.log.delete(batch)
        self.delayed.delete(batch)
        for kind in (keys.DEDUPLICATION, keys.REPLICATED, keys.PULSAR_REPLICATED):
            delete_all(batch, kind, self.record.id)

    def _save_epoch(self) -> None:
        self.record.epoch = self.epoch
        self._save_record()

    def _save_record(self) -> None:
        self.broker.commits.put(keys.named(keys.TOPIC, self.name.full), record.encode(self.record))

    # -- limits over time

    def expire(self, now_ms: int) -> None:
        """Acknowledges messages older than the time to live, in every subscription."""
        ttl_ms = self.policies.ttl_ms
        if ttl_ms <= 0:
            return
        behind = [s for s in self._subscriptions.values() if s.durable and s.backlog]
        if behind:
            first_alive = self.log.first_received_after(now_ms - ttl_ms)
            for subscription in behind:
                if self.policies.dead_letter_expired and not subscription.is_internal:
                    text = f"It was older than {ttl_ms} ms."
                    dead_letter_up_to(self, subscription, first_alive - 1, Reason.Expired, text)
                else:
                    subscription.expire(first_alive - 1)

    def trim(self, now_ms: int) -> bool:
        """Deletes entries that every durable subscription has acknowledged and retention does not keep."""
        keep_from = retention.first_kept(self, now_ms)
        if keep_from <= self.log.first:
            return False
        self._trim_to(keep_from, self.broker.commits.open().batch)
        return True

    @property
    def read_from(self) -> int:
        """The first entry that a durable subscription was to read; one past the last if there is none."""
        durable = (s for s in self._subscriptions.values() if s.durable and not s.is_internal)
        return min((s.record.begins for s in durable), default=self.log.last + 1)

    def _trim_to(self, first: int, batch: Batch) -> None:
        before = self.log.size_from(self.log.first)
        self.log.trim(batch, first)
        self._note_deleted(before - self.log.size_from(first))

    def _note_deleted(self, size: int) -> None:
        self.broker.deleted_space.add(self.record.id, size, self.broker.clock.monotonic_ms())

    def truncate(self) -> None:
        """Deletes every entry, whatever retention or subscriptions would keep."""
        log = self.log
        for subscription in self._subscriptions.values():
            subscription.advance(log.confirmed)
        if log.first <= log.confirmed:
            self._trim_to(log.confirmed + 1, self.broker.commits.batch())

    def forget_idle_producers(self, now_ms: int) -> None:
        settings, connected = self.broker.settings, set(self.producers.by_name)
        patience_ms = settings.brokerDeduplicationProducerInactivityTimeoutMinutes * 60_000
        producers_max = settings.brokerDeduplicationMaxNumberOfProducers
        for known in (self.deduplication, self._replicated, self._pulsar_replicated):
            if known is not None:
                known.forget_idle(self.broker.commits.open().batch, now_ms, patience_ms, connected, producers_max)

    def invariants(self) -> None:
        assert self.log.first <= self.log.confirmed + 1 <= self.log.last + 1
        for subscription in self._subscriptions.values():
            subscription.invariants()
