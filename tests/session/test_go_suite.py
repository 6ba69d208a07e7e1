"""Bugs in the session found by the Go client's own suite."""

from __future__ import annotations

from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame
from tests.broker.world import World

Command = pb.BaseCommand


class Connection:
    def __init__(self) -> None:
        self.world = World()
        address = ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080")
        self._session = Session(self.world.broker, address, lambda: None, lambda: None)
        connect = pb.CommandConnect(client_version="t", protocol_version=21)
        self.request(Command(type=Command.CONNECT, connect=connect))

    def request(self, command: Command) -> list[Command]:
        self._session.receive(encode_frame(command))
        return self.received()

    def received(self) -> list[Command]:
        self.world.settle()
        frames = FrameDecoder(1 << 20).receive_data(b"".join(self._session.take_output()))
        return [command for command, _ in frames]

    def subscribe(self, **options: object) -> list[Command]:
        request = pb.CommandSubscribe(
            topic="t", subscription="s", subType=pb.CommandSubscribe.Failover, consumer_id=1, request_id=1
        )
        for name, value in options.items():
            setattr(request, name, value)
        return self.request(Command(type=Command.SUBSCRIBE, subscribe=request))

    def flow(self, permits: int = 100) -> list[Command]:
        flow = pb.CommandFlow(consumer_id=1, messagePermits=permits)
        return self.request(Command(type=Command.FLOW, flow=flow))


def types_of(commands: list[Command]) -> list[int]:
    return [command.type for command in commands]


def test_a_failover_consumer_becomes_active_with_its_first_flow() -> None:
    connection = Connection()
    assert types_of(connection.subscribe()) == [Command.SUCCESS]
    commands = connection.flow()
    assert types_of(commands) == [Command.ACTIVE_CONSUMER_CHANGE]
    assert commands[0].active_consumer_change.is_active
    assert connection.flow() == []


def test_a_failover_consumer_without_permits_becomes_active_all_the_same() -> None:
    connection = Connection()
    connection.subscribe()
    connection.world.advance(seconds=1)
    assert types_of(connection.received()) == [Command.ACTIVE_CONSUMER_CHANGE]
    assert connection.flow() == []


def test_a_missing_namespace_has_no_topics() -> None:
    request = pb.CommandGetTopicsOfNamespace(request_id=1, namespace="public/missing")
    commands = Connection().request(Command(type=Command.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))
    assert types_of(commands) == [Command.GET_TOPICS_OF_NAMESPACE_RESPONSE]
    assert commands[0].getTopicsOfNamespaceResponse.topics == []


def test_the_entry_a_reader_starts_at_is_sent() -> None:
    """Only the client knows whether it wants that message, and from which index of a batch."""
    connection = Connection()
    connection.world.publish(5)
    ledger_id = connection.world.topic().ledger_id
    request = pb.CommandSubscribe(
        topic="t",
        subscription="s",
        subType=pb.CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=1,
        durable=False,
        start_message_id=pb.MessageIdData(ledgerId=ledger_id, entryId=2),
    )
    connection.request(Command(type=Command.SUBSCRIBE, subscribe=request))
    assert [command.message.message_id.entryId for command in connection.flow()] == [2, 3, 4]
