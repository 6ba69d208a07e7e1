"""Listening sockets. Accepts nothing."""

from __future__ import annotations

import socket

from magnetar.errors import MagnetarError
from magnetar.server.ports.addresses import Ports


class StartError(MagnetarError):
    """A port or the data folder is not available."""


class OpenPorts:
    """The sockets of the ports that are on. `close` is for those that nothing has taken."""

    def __init__(self, bind: str, ports: Ports) -> None:
        """Raises StartError, and then leaves nothing open."""
        self._open: list[socket.socket] = []
        self._bind = bind
        try:
            self.binary = self._listen(ports.binary, "brokerServicePort")
            self.http = self._listen(ports.http, "webServicePort")
            self.binary_tls = self._listen(ports.binary_tls, "brokerServicePortTls")
            self.http_tls = self._listen(ports.http_tls, "webServicePortTls")
        except StartError:
            self.close()
            raise

    @property
    def ports(self) -> Ports:
        return Ports(*(_port_of(one) for one in (self.binary, self.http, self.binary_tls, self.http_tls)))

    def close(self) -> None:
        for listener in self._open:
            listener.close()

    def _listen(self, port: int | None, setting: str) -> socket.socket | None:
        if port is None:
            return None
        family = socket.AF_INET6 if ":" in self._bind else socket.AF_INET
        # Named explicitly: asyncio disables Nagle's algorithm only for sockets with this protocol number.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._open.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._bind, port))
            listener.listen(1024)
        except OSError as error:
            reason = error.strerror or error
            raise StartError(f"cannot listen on {self._bind}:{port} ({setting}): {reason}") from error
        listener.setblocking(False)
        return listener


def _port_of(listener: socket.socket | None) -> int | None:
    return None if listener is None else int(listener.getsockname()[1])
