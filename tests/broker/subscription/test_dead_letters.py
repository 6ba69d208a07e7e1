"""Dead letters by the broker's own policy: DL3 to DL6, DL8 to DL11, DL13, and back-off and circuit breaker."""

from __future__ import annotations

import json

import msgspec
import pytest

from magnetar.broker.schema.registry import schema_id
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.failure_policy import BreakerPolicy, DeadLetterPolicy, policy_from
from magnetar.broker.subscription.suspects import ALONE_PATIENCE_MS
from magnetar.deadletter.properties import read_history
from magnetar.errors import NotAllowed
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob, split_blob
from tests.broker.world import Client, World

DLQ = "t-s-DLQ"
EXCLUSIVE, FAILOVER, KEY_SHARED = SubscriptionType.Exclusive, SubscriptionType.Failover, SubscriptionType.Key_Shared


def with_policy(world: World, limit: int = 2, **fields: object) -> None:
    policy = DeadLetterPolicy(limit, **{key: str(value) for key, value in fields.items()})
    world.subscription().set_dead_letter_policy(policy, "test")
    world.settle()


def configure(world: World, **changes: object) -> None:
    subscription = world.subscription()
    world.topic().save_subscription(subscription, msgspec.structs.replace(subscription.record, **changes))
    world.settle()


def fail(world: World, consumer: Consumer, *entries: int, indexes: dict[int, int] | None = None) -> None:
    world.subscription().redeliver(consumer, list(entries) or None, indexes=indexes)
    world.settle()
    if not entries and consumer.type in (EXCLUSIVE, FAILOVER):
        world.advance(milliseconds=150)  # for acks that are on their way


def letters(world: World, topic: str = DLQ) -> list[tuple[pb.MessageMetadata, dict[str, str], bytes]]:
    if not world.broker.catalog.exists(TopicName.parse(topic)):
        return []
    found = []
    for entry in world.topic(topic).log.read(0, 10_000, 1 << 30):
        metadata, payload = split_blob(entry[3])
        found.append((metadata, {pair.key: pair.value for pair in metadata.properties}, payload))
    return found


def origins(world: World, topic: str = DLQ) -> list[str]:
    return [properties["ORIGIN_MESSAGE_ID"] for _, properties, _ in letters(world, topic)]


def publish(world: World, metadata: pb.MessageMetadata, payload: bytes, messages: int = 1) -> None:
    producer = world.topic().producers.by_name.get("p") or world.producer()
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", 0, world.clock.now_ms()
    world.topic().publish(producer, [(0, 0, messages, build_blob(metadata, payload), False, False)])
    world.settle()


