"""Health: facts about a running broker, and the judgement whether it lives, may be used, and works.

Pure: the server collects the facts, the admin room shows the judgement. A warning is a reason to look, a failure one
to act, and which failures count depends on who asks:

alive     a restart would help: timers or commits make no progress
ready     clients may connect: started, not stopping, and nothing of the above
healthy   everything works: also the event loop keeps up, the disk has room, and a write was durable in time

A full disk does not end readiness: consumers have to connect, or nothing would ever free it. Damage and faults are
warnings: one thing cannot be read or failed, the others are fine. No reason names what belongs to a tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from magnetar.bounds import COMMIT_WAIT_WARNED
from magnetar.latency import Latencies

Phase = Literal["starting", "serving", "stopping"]
State = Literal["ok", "warning", "failed"]
STATES: tuple[State, ...] = ("ok", "warning", "failed")
Reading = float | Mapping[tuple[str, ...], float] | Latencies
"""The value of a metric: a number, or numbers by the values of its labels."""

LOOP_LAG_WARNING_S, LOOP_LAG_FAILED_S = 1.0, 10.0
TIMER_WARNING_S, TIMER_FAILED_S = 5.0, 60.0
COMMIT_WARNING_S, COMMIT_FAILED_S = 5.0, float(COMMIT_WAIT_WARNED.limit)
PROOF_DEADLINE_S = 10.0
"""A health check writes something, which has to be durable within this time."""

FAULTS_WITHIN_S = 600.0
FAULTS_COUNTED = 1000


@dataclass(frozen=True, slots=True)
class Facts:
    """`loop_lag_s` is the longest delay of the event loop within the last seconds, `timer_overdue_s` the time that a
    timer was due and did not run, `commit_waiting_s` that of the oldest change that is not written.

    `storage_failure`, `disk_held` and `disk_low` are reasons, empty while all is well; `damaged` names what cannot be
    read, `faults` counts the unexpected errors of the last ten minutes.
    """

    phase: Phase
    loop_lag_s: float = 0.0
    timer_overdue_s: float = 0.0
    commit_waiting_s: float = 0.0
    storage_failure: str = ""
    disk_held: str = ""
    disk_low: str = ""
    damaged: tuple[str, ...] = ()
    faults: int = 0


class Vitals(Protocol):
    """What a host knows about the broker that it runs."""

    def facts(self) -> Facts: ...

    async def proof(self) -> str:
        """Makes a small write durable; the reason if that fails or takes longer than `PROOF_DEADLINE_S`."""
        ...

    async def readings(self) -> Mapping[str, Reading]:
        """Values of metrics, by name."""
        ...

    def responded(self, status: int) -> None:
        """An HTTP request got a response."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    name: str
    state: State = "ok"
    reason: str = ""


ALIVE = frozenset({"timers", "commits"})
READY = ALIVE | {"phase"}
HEALTHY = READY | {"loop", "disk", "proof"}


@dataclass(frozen=True, slots=True)
class Health:
    checks: tuple[HealthCheck, ...]

    def failures(self, counted: Collection[str] = HEALTHY) -> list[str]:
        """Reasons of the failed checks among those that count."""
        return [check.reason for check in self.checks if check.state == "failed" and check.name in counted]

    def state(self, counted: Collection[str] = HEALTHY) -> State:
        """`warning` also for a failure that does not count."""
        if self.failures(counted):
            return "failed"
        return "ok" if all(check.state == "ok" for check in self.checks) else "warning"


def health_of(facts: Facts, proof: str | None = None) -> Health:
    """`proof` is the outcome of a test write: empty if it succeeded, None if there was none."""
    checks = (
        _phase(facts.phase),
        _by_time(
            "loop",
            facts.loop_lag_s,
            LOOP_LAG_WARNING_S,
            LOOP_LAG_FAILED_S,
            "the event loop was blocked for {:.1f} s within the last seconds",
        ),
        _by_time(
            "timers",
            facts.timer_overdue_s,
            TIMER_WARNING_S,
            TIMER_FAILED_S,
            "timers do not run: one has been due for {:.1f} s",
        ),
        _commits(facts),
        _disk(facts),
        _damage(len(facts.damaged)),
        _faults(facts.faults),
    )
    if proof is None:
        return Health(checks)
    return Health((*checks, HealthCheck("proof", "failed" if proof else "ok", proof)))


def _phase(phase: Phase) -> HealthCheck:
    return HealthCheck("phase") if phase == "serving" else HealthCheck("phase", "failed", f"the broker is {phase}")


def _by_time(name: str, seconds: float, warning_s: float, failed_s: float, reason: str) -> HealthCheck:
    if seconds < warning_s:
        return HealthCheck(name)
    return HealthCheck(name, "failed" if seconds >= failed_s else "warning", reason.format(seconds))


def _commits(facts: Facts) -> HealthCheck:
    if facts.storage_failure:
        return HealthCheck("commits", "failed", f"storage failed: {facts.storage_failure}")
    reason = "the disk does not answer: a commit has been waiting for {:.1f} s"
    return _by_time("commits", facts.commit_waiting_s, COMMIT_WARNING_S, COMMIT_FAILED_S, reason)


def _disk(facts: Facts) -> HealthCheck:
    if facts.disk_held:
        return HealthCheck("disk", "failed", facts.disk_held)
    return HealthCheck("disk", "warning", facts.disk_low) if facts.disk_low else HealthCheck("disk")


def _damage(number: int) -> HealthCheck:
    """Without names: probes are for everybody, and what cannot be read belongs to tenants."""
    if not number:
        return HealthCheck("damage")
    many, them = ("1 thing", "it") if number == 1 else (f"{number} things", "them")
    reason = f"{many} cannot be read: brokers/damaged or the broker's log names {them}"
    return HealthCheck("damage", "warning", reason)


def _faults(number: int) -> HealthCheck:
    if not number:
        return HealthCheck("faults")
    many = f"{number} or more" if number >= FAULTS_COUNTED else str(number)
    errors = "error" if number == 1 else "errors"
    return HealthCheck("faults", "warning", f"{many} unexpected {errors} within 10 minutes: see the broker's log")
