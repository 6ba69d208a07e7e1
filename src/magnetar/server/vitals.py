"""Vitals: what the server measures of itself, for health and metrics.

Owns the sampling of the event loop, and the reading of process and disk, in a thread. The judgement is
`magnetar.health`, the metrics and their names are `magnetar.admin.stats.broker_metrics`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from magnetar.health import PROOF_DEADLINE_S, Facts, Reading
from magnetar.latency import Latencies
from magnetar.storage.api import StorageError

if TYPE_CHECKING:
    from magnetar.server.server import Server

SAMPLE_EVERY_S = 0.5
SAMPLES_KEPT = 20
"""Ten seconds: a probe that comes every ten sees every delay once."""


class LoopLag:
    """How late the event loop is: a timer that should run every half second, and when it does run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seconds = Latencies()
        self._loop = loop
        self._latest: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        self._due_s = self._loop.time() + SAMPLE_EVERY_S
        self._timer = self._loop.call_at(self._due_s, self._sample)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample(self) -> None:
        lag_s = self._overdue_s
        self._latest.append(lag_s)
        self.seconds.add(lag_s)
        self.start()

    @property
    def _overdue_s(self) -> float:
        return 0.0 if self._timer is None else max(0.0, self._loop.time() - self._due_s)

    @property
    def longest_s(self) -> float:
        """The longest delay of the last ten seconds, with one that is not over yet."""
        return max(self._overdue_s, *self._latest, 0.0)


class ServerVitals:
    """`Vitals` of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.loop_lag = LoopLag(server.loop)
        self.refused_http: Counter[int] = Counter()

    def facts(self) -> Facts:
        server = self._server
        waiting_since_s = server.committer.waiting_since_s
        return Facts(
            phase=server.phase,
            loop_lag_s=self.loop_lag.longest_s,
            timer_overdue_s=server.timer_overdue_s,
            commit_waiting_s=0.0 if waiting_since_s is None else time.monotonic() - waiting_since_s,
            storage_failure="" if server.failure is None else str(server.failure),
        )

    async def proof(self) -> str:
        server = self._server
        try:
            async with asyncio.timeout(PROOF_DEADLINE_S):
                server.broker.write_something()
                await server.committer.drained()
        except TimeoutError:
            return f"a write was not durable within {PROOF_DEADLINE_S:g} s"
        except StorageError as error:
            return f"a write failed: {error}"
        return ""

    async def readings(self) -> Mapping[str, Reading]:
        return {}

    def responded(self, status: int) -> None:
        if status >= 400:
            self.refused_http[status] += 1
