"""Policies enforced by the session: subscription types and message size."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.names import TopicName
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.broker.world import World

Command = pb.BaseCommand
NOT_ALLOWED = 22


class Talk:
    """A client without a socket, on an existing topic."""

    def __init__(self) -> None:
        self.world = World()
        self.world.topic()
        self.session = Session(self.world.broker, ClientAddress("10.0.0.9:1", "", ""), lambda: None, lambda: None)
        connect = pb.CommandConnect(client_version="t", protocol_version=21)
        self.request(Command(type=Command.CONNECT, connect=connect))

    def request(self, command: Command, blob: bytes | None = None) -> list[Command]:
        frame = encode_frame(command) if blob is None else encode_frame_with_blob(command, blob)
        self.session.receive(frame)
        self.world.settle()
        frames = FrameDecoder(1 << 20).receive_data(b"".join(self.session.take_output()))
        return [answer for answer, _ in frames]

    def subscribe(self, number: int, kind: int) -> Command:
        subscribe = pb.CommandSubscribe(
            topic="t",
            subscription=f"s{number}",
            subType=kind,  # type: ignore[arg-type]
            consumer_id=number,
            request_id=number,
        )
        return self.request(Command(type=Command.SUBSCRIBE, subscribe=subscribe))[0]

    def send(self, number: int, payload: bytes) -> Command:
        blob = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1), payload)
        send = pb.CommandSend(producer_id=1, sequence_id=number)
        return self.request(Command(type=Command.SEND, send=send), blob)[0]


@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_only_subscriptions_of_enabled_types_are_accepted(level: str) -> None:
    talk = Talk()
    catalog = talk.world.broker.catalog
    overrides = Overrides(subscription_types=["Failover", "Shared"])
    if level == "topic":
        catalog.set_overrides(TopicName.parse("t"), overrides)
    else:
        record = catalog.namespaces["public/default"]
        catalog.save_namespace("public/default", msgspec.structs.replace(record, overrides=overrides))
    types = pb.CommandSubscribe
    for number, kind in enumerate((types.Shared, types.Failover), 1):
        assert talk.subscribe(number, kind).type == Command.SUCCESS
    for number, kind in enumerate((types.Exclusive, types.Key_Shared), 3):
        answer = talk.subscribe(number, kind)
        assert answer.type == Command.ERROR and answer.error.error == NOT_ALLOWED
        assert "is not enabled for topic persistent://public/default/t, only Failover, Shared" in answer.error.message
    assert sorted(talk.world.topic().subscriptions) == ["s1", "s2"]


def test_the_message_size_is_limited_at_once_and_per_topic() -> None:
    talk = Talk()
    catalog, name = talk.world.broker.catalog, TopicName.parse("t")
    producer = pb.CommandProducer(topic="t", producer_id=1, request_id=1, producer_name="p")
    talk.request(Command(type=Command.PRODUCER, producer=producer))
    assert talk.send(1, b"x" * 2000).type == Command.SEND_RECEIPT
    catalog.set_overrides(name, Overrides(max_message_size=1000))
    assert talk.send(2, b"x" * 900).type == Command.SEND_RECEIPT
    refused = talk.send(3, b"x" * 2000)
    assert refused.type == Command.SEND_ERROR and "1000" in refused.send_error.message
    catalog.set_overrides(name, Overrides())
    assert talk.send(4, b"x" * 2000).type == Command.SEND_RECEIPT
    assert talk.world.topic().log.last == 2