class TestTheMove:
    def test_dl4_after_one_redelivery_too_many(self) -> None:
        world = World()
        world.publish(3)
        consumer = world.consumer()
        with_policy(world, 2)
        for _ in range(2):
            fail(world, consumer, 1)
            assert letters(world) == []
        world.client.take()
        fail(world, consumer, 1)
        assert origins(world) == [f"{world.topic().ledger_id}:1:-1"]
        assert world.client.take() == []  # not delivered again
        world.subscription().ack(0)
        world.subscription().ack(2)
        world.settle()
        assert world.subscription().backlog == 0

    def test_dl4_a_crash_at_any_write_leaves_it_in_exactly_one_place(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        world.subscription().redeliver(consumer, [0])
        while True:  # nothing of it is durable yet; then group after group
            after = world.restart()
            waiting = after.subscription().backlog
            assert (waiting, len(letters(after))) in [(1, 0), (0, 1)]
            group = world.broker.commits.take()
            if group is None:
                break
            world.storage.write(group.batch)
            world.storage.sync()
            group.complete()
        assert (waiting, len(letters(after))) == (0, 1)

    def test_dl4_the_ack_and_the_letter_are_in_one_group_even_when_the_open_one_is_full(self) -> None:
        world = World()
        world.publish(3)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0, 1, 2)
        world.broker.commits.open().grow(1 << 30)
        world.subscription().redeliver(consumer, [0, 1, 2])
        while (group := world.broker.commits.take()) is not None:
            world.storage.write(group.batch)
            world.storage.sync()
            group.complete()
            after = world.restart()
            assert after.subscription().backlog + len(letters(after)) == 3

    def test_dl8_a_letter_keeps_the_message_and_says_where_and_why(self) -> None:
        world = World()
        metadata = pb.MessageMetadata(
            partition_key="key", ordering_key=b"order", event_time=77, schema_version=b"\0\0\0\0\0\0\0\3"
        )
        metadata.properties.add(key="colour", value="red")
        metadata.compression, metadata.uncompressed_size = pb.LZ4, 5
        publish(world, metadata, compress(pb.LZ4, b"hello"))
        consumer = world.consumer()
        with_policy(world, 1)
        first_ms = world.clock.now_ms()
        fail(world, consumer, 0)
        world.advance(seconds=9)
        fail(world, consumer, 0)
        ((letter, properties, payload),) = letters(world)
        assert (letter.partition_key, letter.ordering_key, letter.event_time) == ("key", b"order", 77)
        assert letter.schema_version == metadata.schema_version
        assert (letter.compression, payload) == (pb.LZ4, compress(pb.LZ4, b"hello"))
        assert properties["colour"] == "red"
        assert properties["REAL_TOPIC"] == "persistent://public/default/t"
        assert properties["REAL_SUBSCRIPTION"] == "s"
        assert properties["DEATH_REASON"] == "MaxRedeliveries"
        assert properties["DEATH_DESCRIPTION"] == "It failed 2 times, maxRedeliverCount is 1."
        (death,) = json.loads(properties["DEATH_HISTORY"])
        assert death == {
            "topic": "persistent://public/default/t",
            "subscription": "s",
            "reason": "MaxRedeliveries",
            "count": 2,
            "first": first_ms,
            "last": first_ms + 9000,
        }

    def test_dl8_the_versions_of_the_schema_mean_the_same_there(self) -> None:
        world = World()
        registry = world.broker.schemas
        source, target = schema_id(TopicName.parse("t")), schema_id(TopicName.parse(DLQ))
        for name in ("STRING", "INT32", "BOOLEAN"):
            registry.put(source, Schema(SchemaType[name]), "ALWAYS_COMPATIBLE")
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        registry.put(source, Schema(SchemaType.DOUBLE), "ALWAYS_COMPATIBLE")
        world.publish(1)
        fail(world, consumer, 1)
        fail(world, consumer, 1)
        for schemas in (world.broker.schemas, world.restart().broker.schemas):
            assert [(v.number, v.schema) for v in schemas.versions(target)] == [
                (v.number, v.schema) for v in schemas.versions(source)
            ]

    def test_a_property_that_is_no_text_is_kept_as_it_is(self) -> None:
        """Protobuf lets bytes pass that are not UTF-8, and nobody may stop a subscription with them."""
        world = World()
        text = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        text.properties.add(key="ORIGIN_MESSAGE_ID", value="XX")
        text.properties.add(key="other", value="YY")
        section = text.SerializeToString().replace(b"XX", b"\xff\xfe").replace(b"YY", b"\xff\xfd")
        publish(world, pb.MessageMetadata.FromString(section), b"x")
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        ((letter, properties, _),) = letters(world)
        assert properties["ORIGIN_MESSAGE_ID"] == f"{world.topic().ledger_id}:0:-1"
        assert b"\xff\xfd" in letter.SerializeToString() and b"\xff\xfe" not in letter.SerializeToString()

    def test_dl8_the_history_grows_with_each_death_and_has_a_limit(self) -> None:
        world = World()
        metadata = pb.MessageMetadata()
        deaths = [
            {"topic": "x", "subscription": "y", "reason": "Expired", "count": n, "first": 1, "last": 2}
            for n in range(20)
        ]
        metadata.properties.add(key="DEATH_HISTORY", value=json.dumps(deaths))
        publish(world, metadata, b"x")
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        ((_, properties, _),) = letters(world)
        history = read_history(properties)
        assert len(history) == 20 and history[-1].topic == "persistent://public/default/t" and history[0].count == 1

    @pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
    def test_dl9_one_message_of_a_batch_dies_alone(self, compression: pb.CompressionType.ValueType) -> None:
        world = World()
        singles = [pb.SingleMessageMetadata(partition_key=f"k{n}", event_time=n + 1) for n in range(4)]
        for number, single in enumerate(singles):
            single.properties.add(key="n", value=str(number))
        content = build_batch([(single, b"payload-%d" % n) for n, single in enumerate(singles)])
        metadata = pb.MessageMetadata(num_messages_in_batch=4, compression=compression, uncompressed_size=len(content))
        publish(world, metadata, compress(compression, content), messages=4)
        consumer = world.consumer()
        with_policy(world, 1)
        world.subscription().ack(0, open_bits=0b0110)  # 0 and 3 are done
        fail(world, consumer, 0, indexes={0: 0b0100})
        assert letters(world) == []
        world.subscription().ack(0, open_bits=0b0110)
        fail(world, consumer, 0, indexes={0: 0b0100})
        ((letter, properties, payload),) = letters(world)
        assert payload == b"payload-2" and letter.partition_key == "k2" and letter.event_time == 3
        assert properties["n"] == "2" and not letter.HasField("num_messages_in_batch")
        assert properties["ORIGIN_MESSAGE_ID"] == f"{world.topic().ledger_id}:0:-1:2"
        assert world.subscription().cursor.open_bits(0) == 0b0010  # its neighbour is still open, and not counted
        assert world.client.delivered[-1][1][:3] == (0, 0, 0b0010)

    def test_dl9_a_batch_given_back_as_a_whole_dies_message_by_message(self) -> None:
        world = World()
        content = build_batch([(pb.SingleMessageMetadata(), b"%d" % n) for n in range(3)])
        publish(world, pb.MessageMetadata(num_messages_in_batch=3), content, messages=3)
        consumer = world.consumer()
        with_policy(world, 1)
        world.subscription().ack(0, open_bits=0b101)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        assert [payload for _, _, payload in letters(world)] == [b"0", b"2"]
        assert world.subscription().backlog == 0

    def test_an_encrypted_batch_is_moved_as_a_whole_and_says_so(self) -> None:
        world = World()
        metadata = pb.MessageMetadata(num_messages_in_batch=3, encryption_algo="AES")
        metadata.encryption_keys.add(key="k", value=b"v")
        publish(world, metadata, b"secret", messages=3)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        ((letter, properties, payload),) = letters(world)
        assert (payload, letter.num_messages_in_batch) == (b"secret", 3)
        assert "encrypted batch of 3" in properties["DEATH_DESCRIPTION"]
        assert world.subscription().backlog == 0

    def test_dl10_a_dead_letter_topic_without_subscriptions_is_kept_whatever_retention_says(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1, topic="graveyard")
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        world.advance(days=400)
        assert len(letters(world, "graveyard")) == 1
        assert len(letters(world.restart(), "graveyard")) == 1

    def test_dl10_the_initial_subscription_gets_every_letter(self) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer()
        with_policy(world, 1, initial_subscription="mourners")
        for _ in range(2):
            fail(world, consumer, 0, 1)
        assert world.subscription("mourners", DLQ).backlog == 2
        again = world.restart()
        again.consumer("mourners", DLQ)
        assert again.client.take() == [0, 1]

    def test_ac3_the_topic_was_auto_created_even_where_clients_may_not(self) -> None:
        world = World(allowAutoTopicCreation=False)
        world.broker.catalog.create(TopicName.parse("t"), {})
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        assert world.broker.catalog.properties_of(TopicName.parse(DLQ)) == {"wasAutoCreated": "true"}

    def test_ac4_letters_of_letters_stay_where_they_are_and_nothing_is_lost(self) -> None:
        world = World()
        world.publish(1, "x-s-DLQ")
        consumer = world.consumer(topic="x-s-DLQ")
        subscription = world.subscription(topic="x-s-DLQ")
        subscription.set_dead_letter_policy(DeadLetterPolicy(1), "test")
        for count in range(1, 6):
            subscription.redeliver(consumer, None)
            world.settle()
            assert world.client.delivered[-1][1][:2] == (0, count)
        assert "auto-created" in subscription.dead_letters.problem
        assert subscription.backlog == 1

    def test_a_topic_cannot_be_its_own_dead_letter_topic(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1, topic="t")
        for _ in range(4):
            fail(world, consumer, 0)
        assert world.subscription().backlog == 1 and "own topic" in world.subscription().dead_letters.problem

    def test_a_partitioned_dead_letter_topic_is_used(self) -> None:
        world = World()
        world.broker.catalog.create_partitioned(TopicName.parse("dead"), 2, {})
        world.publish(4)
        consumer = world.consumer()
        with_policy(world, 1, topic="dead")
        for _ in range(2):
            fail(world, consumer)
        assert len(letters(world, "dead-partition-0")) == len(letters(world, "dead-partition-1")) == 2

    def test_partitions_share_one_dead_letter_topic(self) -> None:
        policy = DeadLetterPolicy(1)
        assert policy.topic_for(TopicName.parse("t-partition-3"), "s").local == "t-s-DLQ"


