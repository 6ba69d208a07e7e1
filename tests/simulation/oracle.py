"""The test oracle: a model of every subscription, and a check of every frame of the broker.

A model knows the acknowledged, failed and in-flight entries. It is compared with the broker after every step, so that a
deviation is found where it happens; frames to clients are compared with the durable state. `failure_model` follows
failed messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.policies import QuotaPolicy
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.single_messages import parse_id
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import Producer
from magnetar.deadletter.topics import is_dead_letter_or_retry_topic
from magnetar.session.consumer import signed
from magnetar.session.handles import ConsumerHandle, SessionState, bits_of, request_id_of
from magnetar.wire import schema_pb2 as pb

from .failure import expect
from .failure_model import ORDERED, FailureModel
from .model import Model
from .scenario import REMOTE
from .snapshot import Failed, subscription_state_of

if TYPE_CHECKING:
    from .client import Connection
    from .world import World

Command = pb.BaseCommand
Sender = tuple[ConsumerHandle, list[int]]  # a consumer, and the entries it holds
_NO_ENTRY = (1 << 64) - 1
_TERMINATED = 15
_WAITS_FOR_THE_DISK = (
    Command.SUCCESS,
    Command.PRODUCER_SUCCESS,
    Command.ACK_RESPONSE,
    Command.PARTITIONED_METADATA_RESPONSE,
)


class Oracle:
    def __init__(self, world: World) -> None:
        self._world = world
        self.failure_model = FailureModel(world)
        self.models: dict[Subscription, Model] = {}
        self.receipts: dict[tuple[int, int], bytes] = {}
        self.ended: set[int] = set()  # ledgers whose end was announced to a consumer
        self._requests: dict[tuple[Connection, int], int] = {}
        self._sends: dict[Producer, deque[tuple[int, bytes]]] = {}
        self._permits: dict[Consumer, int] = {}
        self._subscribed: set[Consumer] = set()

    def broker_stopped(self) -> None:
        self.models.clear()
        self._requests.clear()
        self._sends.clear()
        self._permits.clear()
        self._subscribed.clear()
        self._world.dead_letters.forget()

    # -- commands to the broker

    def before(self, connection: Connection, command: Command) -> Sender | None:
        """The consumer of a command, and the entries it holds before the broker handles it."""
        body = _consumer_command(command)
        handle = None if body is None else connection.session.consumers.get(body.consumer_id)
        return None if handle is None else (handle, list(handle.consumer.pending))

    def arrived(self, connection: Connection, command: Command, sender: Sender | None) -> None:
        """The broker has handled the command."""
        if sender is not None:
            self._handled(command, *sender)
        elif command.type == Command.SUBSCRIBE:
            self._subscribes(connection, command.subscribe)
        request_id = request_id_of(command)
        if request_id is not None and (command.type != Command.ACK or command.ack.HasField("request_id")):
            self._requests[connection, request_id] = self._world.steps.decided

    def _handled(self, command: Command, handle: ConsumerHandle, held: list[int]) -> None:
        subscription, topic = handle.consumer.subscription, handle.topic
        if not isinstance(subscription, Subscription) or not isinstance(topic, PersistentTopic):
            return
        model = self.models.get(subscription)
        if command.type == Command.FLOW:
            permits = self._permits.get(handle.consumer, 0)
            self._permits[handle.consumer] = permits + command.flow.messagePermits
        elif model is None:
            return
        elif command.type == Command.ACK:
            self._ack(command.ack, topic, subscription, model)
        elif command.type == Command.SEEK:
            self._seek(command.seek, topic, subscription, model)
        else:
            redeliver = command.redeliverUnacknowledgedMessages
            self.failure_model.nack(redeliver, topic, subscription, model, handle.consumer, held)

    def _subscribes(self, connection: Connection, request: pb.CommandSubscribe) -> None:
        """The policy of the latest consumer applies."""
        handle = connection.session.consumers.get(request.consumer_id)
        if handle is None or handle.consumer in self._subscribed:
            return
        self._subscribed.add(handle.consumer)
        subscription, topic = handle.consumer.subscription, handle.topic
        declared = {pair.key.removeprefix("deadLetterPolicy."): pair.value for pair in request.metadata}
        if declared and isinstance(subscription, Subscription) and isinstance(topic, PersistentTopic):
            policy = DeadLetterPolicy(
                int(declared["maxRedeliverCount"]),
                declared.get("deadLetterTopic", ""),
                declared.get("initialSubscriptionName", ""),
            )
            model = self.model_of(topic, subscription)
            model.rules = model.rules._replace(policy=policy, source=f"consumer {request.consumer_name}")

    def sending(self, connection: Connection, command: Command, blob: bytes) -> None:
        """A SEND is about to be handled."""
        send = command.send
        handle = connection.session.producers.get(send.producer_id)
        if handle is not None and handle.is_ready and connection.session.state is SessionState.CONNECTED:
            self._world.durable.sent[handle.producer.name, send.sequence_id] += 1
            self._sends.setdefault(handle.producer, deque()).append((send.sequence_id, blob))

    def _ack(self, ack: pb.CommandAck, topic: PersistentTopic, subscription: Subscription, model: Model) -> None:
        is_cumulative = ack.ack_type == pb.CommandAck.Cumulative
        if is_cumulative and subscription.type not in ORDERED:
            return
        takes_parts = self._world.settings.acknowledgmentAtBatchIndexLevelEnabled
        for message_id in ack.message_id:
            entry, index = parse_id(message_id.entryId)
            if message_id.ledgerId != topic.ledger_id:
                continue
            if entry > topic.log.confirmed or (is_cumulative and index >= 0):
                return
            if index >= 0:
                messages = self.failure_model.messages_in(topic, subscription, entry)
                model.ack_part(entry, ~(1 << index), messages)
                self.failure_model.return_nacked(topic, subscription, model, entry)
                continue
            open_bits = bits_of(message_id.ack_set)
            if is_cumulative:
                model.ack_up_to(entry - 1 if open_bits else entry)
            if not open_bits:
                model.ack(entry)
            elif takes_parts:
                model.ack_part(entry, open_bits, message_id.batch_size)
                self.failure_model.return_nacked(topic, subscription, model, entry)

    def _seek(self, seek: pb.CommandSeek, topic: PersistentTopic, subscription: Subscription, model: Model) -> None:
        self._world.dead_letters.sought(model.id, self._world.steps.decided)
        log = topic.log
        if seek.HasField("message_id"):
            target = seek.message_id
            entry = log.first if signed(target.ledgerId) < topic.ledger_id else log.confirmed + 1
            if target.ledgerId == topic.ledger_id:
                entry = min(max(target.entryId, log.first), log.confirmed + 1)
            model.reset(entry - 1)
            stored = self._world.durable.entries.get((target.ledgerId, target.entryId))
            if target.ack_set and stored is not None and log.first <= target.entryId <= log.confirmed:
                model.ack_part(target.entryId, bits_of(target.ack_set), stored.messages)
            return
        entry = subscription.cursor.mark_delete + 1
        at, before = (self._world.durable.entries.get((topic.ledger_id, e)) for e in (entry, entry - 1))
        wanted = seek.message_publish_time
        expect(entry > log.confirmed or (at and at.publish_ms >= wanted), f"seek to {wanted} went to {at}")
        expect(entry <= log.first or (before and before.publish_ms < wanted), f"seek to {wanted} passed {before}")
        model.reset(entry - 1)

    # -- frames from the broker

    def sent(self, connection: Connection, command: Command, blob: bytes | None) -> None:
        if command.type == Command.MESSAGE:
            assert blob is not None
            self._message(connection, command.message, blob)
        elif command.type == Command.SEND_RECEIPT:
            self._receipt(connection, command.send_receipt)
        elif command.type == Command.SEND_ERROR:
            self._send_error(connection, command.send_error)
        elif command.type == Command.REACHED_END_OF_TOPIC:
            self._end_of_topic(connection, command.reachedEndOfTopic.consumer_id)
        elif command.type in _WAITS_FOR_THE_DISK:
            self._reply(connection, command)

    def _reply(self, connection: Connection, command: Command) -> None:
        request_id = request_id_of(command)
        assert request_id is not None
        if command.type == Command.ACK_RESPONSE and command.ackResponse.HasField("error"):
            return
        needed = self._requests.get((connection, request_id), 0)
        steps = self._world.steps
        name = Command.Type.Name(command.type)
        expect(steps.synced >= needed, f"{name} was sent when group {steps.synced} of {needed} was durable")

    def _receipt(self, connection: Connection, receipt: pb.CommandSendReceipt) -> None:
        handle = connection.session.producers[receipt.producer_id]
        if handle.producer not in self._sends:
            return  # malformed input
        sequence_id, blob = self._sends[handle.producer].popleft()
        name = handle.producer.name
        expect(sequence_id == receipt.sequence_id, f"receipt for {receipt.sequence_id} of {name}, not {sequence_id}")
        if not isinstance(handle.topic, PersistentTopic):
            return
        position = (receipt.message_id.ledgerId, receipt.message_id.entryId)
        durable = self._world.durable
        if position[1] == _NO_ENTRY:
            expect(position[0] == _NO_ENTRY, f"the duplicate {sequence_id} of {name} has half a position: {position}")
            highest = durable.highest.get((handle.topic.ledger_id, name), -1)
            expect(
                highest >= sequence_id,
                f"{sequence_id} of {name} is no duplicate, {highest} is the last one",
            )
            return
        stored = durable.entries.get(position)
        if stored is None:
            expect(position[1] < handle.topic.log.first, f"receipt for {position}, which is not durable")
        expect(stored is None or stored.blob == blob, f"receipt for {position}, where another message is stored")
        self.receipts[position] = blob

    def _send_error(self, connection: Connection, error: pb.CommandSendError) -> None:
        handle = connection.session.producers.get(error.producer_id)
        if handle is None or handle.producer not in self._sends:
            return  # malformed input
        waiting = self._sends[handle.producer]
        if any(sequence_id == error.sequence_id for sequence_id, _ in waiting):
            expect(error.error == _TERMINATED, f"send error {error.error}: {error.message}")
            self._sends[handle.producer] = deque(s for s in waiting if s[0] != error.sequence_id)

    def _message(self, connection: Connection, message: pb.CommandMessage, blob: bytes) -> None:
        handle = connection.session.consumers[message.consumer_id]
        consumer, topic = handle.consumer, handle.topic
        subscription = consumer.subscription
        if not isinstance(topic, PersistentTopic) or not isinstance(subscription, Subscription):
            return
        model = self.models.get(subscription)
        if model is None:
            model = self.models[subscription] = Model(subscription_state_of(subscription))
        if not subscription.durable and subscription.cursor.mark_delete >= topic.log.first - 1:
            model.ack_up_to(topic.log.first - 1)  # a reader does not prevent the trimming of its topic
        entry, index = parse_id(message.message_id.entryId)
        what = f"entry {topic.ledger_id}:{entry} to {consumer.name} of {subscription.name} ({subscription.type.name})"
        expect(message.message_id.ledgerId == topic.ledger_id, f"{what}: the message id has another ledger")
        stored = self._world.durable.entries.get((topic.ledger_id, entry))
        expect(stored is not None, f"{what}: not durable")
        assert stored is not None
        if index < 0:
            expect(stored.blob == blob, f"{what}: the bytes differ from those stored")
        expect(connection.session.writable, f"{what}: the transport is full")
        expect(not model.is_acked(entry), f"{what}: already acknowledged")
        expect(not model.end_announced, f"{what}: the end of the topic was announced before")
        if self.failure_model.is_next_single(subscription, model, entry, index, stored.blob, blob, what):
            self._check_single(model, consumer, entry, index, message, what)
            return
        count = model.count(entry, stored.messages) if index < 0 else model.failures[entry].count_of(index)
        expect(message.redelivery_count == count, f"{what}: count {message.redelivery_count}, expected {count}")
        open_bits = bits_of(message.ack_set) if message.ack_set else None
        if index < 0:
            expected = model.partial.get(entry)
            expect(open_bits == expected, f"{what}: open {open_bits}, expected {expected}")
        expect(model.redelivery_for is None, f"{what}: a requested redelivery of everything is not handled yet")
        failed = model.failures.get(entry, Failed())
        # A back-off takes its time, so it is over early by a clock that was set back since.
        is_over = failed.due_ms <= self._world.latest_ms or failed.last_ms <= self._world.set_back_from_ms
        expect(is_over, f"{what}: backs off until {failed.due_ms}")
        if subscription.type in ORDERED:
            self._check_order(model, consumer, entry, what)
        else:
            expect(entry not in model.in_flight, f"{what}: already in flight")
            expect(stored.deliver_at_ms <= self._world.latest_ms, f"{what}: delayed until {stored.deliver_at_ms}")
        if subscription.type is SubscriptionType.Key_Shared:
            self._check_key_order(topic, model, consumer, entry, stored.key, what)
        self.failure_model.check_isolation(subscription, model, consumer, entry, what)
        permits = self._permits.get(consumer, 0)
        expect(permits > 0, f"{what}: the consumer has {permits} permits")
        model.in_flight[entry] = consumer
        model.delivered.add(entry)
        if index < 0:
            self._permits[consumer] = permits - (stored.messages if open_bits is None else open_bits.bit_count())
        else:
            model.singles[entry], model.unsent[entry] = 0, model.open_bits(entry, stored.messages)
            self._check_single(model, consumer, entry, index, message, what)

    def _check_single(
        self, model: Model, consumer: Consumer, entry: int, index: int, message: pb.CommandMessage, what: str
    ) -> None:
        """One of the single messages of a failed batch: each open one comes once, with its own count."""
        count = model.failures[entry].count_of(index)
        expect(message.redelivery_count == count, f"{what}: {index} has count {message.redelivery_count}, not {count}")
        expect(model.in_flight[entry] is consumer, f"{what}: {index} goes to another consumer than the others")
        expect(bool(model.unsent[entry] >> index & 1), f"{what}: {index} is acknowledged, or was sent before")
        model.unsent[entry] &= ~(1 << index)
        self._permits[consumer] -= 1

    def _check_order(self, model: Model, consumer: Consumer, entry: int, what: str) -> None:
        if any(holder is not consumer for holder in model.in_flight.values()):
            model.in_flight.clear()  # failover: the new active consumer starts with the first open entry
        expect(entry == model.first_open(), f"{what}: {model.first_open()} comes first")

    def _check_key_order(
        self, topic: PersistentTopic, model: Model, consumer: Consumer, entry: int, key: bytes, what: str
    ) -> None:
        if consumer.allow_out_of_order:
            return
        durable = self._world.durable
        for other in durable.by_key[topic.ledger_id, key]:
            holder = model.in_flight.get(other)
            expect(holder in (None, consumer), f"{what}: {holder and holder.name} holds {other} of key {key!r}")
            if other < entry and other >= topic.log.first and holder is None and not model.is_acked(other):
                is_delayed = durable.entries[topic.ledger_id, other].deliver_at_ms > 0
                has_backed_off = model.failures.get(other, Failed()).due_ms > 0
                expect(is_delayed or has_backed_off, f"{what}: {other} of key {key!r} comes first")

    def _end_of_topic(self, connection: Connection, consumer_id: int) -> None:
        handle = connection.session.consumers[consumer_id]
        topic, subscription = handle.topic, handle.consumer.subscription
        if isinstance(topic, PersistentTopic) and isinstance(subscription, Subscription):
            ledger = topic.ledger_id
            state = self._world.durable.boundary.before.get(topic.name.full)
            is_durable = state is not None and state.ledger == ledger and state.is_terminated
            expect(is_durable, f"the end of {topic.name.full} was announced before it was durable")
            last = self._world.durable.last_of.get(ledger, -1)
            expect(topic.log.last == last, f"the end of {topic.name.full} was announced before its last entry")
            expect(subscription.cursor.holes(last) == 0, "the end of the topic was announced with a backlog")
            self.ended.add(ledger)
            self.models[subscription].end_announced = True

    # -- after every step

    def check(self, *, maintained: bool) -> None:
        """Compares every subscription with its model. `maintained`: expiry, quota or trim may have moved cursors."""
        models, self.models = self.models, {}
        for topic in self._world.broker.topics.values():
            if not isinstance(topic, PersistentTopic):
                continue
            self._check_replication(topic)
            for subscription in topic.cursors:
                model = models.get(subscription) or self._new_model(topic, subscription)
                self.models[subscription] = model
                self._compare(topic, subscription, model, maintained)

    def _check_replication(self, topic: PersistentTopic) -> None:
        """GR1: the replication cursor exists exactly as long as the topic. Dead letters are not replicated."""
        is_expected = self._world.is_replicated and not is_dead_letter_or_retry_topic(topic.name)
        expect(
            (topic.replicator(REMOTE) is not None) == is_expected,
            f"{topic.name.full} has the subscriptions {sorted(topic.subscriptions)}, replicated: {is_expected}",
        )

    def model_of(self, topic: PersistentTopic, subscription: Subscription) -> Model:
        model = self.models.get(subscription)
        if model is None:
            model = self.models[subscription] = self._new_model(topic, subscription)
        return model

    def _new_model(self, topic: PersistentTopic, subscription: Subscription) -> Model:
        """The model of a subscription that was just created, or whose topic was just opened."""
        state = self._world.base.get(topic.name.full)
        if state is not None and state.ledger == topic.ledger_id and subscription.durable:
            known = state.subscriptions.get(subscription.name)
            if known is not None and known.id == subscription.record.id:
                return Model(known)
        log, mark = topic.log, subscription.cursor.mark_delete
        expect(log.first - 1 <= mark <= log.confirmed, f"new subscription {subscription.name} starts after {mark}")
        expect(mark == -1 or not subscription.is_internal, f"replication of {topic.name.full} starts after {mark}")
        return Model(subscription_state_of(subscription))

    def _compare(self, topic: PersistentTopic, subscription: Subscription, model: Model, maintained: bool) -> None:
        what = f"{topic.name.full}/{subscription.name}"
        found = subscription_state_of(subscription)
        if found.mark > model.mark and (maintained or not subscription.durable):
            self._adopt(topic, subscription, model, found.mark, maintained)
        if found != model.state():
            expect(False, f"{what} is at {found}, expected {model.state()}")
        if subscription.durable:
            expect(topic.log.first - 1 <= found.mark, f"{what}: trimmed to {topic.log.first}, acked to {found.mark}")
        in_flight = {entry: consumer for consumer in subscription.consumers for entry in consumer.pending}
        for entry, consumer in in_flight.items():
            if entry not in model.delivered and model.in_flight.get(entry) is not consumer:
                expect(False, f"{what}: {entry} is in flight to {consumer.name} but was never sent")
        model.in_flight = in_flight
        for entry, unsent in model.unsent.items():
            expect(not unsent, f"{what}: of batch {entry}, messages {unsent:b} were not sent with the others")
        model.unsent.clear()
        model.singles = {entry: bits for entry, bits in model.singles.items() if entry in model.in_flight}
        found_singles = {entry: bits for one in subscription.consumers for entry, bits in one.singles.items()}
        expect(model.singles == found_singles, f"{what}: single messages {found_singles}, expected {model.singles}")
        self.failure_model.check(subscription, model, what)
        model.delivered.clear()

    def _adopt(
        self, topic: PersistentTopic, subscription: Subscription, model: Model, mark: int, maintained: bool
    ) -> None:
        """The broker itself acknowledged up to `mark`, which needs a reason."""
        last = max((e for e in range(model.mark + 1, mark + 1) if not model.is_acked(e)), default=-1)
        if last < 0:
            return
        if subscription.durable or last >= topic.log.first:
            # If the clock was set back, a later entry may have an earlier timestamp, and entries before it expire with
            # it. Dead letters are written a few per turn, so that one may still be missing.
            end = topic.log.confirmed if topic.policies.dead_letter_expired else mark
            has_reason = any(self._may_expire(topic, entry) for entry in range(last, end + 1))
            expect(maintained and has_reason, f"{subscription.name} expired {last} for no reason")
        if subscription.durable and topic.policies.dead_letter_expired and not subscription.is_internal:
            for entry in range(model.mark + 1, mark + 1):
                self.failure_model.expire(topic, subscription, model, entry)
        model.ack_up_to(mark)

    def _may_expire(self, topic: PersistentTopic, entry: int) -> bool:
        stored = self._world.durable.entries.get((topic.ledger_id, entry))
        if stored is None:
            return False
        policies, now_ms = topic.policies, self._world.broker.now_ms()
        if policies.dead_letter_expired:
            now_ms = self._world.latest_ms  # the clock may be set back between two turns
        if policies.ttl_ms and stored.received_ms <= now_ms - policies.ttl_ms:
            return True
        evict = QuotaPolicy.consumer_backlog_eviction
        size_from_here = topic.log.size - stored.size_before
        if policies.quota_bytes_policy is evict and 0 < policies.quota_bytes < size_from_here:
            return True
        return policies.quota_ms_policy is evict and 0 < policies.quota_ms <= now_ms - stored.received_ms


def _consumer_command(
    command: Command,
) -> pb.CommandAck | pb.CommandSeek | pb.CommandFlow | pb.CommandRedeliverUnacknowledgedMessages | None:
    if command.type == Command.ACK:
        return command.ack
    if command.type == Command.SEEK:
        return command.seek
    if command.type == Command.FLOW:
        return command.flow
    if command.type == Command.REDELIVER_UNACKNOWLEDGED_MESSAGES:
        return command.redeliverUnacknowledgedMessages
    return None
