"""Rounds of replicated subscriptions, without Spark: the log of failed rounds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from magnetar.pipelines.subscriptions.rounds import SubscriptionRounds
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import ClusterAddress, Declaration, DeclaredRoute, Mismatch, RoutePolicy

LONG_NAME = RoutePolicy(rename="{topic}" * 100)


class Jobs:
    """Fails as long as it has errors."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)

    def run(self, function: object) -> list[Any]:
        if self._failures:
            raise self._failures.pop(0)
        return []


def test_gr9_a_failed_round_logs_its_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    lost, other = RuntimeError("worker Error: lost"), RuntimeError("another Error")
    jobs, rounds = Jobs(lost, lost, other), SubscriptionRounds("rounds")
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert rounds._round(jobs, []) is False  # type: ignore[arg-type]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "failed and is repeated" in said[0] and "worker Error: lost" in said[0] and "another Error" in said[1]


def test_gr9_a_topic_without_a_valid_remote_name_is_left_out() -> None:
    """The declaration of the others is followed all the same."""
    address = ClusterAddress(broker_service_url="pulsar://b:6650", service_url="http://b:8080")
    routes = [
        DeclaredRoute("persistent://public/default/orders-of-the-year", 0, "b", LONG_NAME, subscriptions=("s",)),
        DeclaredRoute("persistent://public/default/t", 2, "b", subscriptions=("s",)),
    ]
    rounds = SubscriptionRounds("rounds")
    declaration = Declaration("1", "a", True, Mismatch.PIP370, {"b": address}, routes)
    rounds.declare(declaration, ClusterEndpoint("a", "pulsar://a:6650"))
    assert [task.topic for task in rounds._tasks] == [f"persistent://public/default/t-partition-{n}" for n in (0, 1)]