class TestCounts:
    def test_dl6_counts_survive_restarts_and_the_last_consumer_leaving(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 3)
        fail(world, consumer, 0)
        world.topic().remove_consumer(consumer)
        world.settle()
        again = world.restart()
        consumer = again.consumer()
        assert again.client.delivered[-1][1][:2] == (0, 1)
        for _ in range(3):
            fail(again, consumer, 0)
        assert len(letters(again)) == 1

    def test_dl5_leaving_and_vanishing_do_not_count(self) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer()
        with_policy(world, 1)
        for vanished in (False, True, False):
            world.topic().remove_consumer(consumer, vanished=vanished)
            consumer = world.consumer()
        assert {delivery[1] for _, delivery in world.client.delivered} == {0}

    def test_dl5_an_empty_list_means_everything(self) -> None:
        world = World()
        world.publish(3)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer)
        fail(world, consumer)
        assert len(letters(world)) == 3

    def test_dl5_a_frame_says_the_largest_count_of_a_batch(self) -> None:
        world = World()
        publish(world, pb.MessageMetadata(num_messages_in_batch=3), b"?", messages=3)
        consumer = world.consumer()
        fail(world, consumer, 0, indexes={0: 0b010})
        fail(world, consumer, 0, indexes={0: 0b010})
        fail(world, consumer, 0)
        assert world.client.delivered[-1][1][1] == 3
        world.subscription().ack(0, open_bits=0b101)
        fail(world, consumer, 0, indexes={0: 0b001})
        assert world.client.delivered[-1][1][1] == 2

    def test_more_positions_than_memory_keeps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("magnetar.broker.subscription.cursor.STATES_KEPT", 4)
        world = World()
        world.publish(50)
        consumer = world.consumer()
        for _ in range(3):
            fail(world, consumer)
        assert len(world.subscription().cursor._states) <= 8
        world.client.delivered.clear()
        fail(world, consumer)
        assert [delivery[:2] for _, delivery in world.client.delivered] == [(n, 4) for n in range(50)]
        again = world.restart()
        again.consumer()
        assert [delivery[1] for _, delivery in again.client.delivered] == [4] * 50


