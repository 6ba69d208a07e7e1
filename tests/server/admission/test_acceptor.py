"""Acceptors: connections that arrive while the broker stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from magnetar.clock import SystemClock
from magnetar.server.ports.addresses import Ports
from magnetar.server.server import Server
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from tests.server.ports.authority import HOST, Authority


async def _stopped_after(turns: int, authority: Authority, port: str) -> socket.socket:
    """A client that connects so many turns of the loop before the broker stops."""
    settings = Settings(**authority.settings)  # type: ignore[arg-type]
    server = Server(settings, MemoryStorage(), SystemClock(), bind=HOST, ports=Ports(0, 0, 0, 0))
    await server.start()
    client = socket.create_connection((HOST, getattr(server.addresses.ports, port)), timeout=60)
    for _ in range(turns):
        await asyncio.sleep(0)
    await server.close()
    return client


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("port", ["binary", "http", "binary_tls", "http_tls"])
def test_a_connection_that_arrives_while_the_broker_stops_is_closed(
    port: str, new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """It was accepted, and the task that would have opened it was cancelled before its first step."""
    authority = Authority(tmp_path)
    for turns in range(8):
        with warnings.catch_warnings(record=True) as warned, asyncio.Runner(loop_factory=new_loop) as runner:
            warnings.simplefilter("always")
            client = runner.run(_stopped_after(turns, authority, port))
            gc.collect()
            with client, contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        assert [str(one.message) for one in warned if one.category is ResourceWarning] == [], turns
