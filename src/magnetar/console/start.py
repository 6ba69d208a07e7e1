"""Starting a console: what has to hold first, the server, and the line that says where it is.

Owns the rule for addresses that other machines reach. The extra `console` has the libraries that this needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from magnetar.console.options import ConsoleOptions
from magnetar.errors import InvalidSetting, MagnetarError
from magnetar.settings.addresses import is_loopback

if TYPE_CHECKING:
    import uvicorn

    from magnetar.console.app import Console
    from magnetar.console.rest.admin import BrokerAccess

NEEDS_EXTRA = "the console needs NiceGUI, which is not installed: pip install 'magnetar[console]'"
_SOCKET_MESSAGE_MAX = 1 << 20
_CONNECTIONS_MAX = 2000
_END_S = 3


class CannotStart(MagnetarError):
    """The console does not start."""


def run_console(options: ConsoleOptions, out: Callable[[str], None]) -> int:
    """Serves until it is stopped by a signal; returns the exit code."""
    check_installed()
    listening = _listen(options)
    try:
        asyncio.run(_serve(options, listening, out))
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()
    return 0


def check_installed() -> None:
    """Raises `InvalidSetting` without the extra."""
    if importlib.util.find_spec("nicegui") is None:
        raise InvalidSetting(NEEDS_EXTRA)


def _listen(options: ConsoleOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.bind else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((options.bind, options.port))
    except OSError as error:
        found.close()
        hint = "; --port 0 picks a free one" if options.port else ""
        raise CannotStart(f"cannot listen on {options.bind}:{options.port}: {error.strerror}{hint}") from error
    return found


async def _serve(options: ConsoleOptions, listening: socket.socket, out: Callable[[str], None]) -> None:
    from magnetar.console.rest.admin import BrokerAccess

    await _check_openness(options, BrokerAccess(options.url, options.security))
    from magnetar.console.app import Console  # NiceGUI takes a second to import

    console = Console(options)
    console.gate.port = listening.getsockname()[1]
    server = _server(console)
    if options.until_eof:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _end_at_eof, server)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.02)
    if server.started:
        out(f"console {address_of(options.bind, console.gate.port)}")
    try:
        await serving
    finally:
        await console.gate.close()


def _end_at_eof(server: uvicorn.Server) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        server.should_exit = True


def _server(console: Console) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        """A signal ends it with exit code 0, as it ends the broker."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            yield

    return Server(
        uvicorn.Config(
            console.asgi,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws_max_size=_SOCKET_MESSAGE_MAX,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_END_S,
        )
    )


def address_of(bind: str, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(bind, f"[{bind}]" if ":" in bind else bind)
    return f"http://{host}:{port}"


async def _check_openness(options: ConsoleOptions, broker: BrokerAccess) -> None:
    """Other machines are served if the broker wants a login, or if the operator wants it otherwise."""
    if is_loopback(options.bind):
        return
    if options.without_authentication:
        print(f"magnetar: the console listens on {options.bind} without a login of its own: who reaches it may do what"
              " the broker allows", file=sys.stderr)  # fmt: skip
        return
    from magnetar.console.rest.capabilities import needs_login
    from magnetar.console.rest.errors import BrokerUnreachable

    api = broker.api()
    try:
        if await needs_login(api):
            return
    except BrokerUnreachable as error:
        raise CannotStart(f"--bind {options.bind} needs a broker with authentication: {error}") from error
    finally:
        await api.close()
    raise InvalidSetting(
        f"--bind {options.bind} lets other machines in, and without authentication of the broker any of them can read,"
        " write and delete: enable it (authenticationEnabled=true), or give --without-authentication too"
    )