class TestOrdered:
    @pytest.mark.parametrize("type", [EXCLUSIVE, FAILOVER])
    def test_dl11_the_first_dies_and_those_behind_it_come_in_order(self, type: SubscriptionType) -> None:
        world = World()
        world.publish(4)
        consumer = world.consumer(type=type)
        with_policy(world, 1)
        world.subscription().ack(0)
        fail(world, consumer)  # clients give everything back, because 1 failed
        fail(world, consumer)
        assert origins(world) == [f"{world.topic().ledger_id}:1:-1"]
        world.client.take()
        fail(world, consumer)
        assert world.client.take() == [2, 3]
        assert [world.subscription().cursor.state_of(n) for n in (3,)] == [None]

    def test_dl11_key_shared(self) -> None:
        world = World()
        world.publish(4, keys=["a", "b"])
        consumer = world.consumer(type=KEY_SHARED)
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        assert origins(world) == [f"{world.topic().ledger_id}:0:-1"]
        for entry in (1, 2, 3):
            world.subscription().ack(entry)
        world.settle()
        assert world.subscription().backlog == 0


class TestBackoff:
    @pytest.mark.parametrize("type", [SubscriptionType.Shared, KEY_SHARED, EXCLUSIVE])
    def test_each_failure_waits_longer_and_never_comes_early(self, type: SubscriptionType) -> None:
        world = World()
        world.publish(1, keys=["a"])
        consumer = world.consumer(type=type)
        configure(world, backoff_ms=[1000, 10_000])
        for delay_ms in (1000, 10_000, 10_000):
            world.client.take()
            fail(world, consumer, 0)
            world.advance(milliseconds=delay_ms - 1)
            assert world.client.take() == []
            world.advance(milliseconds=60)
            assert world.client.take() == [0]

    @pytest.mark.parametrize("type", [SubscriptionType.Shared, EXCLUSIVE])
    def test_it_survives_a_restart_and_the_last_consumer_leaving(self, type: SubscriptionType) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer(type=type)
        configure(world, backoff_ms=[60_000])
        fail(world, consumer, 0)
        world.topic().remove_consumer(consumer)
        world.settle()
        again = world.restart()
        again.consumer(type=type)
        assert again.client.take() == ([1] if type is SubscriptionType.Shared else [])
        again.advance(seconds=61)
        assert again.client.take() == ([0] if type is SubscriptionType.Shared else [0, 1])

    def test_what_rests_can_be_acknowledged_skipped_and_sought(self) -> None:
        world = World()
        world.publish(4)
        consumer = world.consumer()
        configure(world, backoff_ms=[60_000])
        fail(world, consumer)
        world.subscription().ack(1)
        world.settle()
        world.subscription().advance(2)
        world.settle()
        assert world.subscription().backlog == 1
        world.subscription().seek(0)
        world.settle()
        assert world.subscription().backlog == 4


