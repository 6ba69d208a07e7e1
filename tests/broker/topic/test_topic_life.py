"""A topic over time: deduplication, access modes, retention, time to live, quotas, limits, deletion."""

from __future__ import annotations

import pytest

from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import (
    ConsumerBusy,
    MagnetarError,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
    QuotaHold,
    TopicNotFound,
)
from magnetar.names import TopicName
from magnetar.storage.api import Space
from tests.broker.world import AccessMode, SubscriptionType, World

KB = b"x" * 1024


class TestDeduplication:
    def test_a_repeated_sequence_id_is_dropped_and_receipted(self) -> None:
        world = World(brokerDeduplicationEnabled=True)
        world.publish(3)
        world.publish(4)
        assert world.topic().log.last == 3
        assert world.client.receipted == [(0, 0, 0), (1, 1, 1), (2, 2, 2), *[(i, i, -1) for i in range(3)], (3, 3, 3)]

    def test_it_survives_a_restart(self) -> None:
        world = World(brokerDeduplicationEnabled=True)
        world.publish(3)
        again = world.restart(brokerDeduplicationEnabled=True)
        assert again.topic().last_sequence_id("p") == 2
        again.publish(5)
        assert again.topic().log.last == 4

    def test_inactive_producers_are_forgotten(self) -> None:
        world = World(brokerDeduplicationEnabled=True, brokerDeduplicationProducerInactivityTimeoutMinutes=60)
        producer = world.producer(name="idle")
        world.publish(1, producer=producer)
        world.publish(1)
        world.topic().producers.remove(producer)
        world.advance(minutes=50)
        assert world.topic().last_sequence_id("idle") == 0
        world.advance(minutes=20)
        assert world.topic().last_sequence_id("idle") == -1
        assert world.topic().last_sequence_id("p") == 0  # still connected


class TestAccessModes:
    def test_exclusive_blocks_others(self) -> None:
        world = World()
        world.producer(access_mode=AccessMode.Exclusive)
        with pytest.raises(ProducerBusy):
            world.producer(name="q")
        with pytest.raises(ProducerFenced):
            world.producer(name="q", access_mode=AccessMode.Exclusive)

    def test_a_replicator_can_distinguish_exclusive_access_from_a_name_in_use(self) -> None:
        world = World()
        name = "magnetar.repl.east/t/1"
        world.producer(name=name)
        with pytest.raises(ProducerBusy, match="already connected"):
            world.producer(name=name)
        world.producer("other", access_mode=AccessMode.Exclusive)
        with pytest.raises(ProducerFenced, match="has an exclusive producer"):
            world.producer("other", name=name)

    def test_a_producer_waiting_for_exclusive_access_gets_a_new_epoch(self) -> None:
        world = World()
        first = world.producer(access_mode=AccessMode.Exclusive)
        assert first.topic_epoch == 0
        ready: list[str] = []
        second = world.producer(name="q", access_mode=AccessMode.WaitForExclusive, on_ready=lambda: ready.append("q"))
        assert ready == []
        world.topic().producers.remove(first)
        assert ready == ["q"]
        assert second.topic_epoch == 1

    def test_fencing_disconnects_the_others_permanently(self) -> None:
        world = World()
        old = world.producer(access_mode=AccessMode.Exclusive)
        failed: list[MagnetarError] = []
        world.producer(name="w", access_mode=AccessMode.WaitForExclusive, on_failed=failed.append)
        world.producer(name="new", access_mode=AccessMode.ExclusiveWithFencing)
        assert world.client.closed == ["p"]
        assert isinstance(failed[0], ProducerFenced)
        with pytest.raises(ProducerFenced):
            world.producer(access_mode=AccessMode.Exclusive, topic_epoch=old.topic_epoch)
        world.topic().producers.close_all()
        with pytest.raises(ProducerFenced, match="is at epoch 1, the producer was at 0"):
            world.producer(access_mode=AccessMode.Exclusive, topic_epoch=old.topic_epoch)

    def test_epochs_survive_a_restart(self) -> None:
        world = World()
        world.producer(access_mode=AccessMode.Exclusive)
        again = world.restart()
        assert again.producer(access_mode=AccessMode.Exclusive).topic_epoch == 1

    def test_a_name_is_taken_unless_the_same_producer_reconnects(self) -> None:
        world = World()
        world.producer(name="given", name_is_given=True)
        with pytest.raises(ProducerBusy, match="'given' is already connected"):
            world.producer(name="given", name_is_given=True, epoch=1)
        world.producer(name="generated", name_is_given=False, epoch=0)
        world.producer(name="generated", name_is_given=False, epoch=1)
        assert world.client.closed == ["generated"]


