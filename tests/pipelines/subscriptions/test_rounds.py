"""Rounds of replicated subscriptions, without Spark: the log of failed rounds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from magnetar.pipelines.subscriptions.rounds import SubscriptionRounds


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
    rounds = SubscriptionRounds(Jobs(lost, lost, other), "rounds")  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert rounds._round([]) is False
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "failed and is repeated" in said[0] and "worker Error: lost" in said[0] and "another Error" in said[1]
