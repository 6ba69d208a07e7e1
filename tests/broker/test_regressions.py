"""Bugs found by the simulation or the crash test, each in its shortest form."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.broker import keys
from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.commit import Commits
from magnetar.broker.host import ManualHost
from magnetar.broker.subscription.suspects import ALONE_PATIENCE_MS, FEW
from magnetar.broker.topic.expiry import dead_letter_up_to
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.deadletter.properties import Reason
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.storage.api import Batch, Space
from magnetar.storage.memory import MemoryStorage
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob

from .world import START_MS, Client, SubscriptionType, World

SHARED, EXCLUSIVE = SubscriptionType.Shared, SubscriptionType.Exclusive
FAILOVER, KEY_SHARED = SubscriptionType.Failover, SubscriptionType.Key_Shared

Command = pb.BaseCommand

# Four bytes of metadata that are no protobuf. Its sizes are valid, so it is stored like any other entry.
JUNK = b"\x00\x00\x00\x04\xff\xff\xff\xffpayload"


class Nothing:
    def store(self, batch: Batch) -> None:
        pass


@pytest.mark.parametrize("is_durable", [True, False])
def test_commits_are_not_idle_while_a_group_is_being_written_or_waits_for_a_sync(is_durable: bool) -> None:
    """Replies sent at that moment were lost in a crash."""
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    if is_durable:
        commits.batch()
    commits.touch(Nothing())
    group = commits.take()
    assert group is not None
    assert not commits.idle
    storage.write(group.batch)
    group.complete()
    assert commits.idle is is_durable  # unsynced writes are not safe yet


def test_a_delayed_message_due_before_a_restart_is_delivered() -> None:
    world = World()
    world.topic()
    world.consumer(permits=0)
    world.publish(deliver_at_ms=START_MS + 1000)
    world.publish(deliver_at_ms=START_MS + 3_600_000)
    world.advance(seconds=2)  # the first is due now, without a receiver
    again = world.restart()
    again.consumer()
    assert again.client.take() == [0]
    again.advance(hours=2)
    assert again.client.take() == [1]


@pytest.mark.parametrize("per", ["PerConsumer", "PerSubscription"])
def test_a_look_ahead_of_zero_means_no_limit(per: str) -> None:
    world = World(None, **{f"keySharedLookAheadMsgInReplayThreshold{per}": 0})
    world.publish(3, keys=["a", "b"])
    world.consumer(type=KEY_SHARED)
    assert world.client.take() == [0, 1, 2]


def test_key_shared_loses_nothing_when_the_subscription_reaches_its_limit() -> None:
    world = World(maxUnackedMessagesPerSubscription=2)
    world.publish(4, keys=["a", "b", "c", "d"])
    world.consumer(type=KEY_SHARED)
    taken = world.client.take()
    assert len(taken) == 2
    for entry_id in taken:
        world.subscription().ack(entry_id)
    world.settle()
    assert sorted(taken + world.client.take()) == [0, 1, 2, 3]


@pytest.mark.parametrize("type", [SHARED, KEY_SHARED])
def test_others_continue_when_the_consumer_that_filled_the_limit_leaves(type: SubscriptionType) -> None:
    world = World(maxUnackedMessagesPerSubscription=2)
    world.publish(2, keys=["a"])
    greedy, other = world.consumer(type=type, name="greedy"), Client()
    assert world.client.take() == [0, 1]
    world.consumer(type=type, name="other", client=other)
    world.topic().remove_consumer(greedy)
    world.settle()
    assert other.take() == [0, 1]


def test_unreadable_metadata_does_not_block_a_subscription() -> None:
    world = World()
    world.consumer("by-key", type=KEY_SHARED, client=(by_key := Client()))
    world.consumer("shared", client=(shared := Client()))
    world.publish()
    producer = world.producer(name="vandal")
    world.topic().publish(producer, [(0, 0, 1, JUNK, False, False)])
    world.publish()
    assert by_key.take() == [0, 1, 2]
    assert shared.take() == [0, 1, 2]
    assert world.topic().log.first_published_from(START_MS) == 0


def test_the_end_of_a_topic_is_announced_when_it_is_durable_and_read() -> None:
    world = World()
    consumer = world.consumer()
    producer = world.producer()
    world.topic().publish(producer, [(0, 0, 1, JUNK, False, False)])
    world.topic().terminate()
    world.broker.pump()
    assert world.client.ended == []
    world.settle()
    assert world.client.take() == [0]
    assert world.client.ended == []
    world.subscription().ack(0)
    world.settle()
    assert world.client.ended == [consumer.name]


def test_an_ack_after_a_redelivery_request_for_everything() -> None:
    world = World()
    world.publish(3)
    consumer = world.consumer(type=EXCLUSIVE)
    world.client.writable = False
    world.subscription().redeliver(consumer, None)
    world.subscription().ack(0)
    world.broker.invariants()
    world.client.writable = True
    world.client.take()
    world.subscription().flow(consumer, 10)
    world.settle()
    assert world.client.take() == [1, 2]


@pytest.mark.parametrize("target", [0, 1])
def test_a_seek_reverts_acks_stored_before_the_last_ones(target: int) -> None:
    """They stayed on disk when the cursor passed them and came back within one group: lost after a crash."""
    world = World()
    world.publish(4)
    world.consumer()
    world.subscription().ack(2)
    world.settle()  # entry 2 has its own key now
    world.subscription().ack(0)
    world.subscription().ack(1)
    world.subscription().seek(target)
    world.settle()
    again = world.restart()
    again.consumer()
    assert again.client.take() == [0, 1, 2, 3][target:]


def test_the_former_active_consumer_leaves_while_its_successor_waits() -> None:
    world = World(activeConsumerFailoverDelayTimeMillis=1000)
    world.publish(3)
    former = world.consumer(type=FAILOVER, name="former", priority=1, client=(old := Client()))
    assert old.take() == [0, 1, 2]
    world.consumer(type=FAILOVER, name="successor", priority=0, client=(new := Client()))
    world.topic().remove_consumer(former)
    world.broker.invariants()  # its entries were in no place
    world.advance(seconds=2)
    assert new.take() == [0, 1, 2]


def test_a_clock_set_back_does_not_prolong_a_hand_over() -> None:
    world = World(activeConsumerFailoverDelayTimeMillis=1000)
    world.publish(3)
    world.consumer(type=FAILOVER, name="former", priority=1)
    successor = world.consumer(type=FAILOVER, name="successor", priority=0, client=(new := Client()))
    assert new.take() == []
    world.clock.jump(hours=-1)
    world.subscription().flow(successor, 1)
    world.advance(milliseconds=999)
    assert new.take() == []
    world.advance(milliseconds=1)
    assert new.take() == [0, 1, 2]


def test_a_hand_over_ends_when_all_consumers_leave() -> None:
    world = World(activeConsumerFailoverDelayTimeMillis=1000)
    world.publish(3)
    former = world.consumer(type=FAILOVER, name="former", priority=1)
    successor = world.consumer(type=FAILOVER, name="successor", priority=0)
    for consumer in (former, successor):
        world.topic().remove_consumer(consumer)
    world.client.take()
    world.consumer(type=EXCLUSIVE)
    assert world.client.take() == [0, 1, 2]


def test_a_seek_into_a_trimmed_batch_takes_the_next_one_whole() -> None:
    world = World(managedLedgerMinLedgerRolloverTimeMinutes=0)
    world.publish(2, messages=3)
    session = session_of(world)
    subscribe = pb.CommandSubscribe(
        topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
    )
    session.receive(encode_frame(Command(type=Command.SUBSCRIBE, subscribe=subscribe)))
    world.settle()
    world.subscription().seek(1)
    world.topic().trim(START_MS + 1)
    assert world.topic().log.first == 1
    session.receive(encode_frame(Command(type=Command.SUBSCRIBE, subscribe=subscribe)))
    target = pb.MessageIdData(ledgerId=world.topic().ledger_id, entryId=0, ack_set=[0b100])
    seek = pb.CommandSeek(consumer_id=1, request_id=2, message_id=target)
    session.receive(encode_frame(Command(type=Command.SEEK, seek=seek)))
    assert world.subscription().cursor.mark_delete == 0
    assert world.subscription().cursor.open_bits(0) is None


def test_a_seek_past_all_messages_of_its_batch() -> None:
    world = World()
    world.publish(2, messages=3)
    world.consumer(permits=0)
    world.subscription().seek(0, 0b1000)
    world.broker.invariants()
    world.consumer()
    assert world.client.take() == [1]


def test_a_batch_with_more_messages_than_compressed_bytes() -> None:
    world = World()
    session = session_of(world)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=1000)
    blob = build_blob(metadata, b"well compressed")
    producer = pb.CommandProducer(topic="t", producer_id=1, request_id=1)
    session.receive(encode_frame(Command(type=Command.PRODUCER, producer=producer)))
    send = pb.CommandSend(producer_id=1, sequence_id=0, num_messages=1000)
    session.receive(encode_frame_with_blob(Command(type=Command.SEND, send=send), blob))
    world.settle()
    assert world.topic().messages_in == 1000


@pytest.mark.parametrize("type", [SHARED, KEY_SHARED, EXCLUSIVE, FAILOVER])
def test_dl13_suspects_are_isolated_in_groups_before_they_are_isolated_alone(type: SubscriptionType) -> None:
    """One by one, a thousand took minutes with a client that acknowledges ten times a second."""
    world = World()
    world.publish(100, keys=["a", "b", "c"])
    world.topic().create_subscription(SubscribeRequest("s", from_earliest=True))
    world.subscription().set_dead_letter_policy(DeadLetterPolicy(1), "test")
    held: list[int] = []
    for crash in range(5):
        consumer = world.consumer(type=type, name=f"c{crash}")
        held.append(len(consumer.pending))
        world.topic().remove_consumer(consumer, vanished=True)
    assert held == [100, 100, FEW, 1, 1]


@pytest.mark.parametrize("type", [SHARED, KEY_SHARED, EXCLUSIVE, FAILOVER])
def test_dl13_a_consumer_that_needs_more_messages_before_it_acknowledges_is_not_stuck(type: SubscriptionType) -> None:
    world = World()
    world.publish(20, keys=["a"])
    world.topic().create_subscription(SubscribeRequest("s", from_earliest=True))
    world.subscription().set_dead_letter_policy(DeadLetterPolicy(9), "test")
    for crash in range(3):
        consumer = world.consumer(type=type, name=f"c{crash}")
        world.topic().remove_consumer(consumer, vanished=True)
    consumer = world.consumer(type=type)
    for held in (1, 20):
        assert len(consumer.pending) == held
        world.advance(milliseconds=ALONE_PATIENCE_MS)
    world.advance(milliseconds=ALONE_PATIENCE_MS)
    world.topic().remove_consumer(consumer)
    assert len(world.consumer(type=type).pending) == 1  # isolation resumes


@pytest.mark.parametrize("type", [EXCLUSIVE, FAILOVER])
def test_dl11_acks_after_a_redelivery_request_clear_their_messages(type: SubscriptionType) -> None:
    """The Python client requests redelivery of everything and sends earlier acks up to 100 ms later."""
    world = World()
    world.publish(4)
    consumer = world.consumer(type=type)
    world.subscription().set_dead_letter_policy(DeadLetterPolicy(1), "test")
    world.client.take()
    for again in ([2, 3], [3]):
        world.subscription().redeliver(consumer, None)  # 0 and 1 are handled, 2 failed
        world.settle()
        assert world.client.take() == []  # nothing may overtake redelivered messages
        world.advance(milliseconds=100)
        world.subscription().ack_cumulative(1)
        world.advance(milliseconds=50)
        assert world.client.take() == again
    assert world.subscription().dead_letters.moved.total() == 1


@pytest.mark.parametrize("open_bits", [0b111, 0b110])
def test_dl5_messages_that_a_batch_does_not_have_are_not_counted(open_bits: int) -> None:
    """A client that repeatedly named one made the broker dead-letter nothing, which failed."""
    world = World()
    world.publish(1, messages=3)
    consumer = world.consumer()
    world.subscription().set_dead_letter_policy(DeadLetterPolicy(1), "test")
    world.subscription().ack(0, open_bits=open_bits)
    named = 0b1001 & ~open_bits | 0b1000  # acknowledged, or nonexistent
    for _ in range(3):
        world.subscription().redeliver(consumer, [0], indexes={0: named})
        world.settle()
    assert [delivery[:2] for _, delivery in world.client.delivered] == [(0, 0)] * 4
    assert world.subscription().backlog == 1


@pytest.mark.parametrize("rest_ms", [1000, 90_000])
def test_a_delayed_message_that_backs_off_waits_for_both(rest_ms: int) -> None:
    """After a failure in an ordered type, which ignores delays, the next consumer waited for only one of the two."""
    delay_ms = 60_000
    world = World()
    world.publish(1, deliver_at_ms=world.clock.now_ms() + delay_ms)
    consumer = world.consumer(type=EXCLUSIVE)
    subscription = world.subscription()
    world.topic().save_subscription(subscription, msgspec.structs.replace(subscription.record, backoff_ms=[rest_ms]))
    subscription.redeliver(consumer, [0])
    world.topic().remove_consumer(consumer)
    world.client.take()
    world.consumer(type=SHARED)
    for milliseconds in (min(rest_ms, delay_ms), 100, max(rest_ms, delay_ms) - min(rest_ms, delay_ms) - 101):
        world.advance(milliseconds=milliseconds)
        assert world.client.take() == []
    world.advance(milliseconds=100)
    assert world.client.take() == [0]


def test_expired_messages_are_not_moved_after_their_subscription_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters are moved in several turns: some came from a deleted subscription."""
    monkeypatch.setattr("magnetar.broker.topic.expiry._MOVED_PER_TURN", 2)
    world = World()
    world.publish(5)
    world.topic().create_subscription(SubscribeRequest("s", from_earliest=True))
    dead_letter_up_to(world.topic(), world.subscription(), 4, Reason.Expired, "It was too old.")
    world.topic().delete_subscription("s", force=True)
    world.advance(seconds=1)
    assert world.topic("t-s-DLQ").log.confirmed == 1
    kept = world.storage.scan(Space.STATE, keys.POSITION, keys.after(keys.POSITION))
    assert list(kept) == []


def test_a_topic_is_trimmed_under_a_reader_that_waits_for_delayed_messages() -> None:
    """Messages just taken for redelivery were in no place at that moment, and counted as delayed."""
    world = World()
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 60_000)
    world.publish(3)
    reader = world.consumer("reader", durable=False)
    assert world.client.take() == [1, 2, 3]
    world.client.writable = False
    subscription = world.subscription("reader")
    subscription.redeliver(reader, None)
    world.topic().log.trim(world.broker.commits.batch(), 2)
    world.client.writable = True
    subscription.flow(reader, 0)
    world.settle()  # checks every place
    assert world.client.take() == [2, 3]


def session_of(world: World) -> Session:
    session = Session(world.broker, ClientAddress("10.0.0.1:5000", "", ""), lambda: None, lambda: None)
    connect = pb.CommandConnect(client_version="test")
    session.receive(encode_frame(Command(type=Command.CONNECT, connect=connect)))
    return session
