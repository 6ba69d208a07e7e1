"""Frames: bytes from a connection become commands, commands become bytes.

Owns the outer layout. Knows nothing of sockets, sessions, or the content of a blob (see `metadata`).

    ┌────────────┬──────────────┬─────────────┬───────────────────────────────────────────────┐
    │ total size │ command size │ BaseCommand │ blob: only after SEND and MESSAGE             │
    │ u32        │ u32          │ protobuf    │ [0x0e02 …] [0x0e01 crc32c] metadata, payload  │
    └────────────┴──────────────┴─────────────┴───────────────────────────────────────────────┘

The total counts everything after itself; integers are big-endian.
"""

from __future__ import annotations

from struct import Struct

from google.protobuf.message import DecodeError

from magnetar.wire.command_text import text_fault
from magnetar.wire.schema_pb2 import BaseCommand, CommandPing, CommandPong
from magnetar.wire.templates import NextMessage, NextSend

Frame = tuple[BaseCommand | None, bytes | None]
"""A command and its blob. None stands for the last followed command (see `FrameDecoder`) with the next id."""

_SIZES = Struct(">II")

_FIELD_OF_TYPE = {field.number: field.name for field in BaseCommand.DESCRIPTOR.fields}

# Not checked for missing fields and texts: too frequent for a check that takes longer than the parsing itself
# (absent ids read as 0 and are unknown to the session, and of texts they only have properties that are never read), or
# without content.
_UNEXAMINED = frozenset(
    (
        BaseCommand.SEND,
        BaseCommand.SEND_RECEIPT,
        BaseCommand.MESSAGE,
        BaseCommand.ACK,
        BaseCommand.FLOW,
        BaseCommand.PING,
        BaseCommand.PONG,
    )
)


_HTTP_METHODS = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC"))


class FrameError(ValueError):
    """Bytes that are not a frame of the protocol; the rest of the connection cannot be decoded."""


class HttpInstead(FrameError):
    """HTTP at a port of the binary protocol, or the reverse."""


class FrameDecoder:
    """Bytes in, frames out, in whatever pieces they arrive.

    The good frames before a bad one are returned, `error` is set, and all later data is ignored.

    A producer that does not batch repeats its SEND with the next sequence id, a broker its MESSAGE with the next entry
    id. Comparing the bytes with the expected ones takes a third of the time of parsing them and reading their fields.
    `followed` says which of the two to expect.

    With a budget the decoder stops in the middle of its data, `has_rest` is set, and the next call goes on from there,
    with or without more data. A SEND costs nothing, an ACK or another command of one small effect 1, all others 10.
    """

    __slots__ = (
        "_command_size_max",
        "_followed",
        "_missing_size",
        "_next",
        "_pieces",
        "_start",
        "error",
        "frame_size_max",
        "has_rest",
    )

    def __init__(
        self,
        frame_size_max: int,
        *,
        command_size_max: int = 0,
        followed: BaseCommand.Type.ValueType = BaseCommand.SEND,
    ) -> None:
        self.frame_size_max = frame_size_max
        self._command_size_max = command_size_max or frame_size_max
        # The start of an unfinished frame. The pieces are joined when they are complete and not before:
        # a large frame is copied once, not once per read.
        self._pieces: list[bytes] = []
        self._missing_size = 0
        self._start = 0  # of the rest, in the only piece
        self.has_rest = False
        self._followed = followed
        self._next: NextSend | NextMessage = NextMessage() if followed == BaseCommand.MESSAGE else NextSend()
        self.error: FrameError | None = None

    def receive_data(self, data: bytes, budget: int = 1 << 62) -> list[Frame]:
        # The hottest loop of the program: one function, locals only, and no copy of the rest of the read.
        frames: list[Frame] = []
        if self._pieces:
            data = self._joined(data)
        if self.error is not None or not data:
            return frames

        parse = BaseCommand.FromString
        unpack_sizes = _SIZES.unpack_from
        append = frames.append
        unexamined = _UNEXAMINED
        followed = self._followed
        expected = self._next
        frame_size_max = self.frame_size_max
        command_size_max = self._command_size_max
        start, self._start, self.has_rest = self._start, 0, False
        end = len(data)
        wanted = 8
        try:
            while end - start >= 8:
                total_size, command_size = unpack_sizes(data, start)
                if total_size > frame_size_max:
                    raise _oversize_fault(total_size, frame_size_max)
                command_end = start + 8 + command_size
                frame_end = start + 4 + total_size
                if command_end > frame_end:
                    raise FrameError(_size_fault(total_size, command_size))
                if frame_end > end:
                    wanted = 4 + total_size
                    break
                body = data[start + 8 : command_end]
                if body == expected.body:
                    expected.advance()
                    append((None, data[command_end:frame_end] if frame_end > command_end else None))
                    start = frame_end
                    continue
                if command_size > command_size_max:
                    raise FrameError(f"command of {command_size} bytes exceeds the limit of {command_size_max} bytes")
                command = parse(body)
                if command.type == followed:
                    expected.follow(command, body)
                elif command.type in unexamined:
                    budget -= 1
                elif fault := _command_fault(command):
                    raise FrameError(fault)
                else:
                    budget -= 10
                append((command, data[command_end:frame_end] if frame_end > command_end else None))
                start = frame_end
                if budget <= 0:
                    break
        except DecodeError:
            self.error = FrameError(f"command of {command_size} bytes is not a protobuf BaseCommand")
        except FrameError as error:
            self.error = error
        else:
            if start < end:
                self._keep(data, start, wanted if budget > 0 else 0)
        return frames

    def _keep(self, data: bytes, start: int, wanted: int) -> None:
        """Keeps the rest of the data: the start of a frame of `wanted` bytes, or with 0 what the next call goes on
        with."""
        if wanted:
            self._pieces.append(data[start:])
            self._missing_size = wanted - (len(data) - start)
        else:
            self._pieces.append(data)
            self._start, self._missing_size, self.has_rest = start, 0, True

    def _joined(self, data: bytes) -> bytes:
        """The pieces and `data`; nothing as long as the frame is not complete."""
        pieces = self._pieces
        if data:
            pieces.append(data)
            self._missing_size -= len(data)
        if self._missing_size > 0:
            return b""
        data = b"".join(pieces)
        pieces.clear()
        return data


