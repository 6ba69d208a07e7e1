"""The move to the dead letter topic: DL4, DL8 to DL10."""

from __future__ import annotations

import json

import pytest

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.schema.registry import schema_id
from magnetar.broker.topic.expiry import dead_letter_up_to
from magnetar.deadletter.properties import Reason, read_history
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from tests.broker.dead_letters import (
    DLQ,
    EXCLUSIVE,
    fail,
    letters,
    origins,
    publish,
    with_policy,
)
from tests.broker.world import Client, World


class TestMove:
    def test_dl4_a_message_moves_after_one_redelivery_too_many(self) -> None:
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
        assert world.client.take() == []  # not redelivered
        world.subscription().ack(0)
        world.subscription().ack(2)
        world.settle()
        assert world.subscription().backlog == 0

    def test_dl4_a_crash_at_any_write_leaves_the_message_in_exactly_one_place(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        world.subscription().redeliver(consumer, [0])
        while True:  # nothing is durable yet; then group after group
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

    def test_dl4_the_ack_and_the_dead_letter_share_a_group_even_when_the_open_one_is_full(self) -> None:
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

    def test_dl8_a_dead_letter_keeps_the_message_and_adds_origin_and_reason(self) -> None:
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
            "consumer": "c",
            "address": "10.0.0.1:5000",
            "clientVersion": "test",
        }

    def test_dl8_a_dead_letter_names_the_consumer_that_failed_last(self) -> None:
        world = World()
        world.publish(1)
        client = Client("10.0.0.7:4321")
        client.client_version = "Pulsar-CPP-v3.7.1"
        with_policy_of = world.consumer(name="first")
        with_policy(world, 1)
        fail(world, with_policy_of, 0)
        world.subscription().remove_consumer(with_policy_of)
        world.settle()
        after = world.restart()  # between the first failure and the last
        fail(after, after.consumer(name="worker-2", client=client), 0)
        ((_, properties, _),) = letters(after)
        assert properties["DEATH_CONSUMER"] == "worker-2"
        assert properties["DEATH_CONSUMER_ADDRESS"] == "10.0.0.7:4321"
        assert properties["DEATH_CLIENT_VERSION"] == "Pulsar-CPP-v3.7.1"
        (failure,) = read_history(properties)
        assert (failure.consumer, failure.address, failure.client_version) == (
            "worker-2",
            "10.0.0.7:4321",
            "Pulsar-CPP-v3.7.1",
        )

    def test_dl8_the_consumer_is_known_when_a_message_expires_after_a_restart(self) -> None:
        world = World()
        world.publish(2)
        fail(world, world.consumer(name="worker"), 0)
        after = world.restart()
        dead_letter_up_to(after.topic(), after.subscription(), 1, Reason.Expired, "Its time to live is over.")
        after.settle()
        failed, unread = (properties for _, properties, _ in letters(after))
        assert failed["DEATH_CONSUMER"] == "worker"
        assert not {"DEATH_CONSUMER", "DEATH_CONSUMER_ADDRESS", "DEATH_CLIENT_VERSION", "DEATH_ERROR"} & set(unread)

    def test_dl8_names_of_consumers_are_bounded_and_stay_apart(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer(name="a\nb" + "c" * 5000)
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        ((_, properties, _),) = letters(world)
        assert properties["DEATH_CONSUMER"] == "a b" + "c" * 253
        assert properties["DEATH_CONSUMER_ADDRESS"] == "10.0.0.1:5000"

    def test_dl8_a_reported_error_is_on_the_dead_letter_after_a_restart(self) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0, 1)
        world.subscription().cursor.report_error(0, -1, "no such customer")
        world.settle()
        after = world.restart()
        fail(after, after.consumer(), 0, 1)
        with_error, without = (properties for _, properties, _ in letters(after))
        assert with_error["DEATH_ERROR"] == "no such customer"
        assert read_history(with_error)[0].error == "no such customer"
        assert "DEATH_ERROR" not in without

    def test_dl8_each_message_of_a_batch_has_its_own_error(self) -> None:
        world = World()
        content = build_batch([(pb.SingleMessageMetadata(payload_size=1), b"%d" % index) for index in range(3)])
        publish(world, pb.MessageMetadata(num_messages_in_batch=3), content, 3)
        consumer = world.consumer()
        with_policy(world, 1)
        world.subscription().cursor.report_error(0, 1, "one")
        world.subscription().cursor.report_error(0, -1, "all")
        for _ in range(2):
            fail(world, consumer, 0, indexes={0: 0b111})
        assert [properties["DEATH_ERROR"] for _, properties, _ in letters(world)] == ["all", "one", "all"]

    def test_dl8_the_error_of_a_retry_is_kept_and_that_of_an_earlier_death_is_not(self) -> None:
        world = World()
        retried, redriven = pb.MessageMetadata(), pb.MessageMetadata()
        retried.properties.add(key="DEATH_ERROR", value="timeout")
        redriven.properties.add(key="DEATH_ERROR", value="timeout")
        redriven.properties.add(key="DEATH_REASON", value="MaxRedeliveries")
        redriven.properties.add(key="DEATH_CONSUMER", value="gone")
        publish(world, retried, b"a")
        publish(world, redriven, b"b")
        consumer = world.consumer()
        with_policy(world, 1)
        for _ in range(2):
            fail(world, consumer, 0, 1)
        first, second = (properties for _, properties, _ in letters(world))
        assert first["DEATH_ERROR"] == "timeout"
        assert "DEATH_ERROR" not in second
        assert second["DEATH_CONSUMER"] == "c"

    def test_dl8_schema_versions_mean_the_same_in_the_dead_letter_topic(self) -> None:
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

    def test_a_property_that_is_not_utf8_is_kept(self) -> None:
        """Protobuf accepts bytes that are not UTF-8, which must not block a subscription."""
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

    def test_dl8_the_history_grows_with_each_dead_letter_and_is_limited(self) -> None:
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
    def test_dl9_one_message_of_a_batch_is_dead_lettered_alone(self, compression: pb.CompressionType.ValueType) -> None:
        world = World()
        singles = [pb.SingleMessageMetadata(partition_key=f"k{n}", event_time=n + 1) for n in range(4)]
        for number, single in enumerate(singles):
            single.properties.add(key="n", value=str(number))
        content = build_batch([(single, b"payload-%d" % n) for n, single in enumerate(singles)])
        metadata = pb.MessageMetadata(num_messages_in_batch=4, compression=compression, uncompressed_size=len(content))
        publish(world, metadata, compress(compression, content), messages=4)
        consumer = world.consumer()
        with_policy(world, 1)
        world.subscription().ack(0, open_bits=0b0110)  # 0 and 3 are acknowledged
        fail(world, consumer, 0, indexes={0: 0b0100})
        assert letters(world) == []
        world.subscription().ack(0, open_bits=0b0110)
        fail(world, consumer, 0, indexes={0: 0b0100})
        ((letter, properties, payload),) = letters(world)
        assert payload == b"payload-2" and letter.partition_key == "k2" and letter.event_time == 3
        assert properties["n"] == "2" and not letter.HasField("num_messages_in_batch")
        assert properties["ORIGIN_MESSAGE_ID"] == f"{world.topic().ledger_id}:0:-1:2"
        assert world.subscription().cursor.open_bits(0) == 0b0010  # its neighbour is still open, and not counted
        assert consumer.pending == {0: 1}  # and with the consumer

    def test_dl9_a_batch_nacked_as_a_whole_is_dead_lettered_message_by_message(self) -> None:
        world = World()
        content = build_batch([(pb.SingleMessageMetadata(), b"%d" % n) for n in range(3)])
        publish(world, pb.MessageMetadata(num_messages_in_batch=3), content, messages=3)
        consumer = world.consumer()
        with_policy(world, 1)
        world.subscription().ack(0, open_bits=0b101)
        fail(world, consumer)
        fail(world, consumer)
        assert [payload for _, _, payload in letters(world)] == [b"0", b"2"]
        assert world.subscription().backlog == 0

    def test_an_encrypted_batch_is_moved_as_a_whole_with_a_note(self) -> None:
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

    def test_dl10_a_dead_letter_topic_without_subscriptions_is_not_trimmed(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1, topic="graveyard")
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        world.advance(days=400)
        assert len(letters(world, "graveyard")) == 1
        assert len(letters(world.restart(), "graveyard")) == 1

    def test_dl10_the_initial_subscription_gets_every_dead_letter(self) -> None:
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

    def test_ac3_the_topic_is_auto_created_even_where_clients_may_not(self) -> None:
        world = World(allowAutoTopicCreation=False)
        world.broker.catalog.create(TopicName.parse("t"), {})
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        assert world.broker.catalog.properties_of(TopicName.parse(DLQ)) == {"wasAutoCreated": "true"}

    def test_ac4_messages_of_a_dead_letter_topic_stay_there(self) -> None:
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


class TestOtherReasons:
    def test_expired_messages_become_dead_letters_if_the_namespace_requests_it(self) -> None:
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

    def test_evicted_messages_become_dead_letters_if_the_namespace_requests_it(self) -> None:
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
