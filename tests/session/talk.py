"""A session without a socket, on a world whose host collects faults instead of raising them."""

from __future__ import annotations

from magnetar.broker.host import FaultKind
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.broker.world import World

Command = pb.BaseCommand


class Faults:
    """Errors that no client caused, as the host of a world heard of them."""

    def __init__(self, world: World) -> None:
        self.met: list[tuple[FaultKind, str]] = []
        world.broker.fault = world.host.fault = self._note  # type: ignore[method-assign]

    def _note(self, kind: FaultKind, error: Exception, where: str = "") -> None:
        self.met.append((kind, where))


class Talk:
    """One connected client; `said` are the commands that it got since the last call."""

    def __init__(self, world: World, address: str = "10.0.0.9:1", *, connect: bool = True) -> None:
        self.world = world
        self.closed = False
        self.session = Session(world.broker, ClientAddress(address, "", ""), lambda: None, self._close)
        self._decoder = FrameDecoder(64 << 20)
        if connect:
            self.send(Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21)))
            assert [command.type for command in self.said()] == [Command.CONNECTED]

    def _close(self) -> None:
        self.closed = True

    def send(self, *commands: Command) -> None:
        self.session.receive(b"".join(map(encode_frame, commands)))

    def said(self) -> list[Command]:
        self.world.settle()
        frames = self._decoder.receive_data(b"".join(self.session.take_output()))
        return [command for command, _ in frames if command is not None]

    def ask(self, command: Command) -> Command:
        self.send(command)
        *_, reply = self.said()
        return reply

    def produce(self, topic: str = "t", producer_id: int = 1, **options: object) -> Command:
        request = pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=1, **options)  # type: ignore[arg-type]
        return self.ask(Command(type=Command.PRODUCER, producer=request))

    def subscribe(self, topic: str = "t", consumer_id: int = 1, permits: int = 1000, **options: object) -> Command:
        given = {"subscription": "s", "subType": pb.CommandSubscribe.Shared, **options}
        request = pb.CommandSubscribe(topic=topic, consumer_id=consumer_id, request_id=2, **given)  # type: ignore[arg-type]
        reply = self.ask(Command(type=Command.SUBSCRIBE, subscribe=request))
        if reply.type == Command.SUCCESS and permits:
            self.flow(consumer_id, permits)
        return reply

    def flow(self, consumer_id: int = 1, permits: int = 1000) -> None:
        self.send(Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)))

    def publish(self, sequence_id: int = 0, payload: bytes = b"x", producer_id: int = 1) -> None:
        self.session.receive(send_frame(sequence_id, payload, producer_id))


def send_frame(sequence_id: int = 0, payload: bytes = b"x", producer_id: int = 1, **options: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    if options.get("num_messages", 1) > 1:
        metadata.num_messages_in_batch = options["num_messages"]
    send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, **options)
    return encode_frame_with_blob(Command(type=Command.SEND, send=send), build_blob(metadata, payload))
