"""Notifications to the service manager, by the protocol of systemd: ready, stopping, and signs of life.

    READY=1        ports and HTTP are served
    WATCHDOG=1     at most every half of WATCHDOG_USEC, while timers and commits make progress
    STOPPING=1     the stop has begun

The manager names a datagram socket in NOTIFY_SOCKET; without one nothing is sent. Owns the messages and the socket.
What counts as alive is the judgement of `magnetar.health`, the same as that of `/health/live`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG_PROCESS_VARIABLE = "WATCHDOG_PID"


class Supervisor:
    """A manager that does not answer, or is gone, changes nothing for the broker."""

    def __init__(self, address: str, watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s
        """The longest time without a sign of life; 0 if the manager expects none."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket: socket.socket | None = None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Supervisor:
        """Takes the variables out: they are meant for this process, and not for its children."""
        address = environment.pop(SOCKET_VARIABLE, "")
        microseconds = environment.pop(WATCHDOG_VARIABLE, "")
        process = environment.pop(WATCHDOG_PROCESS_VARIABLE, "") or str(os.getpid())
        is_watched = microseconds.isdecimal() and process == str(os.getpid())
        return cls(address, int(microseconds) / 1_000_000 if is_watched else 0.0)

    def ready(self, status: str) -> None:
        self._send("READY=1", status)

    def stopping(self) -> None:
        self._send("STOPPING=1", "stopping")

    async def watch(self, failures: Callable[[], list[str]]) -> None:
        """Sends signs of life until it is cancelled, none while something fails."""
        while self._address and self.watchdog_s:
            reasons = failures()
            if reasons:
                self._send("", "; ".join(reasons))
            else:
                self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str, status: str = "") -> None:
        if not self._address:
            return
        lines = (state, f"STATUS={' '.join(status.split())}" if status else "")
        message = "\n".join(line for line in lines if line)
        with contextlib.suppress(OSError):
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(message.encode(), self._address)