def _oversize_fault(total_size: int, size_max: int) -> FrameError:
    """The size of a frame that is text of HTTP says so itself."""
    word = total_size.to_bytes(4)
    if word == b"HTTP":
        return HttpInstead("the reply is HTTP: this is an HTTP port, the binary protocol has another (usually 6650)")
    if word in _HTTP_METHODS:
        return HttpInstead("the request is HTTP: this is a port of the binary protocol, HTTP has another (8080)")
    return FrameError(f"frame of {total_size} bytes exceeds the limit of {size_max} bytes")


def _size_fault(total_size: int, command_size: int) -> str:
    if total_size < 4:
        return f"frame of {total_size} bytes is below the 4 bytes of a command size"
    return f"command of {command_size} bytes exceeds its frame of {total_size} bytes"


def _command_fault(command: BaseCommand) -> str | None:
    """The fault of a parsed command: protobuf reports neither unknown types, nor missing fields, nor texts in another
    encoding."""
    if not command.HasField("type"):
        return "command has no type, or an unknown one"
    field = _FIELD_OF_TYPE[command.type]
    if not command.HasField(field):  # type: ignore[arg-type]  # the stubs want a literal
        return f"command of type {BaseCommand.Type.Name(command.type)} has no {field}"
    if not command.IsInitialized():
        missing = ", ".join(command.FindInitializationErrors())  # type: ignore[attr-defined]  # the stubs lack it
        return f"command of type {BaseCommand.Type.Name(command.type)} lacks {missing}"
    fault = text_fault(getattr(command, field))
    return None if fault is None else f"{fault}, in a command of type {BaseCommand.Type.Name(command.type)}"


def encode_frame(command: BaseCommand) -> bytes:
    body = command.SerializeToString()
    size = len(body)
    return _SIZES.pack(size + 4, size) + body


def encode_frame_with_blob(command: BaseCommand, blob: bytes) -> bytes:
    body = command.SerializeToString()
    size = len(body)
    return b"".join((_SIZES.pack(size + 4 + len(blob), size), body, blob))


PING = encode_frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
PONG = encode_frame(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
