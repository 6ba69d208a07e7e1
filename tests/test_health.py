"""The judgement: which facts are warnings and which failures, and which failures count for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar import health
from magnetar.health import ALIVE, HEALTHY, READY, Facts, health_of

FINE = Facts("serving")


def states(facts: Facts, proof: str | None = "") -> dict[str, str]:
    judged = health_of(facts, proof)
    return {name: judged.state(counted) for name, counted in (("alive", ALIVE), ("ready", READY), ("healthy", HEALTHY))}


def test_a_broker_that_works() -> None:
    assert set(states(FINE).values()) == {"ok"}
    assert {check.name for check in health_of(FINE, "").checks} == HEALTHY | {"damage", "faults"}


@pytest.mark.parametrize("phase", ["starting", "stopping"])
def test_clients_wait_while_it_starts_or_stops_but_a_restart_would_not_help(phase: health.Phase) -> None:
    assert states(Facts(phase)) == {"alive": "warning", "ready": "failed", "healthy": "failed"}
    assert health_of(Facts(phase)).failures(READY) == [f"the broker is {phase}"]


@pytest.mark.parametrize(
    ("field", "warning_s", "failed_s", "failed"),
    [
        ("loop_lag_s", health.LOOP_LAG_WARNING_S, health.LOOP_LAG_FAILED_S, {"healthy"}),
        ("timer_overdue_s", health.TIMER_WARNING_S, health.TIMER_FAILED_S, {"alive", "ready", "healthy"}),
        ("commit_waiting_s", health.COMMIT_WARNING_S, health.COMMIT_FAILED_S, {"alive", "ready", "healthy"}),
    ],
)
def test_times_are_fine_then_a_warning_then_a_failure(
    field: str, warning_s: float, failed_s: float, failed: set[str]
) -> None:
    assert set(states(replace(FINE, **{field: warning_s - 0.1})).values()) == {"ok"}
    assert set(states(replace(FINE, **{field: warning_s})).values()) == {"warning"}
    judged = states(replace(FINE, **{field: failed_s}))
    assert {name for name, state in judged.items() if state == "failed"} == failed
    assert f"{failed_s:.1f} s" in health_of(replace(FINE, **{field: failed_s})).failures()[0]


def test_failed_storage_is_the_end() -> None:
    facts = replace(FINE, storage_failure="no space left on device")
    assert set(states(facts).values()) == {"failed"}
    assert health_of(facts).failures(ALIVE) == ["storage failed: no space left on device"]


def test_a_held_disk_is_not_healthy_but_consumers_may_connect() -> None:
    assert states(replace(FINE, disk_held="full")) == {"alive": "warning", "ready": "warning", "healthy": "failed"}
    assert set(states(replace(FINE, disk_low="nearly full")).values()) == {"warning"}


def test_a_write_that_fails() -> None:
    assert states(FINE, "a write failed")["healthy"] == "failed"
    assert "proof" not in {check.name for check in health_of(FINE).checks}


def test_damage_is_a_warning_with_its_number_and_no_names() -> None:
    def shown(number: int) -> list[str]:
        facts = replace(FINE, damaged=tuple(f"topic persistent://a/b/t{one}" for one in range(number)))
        return [check.reason for check in health_of(facts).checks if check.reason]

    assert set(states(replace(FINE, damaged=("topic persistent://a/b/t",))).values()) == {"warning"}
    assert shown(1) == ["1 thing cannot be read: brokers/damaged or the broker's log names it"]
    assert shown(100) == ["100 things cannot be read: brokers/damaged or the broker's log names them"]


def test_faults_are_a_warning_with_their_number() -> None:
    def shown(number: int) -> list[str]:
        return [check.reason for check in health_of(replace(FINE, faults=number)).checks if check.reason]

    assert set(states(replace(FINE, faults=3)).values()) == {"warning"}
    assert shown(1) == ["1 unexpected error within 10 minutes: see the broker's log"]
    assert shown(health.FAULTS_COUNTED) == ["1000 or more unexpected errors within 10 minutes: see the broker's log"]