class TestSuspects:
    def crash(
        self,
        world: World,
        consumer: Consumer,
        type: SubscriptionType = SubscriptionType.Shared,
        *,
        durable: bool = True,
    ) -> Consumer:
        world.topic().remove_consumer(consumer, vanished=True)
        world.settle()
        return world.consumer(name=f"{consumer.name}+", type=type, durable=durable)

    def test_dl13_a_message_that_kills_every_consumer_ends_in_the_dead_letter_topic(self) -> None:
        world = World()
        world.publish(100)
        consumer = world.consumer(permits=1000)
        with_policy(world, 2)
        poison, done, crashes = 37, set[int](), 0
        world.client.take()
        received = list(range(100))
        while received:
            for entry in received:
                if entry == poison:
                    world.client.delivered.clear()
                    consumer = self.crash(world, consumer)
                    crashes += 1
                    if crashes == 3:
                        world = world.restart()  # what is suspected survives
                        consumer = world.consumer()
                    break
                world.subscription().ack(entry)
                done.add(entry)
            world.settle()
            assert all(count == 0 for _, (entry, count, _, _) in world.client.delivered if entry != poison)
            received = [entry for entry in world.client.take() if entry not in done]
            assert crashes < 20
        assert done == set(range(100)) - {poison}
        assert origins(world) == [f"{world.topic().ledger_id}:{poison}:-1"]
        assert letters(world)[0][1]["DEATH_REASON"] == "ConsumerCrash"
        assert world.subscription().backlog == 0

    @pytest.mark.parametrize("has_policy", [True, False])
    def test_dl13_others_wait_for_a_free_consumer_for_a_limited_time(self, has_policy: bool) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer(permits=2)
        if has_policy:
            with_policy(world, 1)
        for _ in range(3):
            consumer = self.crash(world, consumer)
        world.client.take()
        assert list(consumer.pending) == [0]  # alone
        world.subscription().ack(0)
        world.settle()
        assert list(consumer.pending) == [1]
        # A consumer that holds a suspect and never acknowledges gets the others after a while.
        world = World()
        world.publish(1)
        consumer = world.consumer(permits=10)
        if has_policy:
            with_policy(world, 1)
        for _ in range(3):
            consumer = self.crash(world, consumer)
        world.topic().remove_consumer(consumer)
        world.publish(1)
        busy = world.consumer(name="busy", permits=0)
        world.subscription().flow(busy, 10)
        world.settle()
        assert list(busy.pending) == [0]
        world.advance(milliseconds=ALONE_PATIENCE_MS + 1)
        assert list(busy.pending) == [0, 1]

    @pytest.mark.parametrize("type", [SubscriptionType.Shared, KEY_SHARED])
    def test_dl13_without_a_policy_of_the_broker_a_crash_while_alone_counts_as_a_redelivery(
        self, type: SubscriptionType
    ) -> None:
        """The count is what the client's own policy goes by, which the broker does not know."""
        world = World()
        world.publish(100, keys=["k"] if type is KEY_SHARED else [])
        consumer = world.consumer(type=type)
        poison, limit, done, counts = 37, 2, set[int](), list[int]()
        while world.subscription().backlog:
            delivered, world.client.delivered = world.client.delivered, []
            for _, (entry, count, _, _) in delivered:
                if entry == poison and count <= limit:
                    counts.append(count)
                    consumer = self.crash(world, consumer, type)
                    break
                if entry == poison:
                    counts.append(count)  # the client publishes the letter, without its application seeing the message
                else:
                    assert count == 0
                    done.add(entry)
                world.subscription().ack(entry)
            world.settle()
            assert len(counts) < 20
        assert done == set(range(100)) - {poison}
        assert counts == [0, 0, 0, 0, 1, 2, 3]
        assert letters(world) == []

    @pytest.mark.parametrize(
        ("type", "durable"), [(EXCLUSIVE, True), (FAILOVER, True), (SubscriptionType.Shared, False)]
    )
    def test_subscriptions_without_suspects(self, type: SubscriptionType, durable: bool) -> None:
        """Clients have no dead letter policy where order counts, and nothing of a non-durable one survives."""
        world = World()
        world.publish(3)
        consumer = world.consumer(type=type, durable=durable, name="c0")
        second = world.consumer(type=type, durable=durable, name="c1", permits=0) if not durable else None
        for _ in range(5):
            consumer = self.crash(world, consumer, type, durable=durable)
        assert len(consumer.pending) == 3
        assert not world.subscription().cursor.has_states
        assert second is None or not second.pending