class TestRetention:
    def test_fully_acknowledged_entries_are_deleted_after_the_open_time(self) -> None:
        world = World(managedLedgerMinLedgerRolloverTimeMinutes=10)
        world.consumer()
        world.publish(10)
        world.subscription().advance(5)
        world.advance(minutes=3)
        assert world.topic().log.first == 0
        world.advance(minutes=10)
        assert world.topic().log.first == 6
        assert [entry[0] for entry in world.topic().log.read(0, 100, 1 << 20)] == [6, 7, 8, 9]

    def test_ids_continue_after_a_full_trim_and_a_restart(self) -> None:
        world = World()
        world.consumer()
        world.publish(3, payload=KB)
        world.subscription().advance(2)
        world.advance(minutes=30)
        assert world.storage.scan(Space.ENTRIES, b"", b"\xff") == []
        size = world.topic().log.size
        again = world.restart()
        assert (again.topic().log.first, again.topic().log.last, again.topic().log.size) == (3, 2, size)
        again.publish(1)
        assert again.client.receipted == [(0, 0, 3)]

    def test_by_time(self) -> None:
        world = World(defaultRetentionTimeInMinutes=60, defaultRetentionSizeInMB=-1)
        world.publish(1)
        world.advance(minutes=59)
        world.publish(1)
        assert world.topic().log.first == 0
        world.advance(minutes=5)
        assert world.topic().log.first == 1

    def test_by_size(self) -> None:
        world = World(defaultRetentionTimeInMinutes=-1, defaultRetentionSizeInMB=1)
        world.publish(3000, payload=KB)
        world.advance(minutes=30)
        assert 1900 < world.topic().log.first < 2100

    def test_unlimited(self) -> None:
        world = World(defaultRetentionTimeInMinutes=-1, defaultRetentionSizeInMB=-1)
        world.publish(10)
        world.advance(days=3000)
        assert world.topic().log.first == 0

    def test_a_slow_subscription_keeps_everything(self) -> None:
        world = World()
        world.publish(10)
        world.consumer("slow")
        world.consumer("fast")
        world.subscription("fast").advance(9)
        world.advance(days=30)
        assert world.topic().log.first == 0

    def test_topics_not_opened_since_the_restart_are_trimmed_too(self) -> None:
        world = World()
        world.publish(5)
        again = world.restart()
        assert not again.broker.topics
        again.advance(minutes=30)
        again.advance(minutes=1)
        assert again.storage.scan(Space.ENTRIES, b"", b"\xff") == []

    def test_a_reader_at_a_trimmed_position_continues_with_the_rest(self) -> None:
        world = World()
        world.publish(5)
        reader = world.consumer("reader", type=SubscriptionType.Exclusive, durable=False, permits=0)
        world.advance(minutes=30)
        world.publish(2)
        world.subscription("reader").flow(reader, 10)
        world.settle()
        assert world.client.take() == [5, 6]


class TestTimeToLive:
    def test_old_messages_are_acknowledged_for_all_subscriptions(self) -> None:
        world = World(ttlDurationDefaultInSeconds=600, messageExpiryCheckIntervalInMinutes=1)
        world.consumer(permits=2)
        world.publish(5)
        world.advance(minutes=8)
        world.publish(1)
        assert world.subscription().backlog == 6
        world.advance(minutes=3)
        assert world.subscription().backlog == 1
        assert world.subscription().expired_messages == 5
        assert not world.subscription().places.has_in_flight


class TestBacklogQuota:
    LIMIT: dict[str, object] = {"backlogQuotaDefaultLimitBytes": 10 * 1100, "backlogQuotaCheckIntervalInSeconds": 60}  # noqa: RUF012

    def test_hold(self) -> None:
        world = World(backlogQuotaDefaultRetentionPolicy="producer_request_hold", **self.LIMIT)
        world.consumer(permits=0)
        world.publish(20, payload=KB)
        world.advance(minutes=2)
        assert world.client.closed == ["p"]
        with pytest.raises(QuotaHold, match="11000 bytes"):
            world.producer(name="q")
        world.subscription().advance(15)
        world.producer(name="q")

    def test_exception(self) -> None:
        world = World(backlogQuotaDefaultRetentionPolicy="producer_exception", **self.LIMIT)
        world.consumer(permits=0)
        world.publish(20, payload=KB)
        with pytest.raises(QuotaExceeded):
            world.producer(name="q")

    def test_eviction(self) -> None:
        world = World(backlogQuotaDefaultRetentionPolicy="consumer_backlog_eviction", **self.LIMIT)
        world.consumer(permits=0)
        world.publish(20, payload=KB)
        world.producer(name="q")
        world.advance(minutes=2)
        assert 8 <= world.subscription().backlog <= 10

    def test_by_time(self) -> None:
        world = World(
            backlogQuotaDefaultLimitSecond=300, backlogQuotaDefaultRetentionPolicy="consumer_backlog_eviction"
        )
        world.consumer(permits=0)
        world.publish(3)
        world.advance(minutes=4)
        world.publish(1)
        world.advance(minutes=2)
        assert world.subscription().backlog == 1

    def test_no_subscription_means_no_backlog(self) -> None:
        world = World(backlogQuotaDefaultRetentionPolicy="producer_exception", **self.LIMIT)
        world.publish(20, payload=KB)
        world.producer(name="q")


