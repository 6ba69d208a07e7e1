"""A scripted broker over a real socket: an older, redirecting or broken one, with TLS if it is given a context."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame

Command = pb.BaseCommand
_PATIENCE_S = 10.0

Answer = Callable[["FakeBroker", Command], "Command | bytes | None"]


class FakeBroker:
    """`received` has the commands of all connections. `answer` returns the response, or None for the usual one."""

    def __init__(
        self, answer: Answer, *, flag: bool, greeting: bytes | None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.received: list[Command] = []
        self._answer = answer
        self._flag = flag
        self._greeting = greeting
        self._tls = tls
        self._entry_ids = count()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"{'pulsar+ssl' if tls else 'pulsar'}://{self.address}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def has_received(self, *types: str) -> bool:
        """Whether these commands come last, now or soon: commands without a response may still be in transit."""
        until_s = time.monotonic() + _PATIENCE_S
        while tuple(self.types()[-len(types) :]) != types and time.monotonic() < until_s:
            time.sleep(0.01)
        return tuple(self.types()[-len(types) :]) == types

    def types(self) -> list[str]:
        return [Command.Type.Name(command.type) for command in self.received]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError), accepted:
            connection = self._tls.wrap_socket(accepted, server_side=True) if self._tls else accepted
            self._sockets.append(connection)
            self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        decoder = FrameDecoder(64 << 20)
        with connection:
            while data := connection.recv(1 << 16):
                for repeated, _ in decoder.receive_data(data):
                    command = _next_send(self.received) if repeated is None else repeated
                    self.received.append(command)
                    reply = self._answer(self, command)
                    reply = self._usual(command) if reply is None else reply
                    connection.sendall(reply if isinstance(reply, bytes) else encode_frame(reply))

    def _usual(self, command: Command) -> Command | bytes:
        if command.type == Command.CONNECT:
            if self._greeting is not None:
                return self._greeting
            connected = pb.CommandConnected(server_version="Fake 1", protocol_version=19, max_message_size=1000)
            if self._flag:
                connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
            return Command(type=Command.CONNECTED, connected=connected)
        if command.type == Command.PARTITIONED_METADATA:
            return metadata_response(command, 0)
        if command.type == Command.LOOKUP:
            return lookup_response(command, self.url)
        if command.type == Command.PRODUCER:
            success = pb.CommandProducerSuccess(request_id=command.producer.request_id, producer_name="fake")
            return Command(type=Command.PRODUCER_SUCCESS, producer_success=success)
        if command.type == Command.SEND:
            receipt = pb.CommandSendReceipt(
                producer_id=command.send.producer_id,
                sequence_id=command.send.sequence_id,
                message_id=pb.MessageIdData(ledgerId=1, entryId=next(self._entry_ids)),
            )
            return Command(type=Command.SEND_RECEIPT, send_receipt=receipt)
        if command.type in (Command.CLOSE_PRODUCER, Command.CLOSE_CONSUMER, Command.SUBSCRIBE):
            for part in (command.close_producer, command.close_consumer, command.subscribe):
                if part.HasField("request_id"):
                    return Command(type=Command.SUCCESS, success=pb.CommandSuccess(request_id=part.request_id))
        return b""

    def send(self, data: bytes) -> None:
        """Sends on every connection."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.sendall(data)

    def drop(self) -> None:
        """Closes every connection."""
        sockets, self._sockets = self._sockets, []
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(5)


def _next_send(received: list[Command]) -> Command:
    """A SEND that the decoder recognised as the previous one with the next sequence id."""
    command = Command()
    command.CopyFrom(next(last for last in reversed(received) if last.type == Command.SEND))
    command.send.sequence_id += 1
    return command


def metadata_response(command: Command, partitions: int) -> Command:
    response = pb.CommandPartitionedTopicMetadataResponse(
        request_id=command.partitionMetadata.request_id,
        partitions=partitions,
        response=pb.CommandPartitionedTopicMetadataResponse.Success,
    )
    return Command(type=Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response)


def metadata_failure(command: Command, code: pb.ServerError.ValueType, text: str = "") -> Command:
    response = pb.CommandPartitionedTopicMetadataResponse(
        request_id=command.partitionMetadata.request_id,
        response=pb.CommandPartitionedTopicMetadataResponse.Failed,
        error=code,
        message=text,
    )
    return Command(type=Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response)


def lookup_response(command: Command, url: str, *, redirect: bool = False, proxy: bool = False) -> Command:
    kind = pb.CommandLookupTopicResponse
    field = "brokerServiceUrlTls" if url.startswith("pulsar+ssl") else "brokerServiceUrl"
    response = kind(
        **{field: url},  # type: ignore[arg-type]
        request_id=command.lookupTopic.request_id,
        response=kind.Redirect if redirect else kind.Connect,
        authoritative=True,
        proxy_through_service_url=proxy,
    )
    return Command(type=Command.LOOKUP_RESPONSE, lookupTopicResponse=response)


def nothing_unusual(broker: FakeBroker, command: Command) -> None:
    return None


@contextlib.contextmanager
def fake_broker(
    answer: Answer = nothing_unusual,
    *,
    flag: bool = True,
    greeting: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[FakeBroker]:
    broker = FakeBroker(answer, flag=flag, greeting=greeting, tls=tls)
    try:
        yield broker
    finally:
        broker.close()
