"""Vitals: what the server measures of itself, for health and metrics.

Owns the sampling of the event loop, the counting of events, and the reading of process and disk, in a thread. The
judgement is `magnetar.health`; names and meanings of metrics are in `magnetar.admin.stats.broker_metrics`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.broker.damage_list import DAMAGE_KINDS
from magnetar.health import (
    FAULTS_COUNTED,
    FAULTS_WITHIN_S,
    HEALTHY,
    PROOF_DEADLINE_S,
    STATES,
    Facts,
    Reading,
    health_of,
)
from magnetar.latency import Latencies
from magnetar.log.events import CONNECT_REFUSED, Event
from magnetar.storage.api import DiskUse, StorageError
from magnetar.wire.schema_pb2 import ServerError

if TYPE_CHECKING:
    from magnetar.server.server import Server

SAMPLE_EVERY_S = 0.5
SAMPLES_KEPT = 20
"""Ten seconds: a probe that comes every ten sees every delay once."""

MACHINE_WAIT_S, MACHINE_FIRST_WAIT_S = 2.0, 10.0
"""A disk that does not answer must not hold a scrape: after this time it gets the values of the last one, if any."""

_STATM = Path("/proc/self/statm")


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
        self._started_s = time.time()
        self._machine: dict[str, Reading] = {}
        self._measuring: asyncio.Task[None] | None = None
        self._proving: asyncio.Task[str] | None = None
        self.loop_lag = LoopLag(server.loop)
        self.refused_http: Counter[int] = Counter()
        self.refused: Counter[tuple[str, ...]] = Counter()
        self.events: Counter[str] = Counter()
        self._faults_s: deque[float] = deque(maxlen=FAULTS_COUNTED)

    # -- counted as it happens

    def count(self, event: Event, values: Mapping[str, object]) -> None:
        """Refusals of commands are events with an error."""
        self.events[event.name] += 1
        if event.name.endswith("_refused") and "error" in values:
            self.refused[event.name.removesuffix("_refused"), str(values["error"])] += 1

    def fault(self) -> None:
        self._faults_s.append(time.monotonic())

    def responded(self, status: int) -> None:
        if status >= 400:
            self.refused_http[status] += 1

    # -- health

    def facts(self) -> Facts:
        server = self._server
        return Facts(
            phase=server.phase,
            loop_lag_s=self.loop_lag.longest_s,
            timer_overdue_s=server.timer_overdue_s,
            commit_waiting_s=self._commit_waiting_s,
            storage_failure="" if server.failure is None else str(server.failure),
            disk_held=server.disk.held,
            disk_low=server.disk.low,
            faults=self._recent_faults(),
            damaged=(
                *((server.storage.damage,) if server.storage.damage else ()),
                *(f"{one.kind} {one.title}" for one in server.broker.damage.all()),
            ),
        )

    @property
    def _commit_waiting_s(self) -> float:
        since_s = self._server.committer.waiting_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def _recent_faults(self) -> int:
        since_s = time.monotonic() - FAULTS_WITHIN_S
        while self._faults_s and self._faults_s[0] < since_s:
            self._faults_s.popleft()
        return len(self._faults_s)

    async def proof(self) -> str:
        """Checks at the same time share one write: a disk that does not answer must not collect them."""
        if self._proving is None:
            self._proving = self._server.loop.create_task(self._prove())
        proving = self._proving
        await asyncio.wait([proving], timeout=PROOF_DEADLINE_S)
        return proving.result() if proving.done() else f"a write was not durable within {PROOF_DEADLINE_S:g} s"

    async def _prove(self) -> str:
        try:
            self._server.broker.write_something()
            await self._server.committer.drained()
        except StorageError as error:
            return f"a write failed: {error}"
        finally:
            self._proving = None
        return ""

    # -- metrics

    async def readings(self) -> Mapping[str, Reading]:
        if self._measuring is None:
            self._measuring = self._server.loop.create_task(self._measure())
        await asyncio.wait([self._measuring], timeout=MACHINE_WAIT_S if self._machine else MACHINE_FIRST_WAIT_S)
        return {**self._machine, **dict(self._own()), **dict(self._of_clients()), **dict(self._of_disk())}

    async def _measure(self) -> None:
        try:
            self._machine = await asyncio.to_thread(lambda: dict(_machine(self._server.storage.disk_use())))
        except (StorageError, OSError):
            self._machine = {}
        finally:
            self._measuring = None

    def _own(self) -> Iterator[tuple[str, Reading]]:
        server = self._server
        health = health_of(self.facts())
        yield "pulsar_health", int(not health.failures(HEALTHY))
        yield "magnetar_health_check", {(one.name,): STATES.index(one.state) for one in health.checks}
        counts = server.broker.damage.counts()
        yield "magnetar_damaged", {(kind,): counts[kind] for kind in DAMAGE_KINDS}
        yield "magnetar_faults_total", {(kind,): number for kind, number in server.faults.items()}
        yield "magnetar_events_total", {(name,): number for name, number in self.events.items()}
        yield "magnetar_loop_lag_seconds", self.loop_lag.seconds
        yield "magnetar_timer_overdue_seconds", server.timer_overdue_s
        yield "process_start_time_seconds", self._started_s

    def _of_clients(self) -> Iterator[tuple[str, Reading]]:
        server = self._server
        yield "pulsar_active_connections", len(server.connections)
        yield "pulsar_connection_created_total_count", server.connections_opened
        yield "pulsar_connection_closed_total_count", server.connections_opened - len(server.connections)
        yield "pulsar_connection_create_fail_count", self.events[CONNECT_REFUSED.name]
        yield "magnetar_connections_paused", len(server.paused)
        messages: dict[tuple[str, ...], int] = {
            ("send", ServerError.Name(code)): number  # type: ignore[arg-type]
            for code, number in server.broker.refused_messages.items()
        }
        yield "magnetar_refused_requests_total", {**self.refused, **messages}
        yield "pulsar_authentication_success_total", server.broker.authentication.successes
        yield "pulsar_authentication_failures_total", server.broker.authentication.failures
        yield "magnetar_http_refused_total", {(str(status),): number for status, number in self.refused_http.items()}

    def _of_disk(self) -> Iterator[tuple[str, Reading]]:
        server = self._server
        if server.committer.last_commit_s is not None:
            yield "magnetar_commit_age_seconds", time.monotonic() - server.committer.last_commit_s
        yield "magnetar_commit_seconds", server.committer.commit_seconds
        yield "magnetar_fsync_seconds", server.committer.fsync_seconds
        yield "magnetar_commit_waiting_groups", server.broker.commits.waiting_groups
        yield "magnetar_commit_waiting_bytes", server.broker.commits.waiting_bytes
        yield "magnetar_commit_waiting_seconds", self._commit_waiting_s
        pressure = server.storage.pressure()
        if pressure is not None:
            yield "magnetar_storage_write_stopped", int(pressure.is_stopped)
            yield "magnetar_storage_delayed_write_rate", pressure.delayed_rate
            yield "magnetar_storage_background_errors", pressure.background_errors
            yield "magnetar_storage_read_failures_total", server.storage.read_failures
            yield "magnetar_storage_producers_held", int(server.disk.state == "held")
            yield "magnetar_storage_deleted_bytes", server.broker.deleted_space.size


def _machine(disk: DiskUse | None) -> Iterator[tuple[str, Reading]]:
    """Readings that may wait for the disk, or take a while with many descriptors."""
    if disk is not None:
        yield "magnetar_storage_disk_bytes", disk.used
        yield "magnetar_storage_disk_free_bytes", disk.free
        yield "magnetar_storage_disk_total_bytes", disk.total
    use = resource.getrusage(resource.RUSAGE_SELF)
    yield "process_cpu_seconds_total", use.ru_utime + use.ru_stime
    yield "process_resident_memory_bytes", _memory(use.ru_maxrss)
    yield "process_open_fds", len(os.listdir("/dev/fd")) - 1  # without the one that lists them
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_max_fds", sys.maxsize if descriptors == resource.RLIM_INFINITY else descriptors


def _memory(largest: int) -> int:
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):  # no /proc
        return largest if sys.platform == "darwin" else largest * 1024