class TestLimits:
    def test_producers(self) -> None:
        world = World(maxProducersPerTopic=1)
        world.producer()
        with pytest.raises(ProducerBusy, match="has 1 producers, maxProducersPerTopic is 1"):
            world.producer(name="q")

    def test_producers_of_one_address(self) -> None:
        world = World(maxSameAddressProducersPerTopic=1)
        world.producer()
        with pytest.raises(ProducerBusy, match=r"has 1 producers from 10.0.0.1, maxSameAddress"):
            world.producer(name="q")

    def test_consumers(self) -> None:
        world = World(maxConsumersPerTopic=1)
        world.consumer()
        with pytest.raises(ConsumerBusy, match="has 1 consumers, maxConsumersPerTopic is 1"):
            world.consumer("other")

    def test_consumers_of_one_subscription(self) -> None:
        world = World(maxConsumersPerSubscription=1)
        world.consumer()
        with pytest.raises(ConsumerBusy, match="maxConsumersPerSubscription is 1"):
            world.consumer(name="second")

    def test_subscriptions(self) -> None:
        world = World(maxSubscriptionsPerTopic=1)
        world.consumer()
        with pytest.raises(NotAllowed, match="maxSubscriptionsPerTopic is 1"):
            world.consumer("other")

    def test_topics(self) -> None:
        world = World(maxTopicsPerNamespace=2)
        world.topic("a")
        world.topic("b")
        with pytest.raises(NotAllowed, match="has 2 topics, 1 more would exceed maxTopicsPerNamespace 2"):
            world.topic("c")


class TestDeletion:
    def test_nothing_is_left_on_disk_and_the_next_topic_has_another_ledger(self) -> None:
        world = World(brokerDeduplicationEnabled=True)
        before = world.storage.scan(Space.STATE, b"", b"\xff")
        world.consumer()
        world.publish(5)
        world.publish(1, producer=world.producer(name="q"), deliver_at_ms=world.clock.now_ms() + 1000)
        world.subscription().ack(3)
        world.settle()
        ledger_id = world.topic().ledger_id
        world.broker.delete_topic(TopicName.parse("t"), force=True)
        world.settle()
        left = world.storage.scan(Space.STATE, b"", b"\xff")
        assert [key for key, _ in left] == [key for key, _ in before]
        assert world.storage.scan(Space.ENTRIES, b"", b"\xff") == []
        assert world.topic().ledger_id > ledger_id

    def test_a_topic_in_use_needs_force(self) -> None:
        world = World()
        world.consumer()
        with pytest.raises(MagnetarError, match=r"active producers/subscriptions|client connected"):
            world.broker.delete_topic(TopicName.parse("t"))

    def test_a_missing_topic(self) -> None:
        world = World()
        with pytest.raises(TopicNotFound):
            world.broker.delete_topic(TopicName.parse("absent"))


def test_generated_names_are_never_reused() -> None:
    world = World()
    names = {world.broker.new_name() for _ in range(3)}
    again = world.restart()
    names |= {again.broker.new_name() for _ in range(3)}
    assert len(names) == 6


def test_a_subscription_of_another_durability_is_rejected() -> None:
    world = World()
    world.consumer("s", type=SubscriptionType.Exclusive, durable=False)
    with pytest.raises(NotAllowed, match="already has a non-durable subscription 's'"):
        world.topic()._find_or_create(SubscribeRequest("s", durable=True))


def test_bound_delay_refuses_and_stores_nothing() -> None:
    world = World(delayedDeliveryMaxDelayInMillis=1000, brokerDeduplicationEnabled=True)
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 1001)
    assert str(world.client.errors[0]) == "delay of 1001 ms exceeds delayedDeliveryMaxDelayInMillis 1000"
    assert world.topic().log.last == -1
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 1000)
    assert world.topic().log.last == 0


def test_a_terminated_topic_rejects_messages() -> None:
    world = World()
    world.publish(1)
    producer = world.producer(name="q")
    world.topic().terminate()
    world.publish(1, producer=producer)
    assert world.client.errors[0].wire_code == 15
    again = world.restart()
    assert again.topic().is_terminated
