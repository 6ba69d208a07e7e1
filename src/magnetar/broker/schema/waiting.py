"""Schemas that wait to be examined in the thread of the host, and how many of one client may.

Knows neither the work nor the clients, which it gets as names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.bounds import SCHEMAS_WAITING
from magnetar.errors import ServiceNotReady

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker


class Examinations:
    """A client has a place from `run` until its work is done."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: Counter[str] = Counter()

    def run(self, work: Callable[[], object], then: Callable[[], None], client: str) -> None:
        """Raises ServiceNotReady."""
        if self._waiting[client] >= SCHEMAS_WAITING.limit:
            raise ServiceNotReady(f"{SCHEMAS_WAITING.limit} schemas of this client wait to be compared: try again")
        self._waiting[client] += 1
        self._broker.run_aside(work, partial(self._done, client, then), client)

    def _done(self, client: str, then: Callable[[], None]) -> None:
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]
        then()
