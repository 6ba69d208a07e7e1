"""SP2, SP3: an entry that moves messages is stored with their acknowledgement, exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.broker import keys
from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.policies import DelayedDelivery, Overrides
from magnetar.broker.catalog.record import TopicRecord
from magnetar.broker.host import ManualHost
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import (
    MagnetarError,
    MetadataInvalid,
    NotAllowed,
    SubscriptionDamaged,
    SubscriptionNotFound,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.names import TopicName
from magnetar.pipeline_bounds import MOVED_MESSAGES, MOVED_RANGES
from magnetar.storage.api import Space
from magnetar.storage.rocks import RocksStorage
from magnetar.wire.batch import build_batch
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import MessageMetadata, SingleMessageMetadata
from tests.broker.moves.moving import at, entry, move, mover, moving_all, send, stored
from tests.broker.work import lines_run
from tests.broker.world import SubscriptionType, World


def prepared(messages: int = 10, *, batch: int = 1, **settings: object) -> World:
    """A topic with a durable subscription `s` and entries, and a target."""
    world = World(**settings)
    subscribe(world, "s")
    world.publish(messages, messages=batch)
    world.topic("out")
    return world


def subscribe(world: World, name: str, topic: str = "t", *, earliest: bool = True) -> None:
    world.topic(topic).create_subscription(SubscribeRequest(name, from_earliest=earliest))
    world.settle()


def open_of(world: World, name: str = "s", topic: str = "t") -> list[int]:
    subscription = world.subscription(name, topic)
    return [i for i in range(world.topic(topic).log.confirmed + 1) if not subscription.cursor.is_acked(i)]


def publish_batch(world: World, payloads: list[bytes]) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=len(payloads))
    singles = [(SingleMessageMetadata(payload_size=0), payload) for payload in payloads]
    publish = (0, 0, len(payloads), build_blob(metadata, build_batch(singles)), False, False)
    world.topic().publish(world.producer(), [publish])
    world.settle()


def _entries_of(world: World, topic: str) -> tuple[Space, bytes, bytes]:
    prefix = keys.ID.pack(world.topic(topic).record.id)
    return Space.ENTRIES, prefix, keys.after(prefix)


def refusal(world: World) -> MagnetarError:
    (error,) = world.client.errors
    return error


class TestMove:
    def test_sp2_the_entry_is_stored_and_the_messages_are_acknowledged(self) -> None:
        world = prepared()
        assert move(world, mover(world), "0-2,5", "7") == [0, 1]
        assert open_of(world) == [3, 4, 6, 8, 9]
        assert stored(world) == 2

    def test_sp2_the_subscription_of_one_name_and_no_other(self) -> None:
        world = prepared()
        subscribe(world, "other")
        move(world, mover(world), "0-9")
        assert open_of(world) == []
        assert len(open_of(world, "other")) == 10

    def test_sp3_a_move_for_all_subscriptions(self) -> None:
        world = prepared()
        subscribe(world, "other")
        world.subscription("other").ack(3)
        assert move(world, moving_all(world), "2-4") == [0]  # 3 waits for `s` still
        assert open_of(world) == open_of(world, "other") == [0, 1, 5, 6, 7, 8, 9]
        assert move(world, moving_all(world), "2-4") == [-1]

    def test_sp2_a_repeated_move_is_a_duplicate_whatever_its_producer_and_number(self) -> None:
        world = prepared()
        assert move(world, mover(world), "0-2,5") == [0]
        assert move(world, mover(world), "0-2,5", "1", "6") == [-1, -1, 1]
        assert stored(world) == 2
        assert world.client.errors == []

    def test_sp2_the_same_positions_twice_in_one_read(self) -> None:
        world = prepared()
        assert move(world, mover(world), "3", "3", "4", "3-4") == [0, -1, 1, -1]
        assert stored(world) == 2

    def test_sp2_a_move_of_which_a_part_is_acknowledged_is_refused(self) -> None:
        world = prepared()
        world.subscription().ack(1)
        assert move(world, mover(world), "0-2,5") == []
        assert "1 of 4 positions" in str(refusal(world))
        assert stored(world) == 0
        assert open_of(world) == [0, 2, 3, 4, 5, 6, 7, 8, 9]

    def test_sp2_the_same_in_one_read(self) -> None:
        world = prepared()
        assert move(world, mover(world), "3", "3-4", "7") == [0]
        assert len(world.client.errors) == 2  # nothing overtakes what was refused
        assert (stored(world), len(open_of(world))) == (1, 9)

    def test_sp2_a_producer_may_go_on_once_it_is_opened_again(self) -> None:
        world = prepared()
        world.subscription().ack(1)
        move(world, mover(world), "0-1", "7")
        assert move(world, mover(world), "7") == [0]

    def test_sp2_sequence_ids_deduplicate_nothing(self) -> None:
        world = prepared()
        world.broker.catalog.set_overrides(TopicName.parse("out"), Overrides(deduplication=True))
        producer = mover(world)
        receipts = [send(world, producer, [(0, 0, *entry(at(world, str(number)))[2:])]) for number in range(3)]
        assert [entry_id for ((_, _, entry_id),) in receipts] == [0, 1, 2]
        assert world.topic("out").last_sequence_id(producer.name) == -1

    def test_sp2_single_messages_of_a_batch(self) -> None:
        world = prepared(2, batch=6, acknowledgmentAtBatchIndexLevelEnabled=False)
        producer = mover(world)
        assert move(world, producer, "0.1-2", "0.4,1.0") == [0, 1]
        cursor = world.subscription().cursor
        assert (cursor.open_bits(0), cursor.open_bits(1)) == (0b101001, 0b111110)
        assert move(world, producer, "0.1-2", "0.0,0.3,0.5") == [-1, 2]
        assert open_of(world) == [1]

    def test_sp2_the_whole_of_a_batch_that_is_open_in_part_is_refused(self) -> None:
        world = prepared(2, batch=6)
        move(world, mover(world), "0.1")
        move(world, mover(world), "0-1")
        assert "entry 0 is acknowledged in part" in str(refusal(world))
        move(world, mover(world), "0.0-1")
        assert "1 of 2 positions" in str(refusal(world))
        assert (stored(world), open_of(world)) == (1, [0, 1])

    def test_sp3_a_batch_for_several_subscriptions_is_open_where_one_has_it_open(self) -> None:
        world = prepared(1, batch=4)
        subscribe(world, "other")
        world.subscription().ack(0, 0b1100, 4)
        world.subscription("other").ack(0, 0b1011, 4)
        assert move(world, moving_all(world), "0.0,0.2", "0") == [0]
        assert [world.subscription(name).cursor.open_bits(0) for name in ("s", "other")] == [0b1000, 0b1010]
        assert "acknowledged in part" in str(refusal(world))

    def test_sp2_source_and_target_may_be_the_same_topic(self) -> None:
        """A retry that fails again."""
        world = prepared(3)
        assert move(world, mover(world, target="t"), "0", "2", target="t") == [3, 4]
        assert open_of(world) == [1, 3, 4]

    def test_sp2_partitions_are_told_by_their_ledger(self) -> None:
        world = World()
        world.broker.catalog.create_partitioned(TopicName.parse("many"), 3, {})
        world.settle()
        for index in range(3):
            subscribe(world, "s", f"many-partition-{index}")
            world.publish(2, f"many-partition-{index}", producer=world.producer(f"many-partition-{index}", f"p{index}"))
        world.topic("out")
        producer = mover(world, "many")
        for index in (2, 0):
            assert len(send(world, producer, [entry(at(world, "0", f"many-partition-{index}"))])) == 1
        assert [open_of(world, topic=f"many-partition-{index}") for index in range(3)] == [[1], [0, 1], [1]]

    def test_sp2_ids_from_before_a_loss_are_still_known(self) -> None:
        world = prepared(5)
        topic = world.topic()
        topic.record.former_ledgers[topic.ledger_id] = 3
        former, topic.ledger_id = topic.ledger_id, 4711
        topic.record = TopicRecord(id=topic.record.id, ledger=4711, former_ledgers={former: 3})
        world.broker.catalog.topics[topic.name.full] = topic.record
        producer = mover(world)
        assert len(send(world, producer, [entry(f"{former}:0"), entry("4711:4"), entry(f"{former}:3")])) == 2
        assert "entry 3 of" in str(refusal(world)) and "the last one is 2" in str(refusal(world))
        assert open_of(world) == [1, 2, 3]


class TestPlaces:
    """A message is acknowledged wherever it is; the invariants are checked with every settled world."""

    @pytest.mark.parametrize("type", list(SubscriptionType))
    def test_sp2_messages_in_flight(self, type: SubscriptionType) -> None:
        world = prepared()
        consumer = world.consumer(type=type)
        assert len(consumer.pending) == 10
        assert move(world, mover(world), "0-3,6") == [0]
        assert list(consumer.pending) == [4, 5, 7, 8, 9]
        assert consumer.unacked == 5

    def test_sp2_a_blocked_consumer_goes_on(self) -> None:
        world = prepared(maxUnackedMessagesPerConsumer=4)
        consumer = world.consumer()
        assert list(consumer.pending) == [0, 1, 2, 3]
        move(world, mover(world), "0-2")
        assert list(consumer.pending) == [3, 4, 5, 6]

    def test_sp2_a_key_is_released(self) -> None:
        world = World()
        subscribe(world, "s")
        world.publish(4, keys=["a"])
        first = world.consumer(type=SubscriptionType.Key_Shared, name="first", permits=2)
        second = world.consumer(type=SubscriptionType.Key_Shared, name="second")
        held, free = (first, second) if first.pending else (second, first)
        world.topic("out")
        move(world, mover(world), "0-3")
        assert not held.pending and not free.pending
        assert world.subscription().places.keys is not None
        assert not world.subscription().places.keys.holders

    def test_sp2_pending_and_backing_off(self) -> None:
        world = prepared()
        subscription = world.subscription()
        subscription._save(backoff_ms=[60_000])
        consumer = world.consumer(permits=4)
        subscription.redeliver(consumer, [0, 1])
        world.settle()
        assert len(subscription.places.backing_off) == 2
        move(world, mover(world), "0,3-9")
        assert not subscription.cursor.state_of(0)
        assert open_of(world) == [1, 2]
        world.client.take()
        subscription.flow(consumer, 10)
        world.advance(minutes=2)
        assert world.client.take() == [1]

    def test_sp2_delayed(self) -> None:
        world = World()
        subscribe(world, "s")
        world.publish(3, deliver_at_ms=world.clock.now_ms() + 60_000)
        world.consumer()
        assert world.subscription().places.delayed == 3
        world.topic("out")
        move(world, mover(world), "0,2")
        world.advance(minutes=2)
        assert world.client.take() == [1]

    def test_sp2_the_rest_of_a_batch_that_failed_is_delivered_again(self) -> None:
        """Its other messages were nacked one by one, while that which is moved was still with the consumer."""
        world = World()
        subscribe(world, "s")
        publish_batch(world, [b"a", b"b", b"c"])
        world.subscription().set_dead_letter_policy(DeadLetterPolicy(5), "test")
        consumer = world.consumer()
        world.subscription().redeliver(consumer, [0])
        world.settle()
        assert consumer.singles == {0: 0}
        world.subscription().redeliver(consumer, [0], indexes={0: 0b011})
        world.settle()
        assert consumer.singles == {0: 0b011}
        world.client.take()
        world.topic("out")
        move(world, mover(world), "0.2")
        assert len(world.client.take()) == 2
        assert world.subscription().cursor.open_bits(0) == 0b011


class TestOnly:
    def target(self, world: World, *names: str) -> None:
        for name in names:
            subscribe(world, name, "out")

    def test_sp3_an_entry_for_one_subscription(self) -> None:
        world = prepared()
        self.target(world, "a", "b", "c")
        for name in "abc":
            world.consumer(name, "out", name=name)
        move(world, mover(world, only="b"), "0", "1", "5-6")
        assert [name for name, _ in world.client.delivered] == ["b", "b", "b"]
        assert [open_of(world, name, "out") for name in "abc"] == [[], [0, 1, 2], []]

    def test_sp3_it_holds_after_a_crash_at_any_write(self) -> None:
        world = prepared()
        self.target(world, "a", "b")
        world.publish(2, "out", producer=world.producer("out", "other"))
        producer = mover(world, only="b")
        world.topic("out").publish(producer, [entry(at(world, "0")), entry(at(world, "1"))])
        world.publish(1, "out", producer=world.topic("out").producers.by_name["other"])
        after = world.restart()
        assert [open_of(after, name, "out") for name in "ab"] == [[0, 1, 4], [0, 1, 2, 3, 4]]
        for one in (world, after):
            one.subscription("a", "out").ack(0)
            one.subscription("a", "out").ack(1)
            one.settle()
            assert one.subscription("a", "out").cursor.mark_delete == 3
            assert one.restart().subscription("a", "out").cursor.mark_delete == 3

    def test_sp3_the_first_position_of_a_subscription_may_be_withheld(self) -> None:
        """Then it is ahead of a mark-delete position that the disk does not have yet."""
        world = prepared()
        self.target(world, "a", "b")
        producer = mover(world, only="b")
        world.topic("out").publish(producer, [entry(at(world, "0"))])
        group = world.broker.commits.take()
        assert group is not None
        world.storage.write(group.batch)
        world.storage.sync()
        after = world.restart()
        after.broker.invariants()
        assert after.subscription("a", "out").cursor.mark_delete == 0
        assert after.subscription("a", "out").backlog == 0
        after.publish(1, "out")
        assert open_of(after.restart(), "a", "out") == [1]

    def test_sp3_a_subscription_that_comes_or_goes_before_the_entry_is_durable(self) -> None:
        world = prepared()
        self.target(world, "a", "b")
        world.topic("out").publish(mover(world, only="b"), [entry(at(world, "0"))])
        world.topic("out").delete_subscription("a")
        world.topic("out").create_subscription(SubscribeRequest("a", from_earliest=True))
        world.settle()
        assert open_of(world, "a", "out") == open_of(world.restart(), "a", "out") == [0]

    def test_sp3_a_topic_that_is_unloaded_meanwhile(self) -> None:
        world = prepared()
        self.target(world, "a", "b")
        world.topic("out").publish(mover(world, only="b"), [entry(at(world, "0"))])
        world.broker.unload(TopicName.parse("out"))
        world.settle()
        assert [open_of(world, name, "out") for name in "ab"] == [[], [0]]

    def test_sp3_a_named_subscription_that_is_gone_stores_nothing(self) -> None:
        world = prepared()
        self.target(world, "a", "b")
        producer = mover(world, only="b")
        world.topic("out").delete_subscription("b")
        assert move(world, producer, "0") == []
        assert isinstance(refusal(world), SubscriptionNotFound)
        assert (stored(world), len(open_of(world))) == (0, 10)


class TestRefused:
    @pytest.mark.parametrize(
        ("positions", "error", "text"),
        [
            (None, MetadataInvalid, "no property magnetar.moved"),
            ("", MetadataInvalid, "do not begin with a ledger"),
            ("{}:", MetadataInvalid, "position '' is not of the form"),
            ("{}:3-1", MetadataInvalid, "ends before it begins"),
            ("{}:3,2", MetadataInvalid, "position 2 does not come after 3"),
            ("999999:1", NotAllowed, "ledger 999999 is not one of topic persistent://public/default/t"),
            ("{}:10", NotAllowed, "entry 10 of persistent://public/default/t does not exist: the last one is 9"),
            ("{}:0-999999999999999", NotAllowed, "entry 999999999999999 of"),
            ("{}:0.1", NotAllowed, "entry 0 has 1 messages, there is none with index 1"),
        ],
    )
    def test_sp2_wrong_positions(self, positions: str | None, error: type[Exception], text: str) -> None:
        world = prepared()
        given = None if positions is None else positions.format(world.topic().ledger_id)
        assert send(world, mover(world), [entry(given)]) == []
        assert text in str(refusal(world)) and isinstance(refusal(world), error)
        assert (stored(world), len(open_of(world))) == (0, 10)

    def test_sp2_chunks(self) -> None:
        """Each chunk would be an entry with the same positions."""
        world = prepared()
        assert send(world, mover(world), [entry(at(world, "0"), is_chunk=True)]) == []
        assert "chunk" in str(refusal(world))

    def test_sp2_a_subscription_that_is_deleted_meanwhile(self) -> None:
        world = prepared()
        producer = mover(world)
        world.topic().delete_subscription("s")
        assert move(world, producer, "0") == []
        assert isinstance(refusal(world), SubscriptionNotFound)

    def test_sp2_a_topic_that_is_deleted_meanwhile(self) -> None:
        world = prepared()
        producer, positions = mover(world), at(world, "0")
        world.topic().producers.close_all()
        world.broker.delete_topic(TopicName.parse("t"))
        assert send(world, producer, [entry(positions)]) == []
        assert isinstance(refusal(world), TopicNotFound)

    def test_sp2_a_topic_that_is_made_anew_meanwhile(self) -> None:
        world = prepared()
        producer, positions = mover(world), at(world, "0")
        assert len(send(world, producer, [entry(positions)])) == 1
        world.topic().producers.close_all()
        world.broker.delete_topic(TopicName.parse("t"))
        world.settle()
        world.publish(3)
        subscribe(world, "s")
        assert send(world, producer, [entry(positions)]) == []
        assert "ledger" in str(refusal(world))
        assert len(open_of(world)) == 3

    def test_sp2_a_terminated_target(self) -> None:
        world = prepared()
        producer = mover(world)
        world.topic("out").terminate()
        assert move(world, producer, "0") == []
        assert isinstance(refusal(world), TopicTerminated)

    def test_sp3_a_topic_whose_last_durable_subscription_is_deleted(self) -> None:
        world = prepared()
        producer = moving_all(world)
        world.topic().delete_subscription("s")
        assert move(world, producer, "0") == []
        assert "has no durable subscription" in str(refusal(world))

    def test_sp3_dead_letters_from_before_the_first_subscription(self) -> None:
        """No cursor can say that they are gone, so the same one would be moved again and again."""
        world = World()
        source = "t-s-DLQ"
        world.publish(3, source)
        subscribe(world, "late", source, earliest=False)
        world.publish(3, source)
        world.topic("out")
        assert send(world, moving_all(world, source), [entry(at(world, "4", source)), entry(at(world, "1", source))])
        assert "entry 1 of" in str(refusal(world)) and "is older than its durable" in str(refusal(world))
        subscribe(world, "early", source)
        assert send(world, moving_all(world, source), [entry(at(world, "1", source))])[0][2] == 1

    def test_sp2_a_damaged_subscription(self) -> None:
        world = prepared()
        subscribe(world, "other")
        key = world.topic()._subscription_key("other")
        world.broker.commits.put(key, b"\xc1")
        world.settle()
        after = world.restart()
        producer = mover(after)
        assert move(after, producer, "0") == [0]
        with pytest.raises(SubscriptionDamaged):
            moving_all(after)

    def test_sp2_a_delay_above_the_limit(self) -> None:
        world = prepared()
        limited = Overrides(delayed_delivery=DelayedDelivery(active=True, max_ms=1000))
        world.broker.catalog.set_overrides(TopicName.parse("out"), limited)
        later = world.clock.now_ms() + 60_000
        assert send(world, mover(world), [entry(at(world, "0"), deliver_at_ms=later)]) == []
        assert "exceeds delayedDeliveryMaxDelayInMillis" in str(refusal(world))
        assert open_of(world)[0] == 0

    def test_bound_moved_ranges_of_an_entry(self) -> None:
        world = prepared()
        positions = ",".join(str(number * 2) for number in range(MOVED_RANGES.limit + 1))
        assert move(world, mover(world), positions) == []
        assert f"{MOVED_RANGES.limit + 1} ranges of positions, the limit is" in str(refusal(world))

    def test_bound_moved_messages_of_an_entry(self) -> None:
        world = prepared(0)
        topic = world.topic()
        topic.log.last = topic.log.confirmed = MOVED_MESSAGES.limit
        assert move(world, mover(world), f"0-{MOVED_MESSAGES.limit}") == []
        assert f"{MOVED_MESSAGES.limit + 1} entries are acknowledged at once" in str(refusal(world))


class TestAsAnyPublish:
    def test_sp2_a_delayed_entry_is_delivered_in_time(self) -> None:
        """The next attempt of a row that failed."""
        world = prepared()
        world.consumer("r", "out")
        at_ms = world.clock.now_ms() + 60_000
        send(world, mover(world), [entry(at(world, "0"), deliver_at_ms=at_ms), entry(at(world, "1"))])
        assert [i for i in world.client.take() if i in (0, 1)] == [1]
        world.advance(seconds=61)
        assert world.client.take() == [0]

    def test_sp2_it_is_counted(self) -> None:
        world = prepared()
        producer = mover(world)
        before = world.topic("out").bytes_in
        send(world, producer, [entry(at(world, "0-4"), messages=5), entry(at(world, "1"))])
        assert world.topic("out").messages_in == producer.messages_in == 5
        assert world.topic("out").bytes_in - before == producer.bytes_in > 0

    def test_sp2_entries_of_one_read_are_one_record(self) -> None:
        world = prepared(64)
        writes = len(world.storage.scan(*_entries_of(world, "out")))
        move(world, mover(world), *map(str, range(64)))
        assert len(world.storage.scan(*_entries_of(world, "out"))) - writes == 1


class TestCost:
    def test_sp3_a_range_costs_what_is_open_in_it(self) -> None:
        def work(size: int) -> int:
            world = prepared(0)
            topic = world.topic()
            topic.log.last = topic.log.confirmed = size
            world.subscription().advance(size - 5)
            world.topic("out")
            producer = mover(world)
            publish = entry(at(world, f"{size - 4}-{size - 2}"))
            positions = entry(at(world, f"0-{size - 5}"))
            found = lines_run(lambda: world.topic("out").publish(producer, [publish, positions]))
            world.settle()
            assert [receipt[2] for receipt in world.client.receipted] == [0, -1]
            return found

        assert work(1_000_000_000_000) < work(1000) * 1.1


class TestAtomic:
    def test_sp2_a_crash_at_any_write_leaves_each_message_in_exactly_one_place(self) -> None:
        world = prepared()
        world.topic("out").publish(
            mover(world), [entry(at(world, "0-2")), entry(at(world, "2")), entry(at(world, "5"))]
        )
        seen = set()
        while True:
            after = world.restart()
            seen.add((tuple(open_of(after)), stored(after)))
            group = world.broker.commits.take()
            if group is None:
                break
            world.storage.write(group.batch)
            world.storage.sync()
            group.complete()
        assert seen == {(tuple(range(10)), 0), ((3, 4, 6, 7, 8, 9), 2)}

    def test_sp2_a_full_group_is_not_closed_in_between(self) -> None:
        world = prepared()
        producer = mover(world)
        topic = world.topic("out")
        for size in (1 << 30, 0):
            world.broker.commits.open().grow(size)
            number = 0 if size else 5
            topic.publish(producer, [entry(at(world, str(number + i)), b"x" * 700_000) for i in range(5)])
            while (group := world.broker.commits.take()) is not None:
                world.storage.write(group.batch)
                world.storage.sync()
                group.complete()
                after = world.restart()
                assert len(open_of(after)) + stored(after) == 10

    def test_sp2_on_rocksdb(self, tmp_path: Path) -> None:
        storage = RocksStorage(tmp_path)
        world = World(storage, host=ManualHost())  # type: ignore[arg-type]
        subscribe(world, "s")
        world.publish(10)
        world.topic("out")
        subscribe(world, "a", "out")
        subscribe(world, "b", "out")
        move(world, mover(world, only="b"), "0-2,5", "7")
        storage.close()
        reopened = RocksStorage(tmp_path)
        again = World(reopened, host=ManualHost())  # type: ignore[arg-type]
        assert open_of(again) == [3, 4, 6, 8, 9]
        assert [open_of(again, name, "out") for name in "ab"] == [[], [0, 1]]
        assert move(again, mover(again), "0-2,5", "8") == [-1, 2]
        reopened.close()


class TestOpen:
    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            (
                {"source": "none"},
                TopicNotFound,
                "default/none, which messages are moved from, does not",
            ),
            ({"source": "non-persistent://public/default/n"}, NotAllowed, "moved from non-persistent://"),
            ({"subscription": "none"}, SubscriptionNotFound, "subscription 'none' not found on topic"),
            (
                {"subscription": "reader"},
                NotAllowed,
                "default/t is not durable",
            ),
            ({"only": "none"}, SubscriptionNotFound, "subscription 'none' not found on topic"),
            ({"source": "empty", "subscription": "*"}, NotAllowed, "has no durable subscription"),
        ],
    )
    def test_sp2_what_cannot_be_moved(self, options: dict[str, str], error: type[Exception], text: str) -> None:
        world = prepared()
        world.topic("empty")
        world.consumer("reader", durable=False)
        with pytest.raises(error) as caught:
            mover(world, **options)
        assert text in str(caught.value)

    def test_sp2_a_topic_that_does_not_exist_is_not_created(self) -> None:
        world = prepared()
        with pytest.raises(TopicNotFound):
            mover(world, "none")
        assert not world.broker.catalog.exists(TopicName.parse("none"))

    def test_sp2_one_partition_with_the_subscription_is_enough(self) -> None:
        world = World()
        world.broker.catalog.create_partitioned(TopicName.parse("many"), 3, {})
        world.settle()
        world.publish(1, "many-partition-0", producer=world.producer("many-partition-0", "p0"))
        subscribe(world, "s", "many-partition-2")
        world.topic("out")
        producer = mover(world, "many")
        assert send(world, producer, [entry(at(world, "0", "many-partition-0"))]) == []
        assert isinstance(refusal(world), SubscriptionNotFound)