class TestBreaker:
    def test_too_large_a_share_of_dead_messages_pauses_the_subscription(self) -> None:
        world = World()
        world.publish(20)
        consumer = world.consumer()
        with_policy(world, 1)
        configure(world, breaker=BreakerPolicy(percent=50, window_s=60, minimum=4))
        for entry in range(4):
            world.subscription().ack(entry)
        fail(world, consumer)
        world.client.take()
        fail(world, consumer)
        assert "of" in world.subscription().record.paused
        # With 4 acknowledged, the fifth would be more than half.
        assert world.subscription().dead_letters.moved.total() == 4
        assert world.client.take() == []
        again = world.restart()
        again.consumer()
        assert again.client.take() == []
        again.subscription().resume()
        again.settle()
        assert len(again.client.take()) == 12

    def test_an_empty_window_concludes_nothing(self) -> None:
        world = World()
        world.publish(3)
        consumer = world.consumer()
        with_policy(world, 1)
        configure(world, breaker=BreakerPolicy(percent=1, window_s=60, minimum=10))
        for _ in range(2):
            fail(world, consumer)
        assert len(letters(world)) == 3


class TestOtherReasons:
    def test_expired_messages_become_letters_where_the_namespace_says_so(self) -> None:
        world = World(ttlDurationDefaultInSeconds=60)
        catalog = world.broker.catalog
        catalog.namespaces["public/default"].overrides.dead_letter_expired = True
        catalog.save_namespace("public/default", catalog.namespaces["public/default"])
        catalog.settings_changed()
        world.publish(250)
        world.consumer(permits=0)
        world.subscription().ack(7)
        world.advance(minutes=30)
        for _ in range(5):
            world.advance(milliseconds=1)
        assert len(letters(world)) == 249
        assert {properties["DEATH_REASON"] for _, properties, _ in letters(world)} == {"Expired"}
        assert world.subscription().backlog == 0

    def test_evicted_messages_become_letters_where_the_namespace_says_so(self) -> None:
        world = World(
            backlogQuotaDefaultLimitBytes=1000, backlogQuotaDefaultRetentionPolicy="consumer_backlog_eviction"
        )
        catalog = world.broker.catalog
        catalog.namespaces["public/default"].overrides.dead_letter_evicted = True
        catalog.settings_changed()
        world.consumer(permits=0)
        world.publish(30, payload=b"x" * 100)
        world.advance(minutes=2)
        moved = len(letters(world))
        assert 0 < moved < 30 and world.subscription().backlog == 30 - moved
        assert {properties["DEATH_REASON"] for _, properties, _ in letters(world)} == {"BacklogEvicted"}


