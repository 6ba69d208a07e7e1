"""Jobs on the one Spark session: workers that stay, jobs that fail, lanes that stop."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.lanes import WARM_UP_JOBS, JobLanes, Jobs
from magnetar.pipelines.replicate.row import Job
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0
NOWHERE = ClusterEndpoint("nowhere", "pulsar://127.0.0.1:9")


def process_id(rows: Iterable[object]) -> list[int]:
    list(rows)
    return [os.getpid()]


def kill_the_worker(rows: Iterable[object]) -> list[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


class Told:
    """What lanes say."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def done(self, job: Job, outcomes: list[Outcome], is_full: bool) -> None:
        self.queue.put(("done", outcomes))

    def failed(self, job: Job, error: str) -> None:
        self.queue.put(("failed", error))

    def dead(self, error: str) -> None:
        self.queue.put(("dead", error))

    def next(self) -> tuple[str, Any]:
        return self.queue.get(timeout=WAIT_S)


def lanes_on(jobs: Jobs, told: Told, **options: Any) -> JobLanes:
    return JobLanes(jobs, 1, on_done=told.done, on_failed=told.failed, on_dead=told.dead, **options)


def job_to_nowhere() -> Job:
    return Job([Assignment(NOWHERE, NOWHERE, "persistent://public/default/t", "t", "s")], {}, 1.0, 0.1)


def test_a_worker_is_used_again(spark: SparkSession) -> None:
    """A task that leaves rows would cost a worker, and each next one its connections."""
    jobs = Jobs(spark)
    used = {jobs.run(process_id)[0] for _ in range(6)}
    jobs.stay_warm()
    assert len(used) <= 2, "two cores, two workers"


def test_a_copy_goes_to_a_worker_and_its_outcome_comes_back(spark: SparkSession) -> None:
    told = Told()
    lanes = lanes_on(Jobs(spark), told)
    lanes.run(job_to_nowhere())
    kind, outcomes = told.next()
    assert kind == "done"
    (outcome,) = outcomes
    assert outcome.state is State.UNREACHABLE and "127.0.0.1:9" in outcome.reason
    assert lanes.free == 1
    lanes.stop()


def test_gr6_a_job_whose_worker_is_killed_failed_and_the_next_one_works(spark: SparkSession) -> None:
    jobs, told = Jobs(spark), Told()
    lanes = lanes_on(jobs, told)
    jobs.copy = lambda *_: jobs.run(kill_the_worker)  # type: ignore[method-assign,assignment]
    lanes.run(job_to_nowhere())
    kind, error = told.next()
    assert kind == "failed"
    assert error.startswith("a job of Spark failed: ")
    assert lanes.free == 1
    assert not jobs.is_dead
    del jobs.copy  # type: ignore[attr-defined]
    lanes.run(job_to_nowhere())
    assert told.next()[0] == "done"
    lanes.stop()


def test_what_cannot_be_prepared_is_an_outcome(spark: SparkSession) -> None:
    told = Told()
    outcome = Outcome("t", "b", state=State.STOPPED, reason="no such column")
    lanes = lanes_on(Jobs(spark), told, prepare=lambda job: ([], [outcome]))
    lanes.run(job_to_nowhere())
    assert told.next() == ("done", [outcome])
    lanes.stop()


def test_lanes_become_more_and_never_fewer(spark: SparkSession) -> None:
    told = Told()
    both = threading.Barrier(2, timeout=WAIT_S)

    def meet(job: Job) -> tuple[list[Assignment], list[Outcome]]:
        both.wait()
        return [], []

    jobs = Jobs(spark)
    assert jobs.cores == 2
    lanes = lanes_on(jobs, told, prepare=meet)
    for count, free in ((2, 2), (1, 2)):
        lanes.grow_to(count)
        assert lanes.free == free
    for _ in range(2):
        lanes.run(job_to_nowhere())
    assert [told.next() for _ in range(2)] == [("done", [])] * 2
    lanes.stop()
    lanes.grow_to(9)
    assert lanes.free == 2


def test_an_idle_lane_keeps_workers_warm(spark: SparkSession) -> None:
    jobs, told = Jobs(spark), Told()
    jobs.stay_warm = lambda: told.queue.put(("warm", None))  # type: ignore[method-assign]
    lanes = lanes_on(jobs, told, warm_s=0.1)
    assert [told.next()[0] for _ in range(3)] == ["warm"] * 3
    lanes.stop()


def test_a_cold_jvm_is_warmed_up_before_there_is_something_to_copy(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "ran", 0)
    jobs, told = Jobs(spark), Told()
    jobs.stay_warm = lambda: told.queue.put(("warm", None))  # type: ignore[method-assign]
    lanes = lanes_on(jobs, told)
    assert [told.next()[0] for _ in range(1 + WARM_UP_JOBS)] == ["warm"] * (1 + WARM_UP_JOBS)
    lanes.run(job_to_nowhere())
    assert told.next()[0] == "done"
    lanes.stop()


def test_what_is_to_be_copied_does_not_wait_for_warming_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "ran", 0)
    jobs, told = Jobs(spark), Told()
    is_given = threading.Event()

    def stay_warm() -> None:
        told.queue.put(("warm", None))
        assert is_given.wait(WAIT_S)

    jobs.stay_warm = stay_warm  # type: ignore[method-assign]
    lanes = lanes_on(jobs, told)
    lanes.run(job_to_nowhere())
    is_given.set()
    assert [told.next()[0] for _ in range(2)] == ["warm", "done"]
    lanes.stop()


def test_stopping_does_not_wait_for_a_job_that_takes_long(spark: SparkSession) -> None:
    jobs, told = Jobs(spark), Told()
    has_begun = threading.Event()

    def copy(*_: object) -> list[Outcome]:
        has_begun.set()
        return jobs.run(partial(_sleep, 30.0))

    jobs.copy = copy  # type: ignore[method-assign]
    lanes = lanes_on(jobs, told)
    lanes.run(job_to_nowhere())
    assert has_begun.wait(WAIT_S)
    started_s = time.monotonic()
    lanes.stop()
    assert time.monotonic() - started_s < 15
    assert told.next()[0] == "failed"


def _sleep(seconds: float, rows: Iterable[object]) -> list[Outcome]:
    list(rows)
    time.sleep(seconds)
    return []


class Dead:
    """A session that is gone."""

    is_dead = True

    def begin(self, group: str, pool: str) -> None: ...

    def stay_warm(self) -> None: ...

    def copy(self, *_: object) -> list[Outcome]:
        raise RuntimeError("SparkContext was shut down")

    def cancel(self, group: str) -> None: ...


@pytest.mark.usefixtures("spark")
def test_a_session_that_is_gone_is_said() -> None:
    told = Told()
    lanes = lanes_on(Dead(), told)  # type: ignore[arg-type]
    lanes.run(job_to_nowhere())
    kind, error = told.next()
    assert (kind, "was shut down" in error) == ("dead", True)
    lanes.stop()
