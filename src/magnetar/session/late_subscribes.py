"""SUBSCRIBE requests that wait for their subscribe rate, and are handled when it allows them.

A refusal would be no delay: the C++ client, and those built on it, do not try again on a connection that they have. A
client that gives up closes the consumer or sends the request again; the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.bounds import LATE_SUBSCRIBES
from magnetar.errors import ServiceNotReady
from magnetar.session.handles import Command

if TYPE_CHECKING:
    from magnetar.session.session import Session

_LOOK_MS = 1000  # the rate may have changed since


class LateSubscribes:
    """Those of one connection, by consumer id; None for one that the client has closed since.

    Its place is kept until the next look: each has one timer, however often a client changes its mind.
    """

    __slots__ = ("_commands", "_session")

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session
        self._commands: dict[int, Command | None] = {}

    def wait(self, command: Command, wait_ms: int) -> None:
        assert self._session is not None
        consumer_id, broker = command.subscribe.consumer_id, self._session.broker
        if consumer_id not in self._commands:
            if len(self._commands) >= LATE_SUBSCRIBES.limit:
                raise ServiceNotReady(
                    f"{len(self._commands)} consumers of this connection wait for their subscribe rate,"
                    f" the limit is {LATE_SUBSCRIBES.limit}"
                )
            broker.wake_after(min(wait_ms, _LOOK_MS), lambda: self._wake(consumer_id))
        self._commands[consumer_id] = command

    def cancel(self, consumer_id: int) -> None:
        if consumer_id in self._commands:
            self._commands[consumer_id] = None

    def end(self) -> None:
        """The connection is lost: its timers hold nothing of it."""
        self._session = None
        self._commands.clear()

    def _wake(self, consumer_id: int) -> None:
        command = self._commands.pop(consumer_id, None)
        if command is not None and self._session is not None:
            self._session.handle(command)
