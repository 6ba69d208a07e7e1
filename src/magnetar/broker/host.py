"""The host of a broker: what runs it, and is called when there is something to run.

The core never calls itself back, waits or reads a socket; it asks its host to come back later. The server is the host
of a real broker; `ManualHost` is its twin for tests and simulations.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from magnetar.log.events import Event

FaultKind = Literal[
    "command", "publish", "disconnect", "completion", "dispatch", "timer", "maintenance", "task", "http"
]
"""What the broker was doing when it met an error that no client caused."""

_EVENTS_KEPT = 1000


class Host(Protocol):
    def commit_soon(self) -> None:
        """A group of changes is open: take it from `broker.commits` and write it."""

    def pump_soon(self) -> None:
        """Messages may be deliverable: call `broker.pump`."""

    def wake_after(self, delay_ms: int) -> None:
        """A timer is due in `delay_ms`: call `broker.tick` by then, or earlier for another one."""

    def fault(self, kind: FaultKind, error: Exception, where: str = "") -> None:
        """A bug or a read error was met by one thing, such as the topic `where`; the others go on."""

    def run_aside(self, work: Callable[[], object], then: Callable[[], None], client: str) -> None:
        """`work` takes long and touches nothing of the broker: run it in a thread, then call `then` as all else here.

        Clients have their turns. What it raises is dropped: it keeps what it found, and the broker asks again.
        """

    def check_login(self, work: Callable[[], object], then: Callable[[], None], address: str) -> None:
        """The same for the login of a client from an address, which waits for no other kind of work."""

    def event(self, event: Event, **values: object) -> None:
        """A line for the log. Never called once per message."""


class ManualHost:
    """Runs nothing by itself: the test commits, pumps and ticks. A fault ends it; the last events are kept."""

    def __init__(self) -> None:
        self.events: deque[tuple[Event, dict[str, object]]] = deque(maxlen=_EVENTS_KEPT)

    def commit_soon(self) -> None:
        pass

    def pump_soon(self) -> None:
        pass

    def wake_after(self, delay_ms: int) -> None:
        pass

    def fault(self, kind: FaultKind, error: Exception, where: str = "") -> None:
        raise error

    def run_aside(self, work: Callable[[], object], then: Callable[[], None], client: str) -> None:
        with contextlib.suppress(Exception):
            work()
        then()

    def check_login(self, work: Callable[[], object], then: Callable[[], None], address: str) -> None:
        self.run_aside(work, then, address)

    def event(self, event: Event, **values: object) -> None:
        self.events.append((event, values))
