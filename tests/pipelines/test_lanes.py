"""Jobs on the one Spark session: reused workers, failing jobs, and stopping lanes."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.pipelines.jobs import Jobs
from magnetar.pipelines.lanes import WARM_S, WARM_UP_JOBS, JobLanes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0

Work = Callable[[], Any]


def nothing() -> None: ...


def process_id(rows: Iterable[object]) -> list[int]:
    list(rows)
    return [os.getpid()]


def kill_the_worker(rows: Iterable[object]) -> list[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


class Results:
    """The callbacks of lanes, in order."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def done(self, job: Work, result: Any) -> None:
        self.queue.put(("done", result))

    def failed(self, job: Work, error: str) -> None:
        self.queue.put(("failed", error))

    def dead(self, error: str) -> None:
        self.queue.put(("dead", error))

    def next(self) -> tuple[str, Any]:
        return self.queue.get(timeout=WAIT_S)


def lanes_on(jobs: Jobs, results: Results, warm_s: float = WARM_S) -> JobLanes[Work, Any]:
    lanes = JobLanes[Work, Any](
        lambda job: job(),
        on_done=results.done,
        on_failed=results.failed,
        on_dead=results.dead,
        name="test",
        warm_s=warm_s,
    )
    assert lanes.free == 0
    lanes.start(jobs, 1)
    return lanes


def test_a_worker_is_reused(spark: SparkSession) -> None:
    """A task that leaves rows would cost a worker, and its connections."""
    jobs = Jobs(spark.sparkContext)
    used = {jobs.run(process_id)[0] for _ in range(6)}
    jobs.stay_warm()
    assert len(used) <= 2, "two cores, two workers"


def test_a_job_runs_in_a_worker_and_returns_its_result(spark: SparkSession) -> None:
    jobs, results = Jobs(spark.sparkContext), Results()
    lanes = lanes_on(jobs, results)
    lanes.run(lambda: jobs.run(process_id))
    kind, (pid,) = results.next()
    assert kind == "done" and pid != os.getpid()
    assert lanes.free == 1
    lanes.stop()


def test_gr6_a_job_fails_with_its_killed_worker_and_the_next_one_works(spark: SparkSession) -> None:
    jobs, results = Jobs(spark.sparkContext), Results()
    lanes = lanes_on(jobs, results)
    lanes.run(lambda: jobs.run(kill_the_worker))
    kind, error = results.next()
    assert kind == "failed"
    assert error.startswith("a Spark job failed: ")
    assert lanes.free == 1
    assert not jobs.is_dead
    lanes.run(lambda: jobs.run(process_id))
    assert results.next()[0] == "done"
    lanes.stop()


def test_lanes_are_added_and_never_removed(spark: SparkSession) -> None:
    results = Results()
    both = threading.Barrier(2, timeout=WAIT_S)

    jobs = Jobs(spark.sparkContext)
    assert jobs.cores == 2
    lanes = lanes_on(jobs, results)
    for count, free in ((2, 2), (1, 2)):
        lanes.grow_to(count)
        assert lanes.free == free
    for _ in range(2):
        lanes.run(both.wait)
    assert sorted(results.next() for _ in range(2)) == [("done", 0), ("done", 1)]
    lanes.stop()
    lanes.grow_to(9)
    assert lanes.free == 2


def test_an_idle_lane_keeps_workers_warm(spark: SparkSession) -> None:
    jobs, results = Jobs(spark.sparkContext), Results()
    jobs.stay_warm = lambda: results.queue.put(("warm", None))  # type: ignore[method-assign]
    lanes = lanes_on(jobs, results, warm_s=0.1)
    assert [results.next()[0] for _ in range(3)] == ["warm"] * 3
    lanes.stop()


def test_a_cold_jvm_is_warmed_up_before_the_first_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "ran", 0)
    jobs, results = Jobs(spark.sparkContext), Results()
    jobs.stay_warm = lambda: results.queue.put(("warm", None))  # type: ignore[method-assign]
    lanes = lanes_on(jobs, results)
    assert [results.next()[0] for _ in range(WARM_UP_JOBS)] == ["warm"] * WARM_UP_JOBS
    lanes.run(nothing)
    assert results.next()[0] == "done"
    lanes.stop()


def test_a_job_does_not_wait_for_the_warm_up(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "ran", 0)
    jobs, results = Jobs(spark.sparkContext), Results()
    is_given = threading.Event()

    def stay_warm() -> None:
        results.queue.put(("warm", None))
        assert is_given.wait(WAIT_S)

    jobs.stay_warm = stay_warm  # type: ignore[method-assign]
    lanes = lanes_on(jobs, results)
    assert results.next()[0] == "warm"
    lanes.run(nothing)
    is_given.set()
    assert results.next()[0] == "done"
    lanes.stop()


def test_stop_cancels_a_long_job(spark: SparkSession) -> None:
    jobs, results = Jobs(spark.sparkContext), Results()
    has_begun = threading.Event()

    def sleep() -> list[int]:
        has_begun.set()
        return jobs.run(partial(_sleep, 30.0))

    lanes = lanes_on(jobs, results)
    lanes.run(sleep)
    assert has_begun.wait(WAIT_S)
    started_s = time.monotonic()
    lanes.stop()
    assert time.monotonic() - started_s < 15
    assert results.next()[0] == "failed"


def _sleep(seconds: float, rows: Iterable[object]) -> list[int]:
    list(rows)
    time.sleep(seconds)
    return []


class Dead:
    """A dead session."""

    is_dead = True

    def begin(self, group: str, pool: str) -> None: ...

    def stay_warm(self) -> None: ...

    def cancel(self, group: str) -> None: ...


@pytest.mark.usefixtures("spark")
def test_a_dead_session_is_reported() -> None:
    results = Results()
    lanes = lanes_on(Dead(), results)  # type: ignore[arg-type]

    def work() -> None:
        raise RuntimeError("SparkContext was shut down")

    lanes.run(work)
    kind, error = results.next()
    assert (kind, "was shut down" in error) == ("dead", True)
    lanes.stop()
