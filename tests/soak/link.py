"""A connection of the load: producers or consumers of some topics, on one socket, without a client library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import cast

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import PONG, FrameDecoder, encode_frame

Command = pb.BaseCommand
HOST = "127.0.0.1"
ANSWER_TIMEOUT_S = 120.0
_FRAME_SIZE_MAX = 16 << 20
_CONNECT = encode_frame(
    Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="soak", protocol_version=21))
)


class Refused(Exception):
    """An error of the broker in reply to a request."""


class Link(asyncio.Protocol):
    """`on_frame` gets every command that is not a reply. `on_lost` is called unless the connection was ended here."""

    def __init__(self, on_frame: Callable[[Command, bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._decoder = FrameDecoder(_FRAME_SIZE_MAX)
        self._requests = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._is_ended = False

    @classmethod
    async def open(cls, port: int, on_frame: Callable[[Command, bytes], None], on_lost: Callable[[], None]) -> Link:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            _, link = await loop.create_connection(lambda: cls(on_frame, on_lost), HOST, port)
            await link._connected
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_CONNECT)

    def data_received(self, data: bytes) -> None:
        for command, blob in self._decoder.receive_data(data):
            assert command is not None
            self._handle(command, blob or b"")
        if self._decoder.error is not None:
            raise self._decoder.error

    def _handle(self, command: Command, blob: bytes) -> None:
        kind = command.type
        if kind == Command.SUCCESS:
            self._answered(command.success.request_id)
        elif kind == Command.PRODUCER_SUCCESS:
            self._answered(command.producer_success.request_id)
        elif kind == Command.ERROR:
            self._answered(command.error.request_id, Refused(command.error.message))
        elif kind == Command.CONNECTED:
            self._connected.set_result(None)
        elif kind == Command.PING:
            self.write(PONG)
        else:
            self._on_frame(command, blob)

    def _answered(self, request_id: int, error: Refused | None = None) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def request(self, make: Callable[[int], Command]) -> None:
        """Sends the command for a new request id and waits for its reply; raises Refused or ConnectionError."""
        request_id = next(self._requests)
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self.write(encode_frame(make(request_id)))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await waiting

    def end(self) -> None:
        """Drops the connection, as a client that is killed."""
        self._is_ended = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        lost = ConnectionError("the connection ended")
        for waiting in (*self._waiting.values(), self._connected):
            if not waiting.done():
                waiting.set_exception(lost)
                waiting.exception()  # it may have no reader any more
        self._waiting.clear()
        if not self._is_ended:
            self._on_lost()