class TestDeclared:
    def test_dl3_in_the_metadata_of_a_consumer(self) -> None:
        assert policy_from({"app": "x"}) is None
        assert policy_from({"deadLetterPolicy.maxRedeliverCount": "3"}) == DeadLetterPolicy(3)
        full = {
            "deadLetterPolicy.maxRedeliverCount": "3",
            "deadLetterPolicy.deadLetterTopic": "dead",
            "deadLetterPolicy.initialSubscriptionName": "s",
        }
        assert policy_from(full) == DeadLetterPolicy(3, "dead", "s")

    @pytest.mark.parametrize(
        "metadata",
        [
            {"deadLetterPolicy.deadLetterTopic": "dead"},
            {"deadLetterPolicy.maxRedeliverCount": "many"},
            {"deadLetterPolicy.maxRedeliverCount": "0"},
            {"deadLetterPolicy.maxRedeliverCount": "-1"},
            {"deadLetterPolicy.maxRedeliverCount": "99999999999"},
            {"deadLetterPolicy.maxRedeliverCount": "٣"},
            {"deadLetterPolicy.maxRedeliverCount": "1", "deadLetterPolicy.limit": "2"},
        ],
    )
    def test_dl3_wrong_metadata_is_refused_by_name(self, metadata: dict[str, str]) -> None:
        with pytest.raises(NotAllowed, match="consumer property deadLetterPolicy"):
            policy_from(metadata)

    def test_dl3_the_last_one_wins_and_the_namespace_is_the_default(self) -> None:
        world = World()
        world.publish(1)
        world.consumer()
        catalog = world.broker.catalog
        catalog.namespaces["public/default"].overrides.dead_letters = DeadLetterPolicy(9)
        catalog.settings_changed()
        assert world.subscription().dead_letter_policy == DeadLetterPolicy(9)
        with_policy(world, 1)
        with_policy(world, 5)
        again = world.restart()
        assert again.subscription().dead_letter_policy == DeadLetterPolicy(5)
        assert again.subscription().record.dead_letters_from == "test"


def test_readers_have_no_dead_letters() -> None:
    world = World()
    world.publish(1)
    client = Client()
    reader = world.consumer("r", durable=False, type=EXCLUSIVE, client=client)
    catalog = world.broker.catalog
    catalog.namespaces["public/default"].overrides.dead_letters = DeadLetterPolicy(1)
    catalog.settings_changed()
    for _ in range(5):
        world.subscription("r").redeliver(reader, None)
        world.settle()
    assert letters(world, "t-r-DLQ") == []
