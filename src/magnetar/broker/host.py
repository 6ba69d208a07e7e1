"""The host of a broker: what runs it, and is called when there is something to run.

The core never calls itself back, waits or reads a socket; it asks its host to come back later. The server is the host
of a real broker; `ManualHost` is its twin for tests and simulations.
"""

from __future__ import annotations

from typing import Protocol


class Host(Protocol):
    def commit_soon(self) -> None:
        """A group of changes is open: take it from `broker.commits` and write it."""

    def pump_soon(self) -> None:
        """Messages may be deliverable: call `broker.pump`."""

    def wake_at(self, time_ms: int) -> None:
        """The next timer is due at `time_ms`, earlier than any before: call `broker.tick` then."""

    def fault(self, error: Exception) -> None:
        """A bug was met by one message or completion; the others go on."""


class ManualHost:
    """Runs nothing by itself: the test commits, pumps and ticks. A fault ends it."""

    def commit_soon(self) -> None:
        pass

    def pump_soon(self) -> None:
        pass

    def wake_at(self, time_ms: int) -> None:
        pass

    def fault(self, error: Exception) -> None:
        raise error
