"""Rate limits as a client meets them: a connection that is not read, and a SUBSCRIBE that is answered later."""

from __future__ import annotations

import gc
import weakref

import pytest

from magnetar.bounds import FRAMES_OVER_RATE, LATE_SUBSCRIBES
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.broker.world import World

Command = pb.BaseCommand


class Talk:
    """A client without a socket."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.outputs = 0
        self.session = Session(world.broker, ClientAddress("10.0.0.9:1", "", ""), self._on_output, lambda: None)
        connect = pb.CommandConnect(client_version="t", protocol_version=21)
        self.request(Command(type=Command.CONNECT, connect=connect))

    def _on_output(self) -> None:
        self.outputs += 1

    def request(self, command: Command, blob: bytes | None = None) -> list[Command]:
        frame = encode_frame(command) if blob is None else encode_frame_with_blob(command, blob)
        self.session.receive(frame)
        return self.answers()

    def answers(self) -> list[Command]:
        self.world.settle()
        decoder = FrameDecoder(1 << 20)
        return [answer for answer, _ in decoder.receive_data(b"".join(self.session.take_output())) if answer]

    def subscribe(self, consumer_id: int = 1, request_id: int = 1) -> list[Command]:
        subscribe = pb.CommandSubscribe(
            topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=consumer_id,
            request_id=request_id, consumer_name="c",
        )  # fmt: skip
        return self.request(Command(type=Command.SUBSCRIBE, subscribe=subscribe))

    def close(self, consumer_id: int = 1, request_id: int = 9) -> list[Command]:
        close = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
        return self.request(Command(type=Command.CLOSE_CONSUMER, close_consumer=close))

    def produce(self) -> None:
        producer = pb.CommandProducer(topic="t", producer_id=1, request_id=1)
        self.request(Command(type=Command.PRODUCER, producer=producer))

    def send(self, number: int) -> list[Command]:
        blob = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1), b"x" * 100)
        send = pb.CommandSend(producer_id=1, sequence_id=number)
        return self.request(Command(type=Command.SEND, send=send), blob)


def test_a_session_over_its_publish_rate_is_held_and_released() -> None:
    talk = Talk(World(maxPublishRatePerTopicInMessages=10))
    talk.produce()
    for number in range(10):
        assert not talk.session.holds
        assert len(talk.send(number)) == 1  # the receipt comes at once
    assert talk.session.holds
    outputs = talk.outputs
    talk.world.advance(milliseconds=100)
    assert not talk.session.holds
    assert talk.outputs == outputs + 1  # the connection is asked to look


def test_a_connection_that_is_lost_waits_for_nothing() -> None:
    world = World(maxPublishRatePerTopicInMessages=1)
    talk = Talk(world)
    talk.produce()
    talk.send(0)
    (limit,) = talk.session.holds
    assert limit.waiting == 1
    talk.session.connection_lost()
    assert limit.waiting == 0
    world.advance(minutes=10)


def test_a_subscribe_beyond_the_rate_is_answered_when_it_may() -> None:
    talk = Talk(World(subscribeThrottlingRatePerConsumer=1))
    assert [answer.type for answer in talk.subscribe()] == [Command.SUCCESS]
    talk.close()
    assert talk.subscribe(request_id=2) == []
    assert talk.subscribe(request_id=3) == []  # the client gave up waiting and asks again
    for _ in range(29):
        talk.world.advance(seconds=1)
        assert talk.answers() == []
    talk.world.advance(seconds=1)
    (answer,) = talk.answers()
    assert answer.type == Command.SUCCESS and answer.success.request_id == 3
    assert len(talk.world.subscription().consumers) == 1


@pytest.mark.parametrize("days", [-1, 1])
def test_a_subscribe_that_waits_is_answered_in_time_when_the_clock_is_set(days: int) -> None:
    talk = Talk(World(subscribeThrottlingRatePerConsumer=1))
    talk.subscribe()
    talk.close()
    assert talk.subscribe(request_id=2) == []
    talk.world.clock.jump(days=days)
    for _ in range(29):
        talk.world.advance(seconds=1)
        assert talk.answers() == []
    talk.world.advance(seconds=1)
    assert [answer.type for answer in talk.answers()] == [Command.SUCCESS]


def test_a_consumer_that_is_closed_while_it_waits_does_not_subscribe() -> None:
    talk = Talk(World(subscribeThrottlingRatePerConsumer=1))
    talk.subscribe()
    talk.close()
    before = len(talk.world.broker.intervals)
    for _ in range(100):
        assert talk.subscribe(request_id=2) == []
        assert [answer.type for answer in talk.close()] == [Command.SUCCESS]
    assert len(talk.world.broker.intervals) == before + 1
    talk.world.advance(minutes=1)
    assert talk.answers() == [] and talk.world.subscription().consumers == []
    assert [answer.type for answer in talk.subscribe(request_id=4)] == [Command.SUCCESS]


def test_a_subscribe_that_waits_notices_another_rate() -> None:
    talk = Talk(World(subscribeThrottlingRatePerConsumer=1, subscribeRatePeriodPerConsumerInSecond=3600))
    talk.subscribe()
    talk.close()
    assert talk.subscribe(request_id=2) == []
    talk.world.broker.set_dynamic_setting("subscribeThrottlingRatePerConsumer", "0")
    talk.world.advance(seconds=1)
    assert [answer.type for answer in talk.answers()] == [Command.SUCCESS]


def test_a_lost_connection_takes_its_requests_along() -> None:
    world = World(subscribeThrottlingRatePerConsumer=1, subscribeRatePeriodPerConsumerInSecond=3600)
    talk = Talk(world)
    talk.subscribe()
    talk.close()
    talk.subscribe(request_id=2)
    talk.session.connection_lost()
    session = weakref.ref(talk.session)
    del talk
    gc.collect()
    assert session() is None  # the timer does not hold it
    world.advance(hours=2)
    assert world.subscription().consumers == []


def test_bound_late_subscribes() -> None:
    talk = Talk(World(subscribeThrottlingRatePerConsumer=1))
    for consumer_id in range(LATE_SUBSCRIBES.limit + 1):
        talk.subscribe(consumer_id)
        talk.close(consumer_id)
    for consumer_id in range(LATE_SUBSCRIBES.limit):
        assert talk.subscribe(consumer_id) == []
    (answer,) = talk.subscribe(LATE_SUBSCRIBES.limit)
    assert answer.error.message == "1000 consumers of this connection wait for their subscribe rate, the limit is 1000"
    assert answer.error.error == pb.ServiceNotReady


def test_bound_frames_over_rate() -> None:
    """One read has a thousand messages: the rest of them stays with the session until the rate allows it."""
    world = World(maxPublishRatePerTopicInMessages=100)
    talk = Talk(world)
    talk.produce()
    frames = []
    for number in range(1000):
        blob = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1), b"x")
        send = pb.CommandSend(producer_id=1, sequence_id=number)
        frames.append(encode_frame_with_blob(Command(type=Command.SEND, send=send), blob))
    ping = encode_frame(Command(type=Command.PING, ping=pb.CommandPing()))
    talk.session.receive(b"".join([*frames, ping]))
    receipts: list[int] = []
    for passed_ms in range(10_000):
        while talk.session.has_input and not talk.session.holds:
            talk.session.receive(b"")
        answers = talk.answers()
        receipts += [answer.send_receipt.sequence_id for answer in answers if answer.type == Command.SEND_RECEIPT]
        assert len(receipts) <= 100 + passed_ms * 100 // 1000 + FRAMES_OVER_RATE.limit
        if not talk.session.has_input:
            break
        world.advance(milliseconds=1)
    assert receipts == list(range(1000)) and answers[-1].type == Command.PONG
    assert world.topic().log.last == 999


def test_a_limit_that_is_set_later_is_noticed_and_one_that_is_gone_forgotten() -> None:
    talk = Talk(World())
    talk.produce()
    talk.send(0)
    assert not talk.session.is_limited
    talk.world.broker.set_dynamic_setting("maxPublishRatePerTopicInMessages", "100")
    talk.send(1)
    assert talk.session.is_limited
    talk.session.keep_alive()
    assert talk.session.is_limited
    talk.world.broker.remove_dynamic_setting("maxPublishRatePerTopicInMessages")
    talk.session.keep_alive()
    assert not talk.session.is_limited
