"""A client that sends arbitrary commands, valid or not, over a real socket."""

from __future__ import annotations

import socket
from typing import ClassVar

from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob

Command = pb.BaseCommand


class RawClient:
    """Every client that was opened is in `opened`, for a fixture to close with `close_all`."""

    opened: ClassVar[list[RawClient]] = []

    def __init__(self, broker: TestBroker, *, connect: bool = True, source: str = "127.0.0.1") -> None:
        host, port = broker.service_url.removeprefix("pulsar://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10, source_address=(source, 0))
        self.opened.append(self)
        self._decoder = FrameDecoder(64 << 20)
        self._frames: list[tuple[Command, bytes | None]] = []
        if connect:
            self.send_command(
                Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21))
            )
            assert self.receive().type == Command.CONNECTED

    def send_command(self, command: Command) -> None:
        self.socket.sendall(encode_frame(command))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> tuple[Command, bytes | None]:
        while not self._frames:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("closed by the broker")
            self._frames += self._decoder.receive_data(data)
        return self._frames.pop(0)

    def receive(self) -> Command:
        return self.receive_frame()[0]

    def is_closed(self) -> bool:
        """Waits for the broker to close the connection, ignoring its output."""
        try:
            while True:
                self.receive_frame()
        except (ConnectionError, TimeoutError) as error:
            return not isinstance(error, TimeoutError)

    def produce_to(self, topic: str, producer_id: int = 1) -> None:
        self.send_command(
            Command(
                type=Command.PRODUCER,
                producer=pb.CommandProducer(topic=topic, producer_id=producer_id, request_id=producer_id),
            )
        )
        reply = self.receive()
        assert reply.type == Command.PRODUCER_SUCCESS, reply

    def subscribe_to(self, topic: str, consumer_id: int = 1, permits: int = 1000, **options: object) -> None:
        request = pb.CommandSubscribe(
            topic=topic, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=consumer_id, request_id=7
        )
        for name, value in options.items():
            setattr(request, name, value)
        self.send_command(Command(type=Command.SUBSCRIBE, subscribe=request))
        reply = self.receive()
        assert reply.type == Command.SUCCESS, reply
        self.send_command(
            Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))
        )

    def send(self, sequence_id: int, payload: bytes = b"x", producer_id: int = 1, messages: int = 1) -> None:
        self.send_bytes(send_frame(sequence_id, payload, producer_id, messages))

    def close(self) -> None:
        self.socket.close()

    @classmethod
    def close_all(cls) -> None:
        for client in cls.opened:
            client.close()
        cls.opened.clear()


def send_frame(sequence_id: int, payload: bytes = b"x", producer_id: int = 1, messages: int = 1) -> bytes:
    metadata = pb.MessageMetadata(producer_name="raw", sequence_id=sequence_id, publish_time=1)
    if messages != 1:
        metadata.num_messages_in_batch = messages
    send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=messages)
    return encode_frame_with_blob(Command(type=Command.SEND, send=send), build_blob(metadata, payload))
