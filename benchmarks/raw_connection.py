"""A minimal client: one blocking connection that sends commands and reads responses, for rows beyond pulsar-perf.

Sends the same bytes to both brokers. Keeps no producers or consumers; the caller counts the responses.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import TracebackType

from magnetar.wire.frames import PONG, Frame, FrameDecoder, encode_frame
from magnetar.wire.schema_pb2 import BaseCommand, CommandConnect

HOST = "127.0.0.1"
PROTOCOL_VERSION = 21
FRAME_SIZE_MAX = 16 * 1024 * 1024


class RawConnection:
    """Connects on construction: returns after CONNECTED, or raises OSError."""

    def __init__(self, port: int, timeout_s: float = 60.0, token: str = "") -> None:
        self._socket = socket.create_connection((HOST, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder(FRAME_SIZE_MAX)
        hello = CommandConnect(client_version="magnetar-bench", protocol_version=PROTOCOL_VERSION)
        if token:
            hello.auth_method_name, hello.auth_data = "token", token.encode()
        try:
            self.send(encode_frame(BaseCommand(type=BaseCommand.CONNECT, connect=hello)))
            for command, _ in self.answers():
                if command.type != BaseCommand.CONNECTED:
                    raise ConnectionError(f"the response to CONNECT is {BaseCommand.Type.Name(command.type)}")
                break
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answers(self) -> Iterator[Frame]:
        """Yields every frame until the caller stops; replies to pings."""
        while True:
            data = self._socket.recv(256 * 1024)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for frame in self._decoder.receive_data(data):
                if frame[0].type == BaseCommand.PING:
                    self.send(PONG)
                else:
                    yield frame
            if self._decoder.error is not None:
                raise self._decoder.error
