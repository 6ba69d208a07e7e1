"""Which declared pipelines begin, wait and end: the scheduler alone, with runs that do nothing."""

from __future__ import annotations

import pytest

from magnetar.clock import ManualClock
from magnetar.declared.model import DeclaredPipeline, RunState, Wanted
from magnetar.log.events import PIPELINE_STATE
from magnetar.pipeline_bounds import PIPELINES_AT_ONCE
from magnetar.pipelines.declared.runs import HANGING_S, Runs, key_of
from magnetar.pipelines.declared.verb import log_level
from magnetar.pipelines.status_board import Key, StatusBoard


class FakeRun:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def cancel_jobs(self) -> None:
        self.calls.append("cancel jobs")


class Bench:
    def __init__(self, limit: int = 2) -> None:
        self.board = StatusBoard[RunState](ManualClock(0), PIPELINE_STATE, log_level)
        self.begun: list[tuple[Key, FakeRun]] = []
        self.runs = Runs(self.board, self._begin)
        self.runs.allow(limit)
        self.now_s = 0.0

    def _begin(self, key: Key, pipeline: DeclaredPipeline) -> FakeRun:
        self.begun.append((key, FakeRun()))
        return self.begun[-1][1]

    def declare(self, *pipelines: DeclaredPipeline) -> None:
        self.runs.on_declared(pipelines, self.now_s)
        self.runs.tick(self.now_s)

    def end(self, pipeline: DeclaredPipeline, state: RunState | None, error: str = "") -> None:
        self.runs.on_ended(key_of(pipeline), state, error)
        self.runs.tick(self.now_s)

    @property
    def states(self) -> dict[str, tuple[str, str]]:
        rows = self.board.take(is_all=True).rows
        return {key[0].rpartition("/")[2]: (row.state.value, row.reason) for key, row in rows.items()}

    @property
    def names(self) -> list[str]:
        return [key[0].rpartition("/")[2] for key, _ in self.begun]


def pipeline(number: int, wanted: Wanted = Wanted.RUNNING, run: int = 1) -> DeclaredPipeline:
    return DeclaredPipeline(number, run, "public/default", f"p{number}", "redrive", {}, wanted)


def test_sp7_pipelines_begin_in_the_order_of_their_declaration_and_the_others_wait() -> None:
    bench = Bench()
    bench.declare(pipeline(3), pipeline(1), pipeline(2))
    assert bench.names == ["p1", "p2"]
    assert bench.states["p3"] == ("waiting", "2 pipelines run already")
    bench.end(pipeline(1), RunState.DONE)
    assert bench.names == ["p1", "p2", "p3"]
    assert bench.states == {"p1": ("done", ""), "p2": ("running", ""), "p3": ("running", "")}


def test_nothing_begins_before_spark_is_up() -> None:
    bench = Bench(limit=0)
    bench.declare(pipeline(1))
    assert (bench.names, bench.states) == ([], {"p1": ("waiting", "Spark is starting")})


def test_bound_pipelines_at_once() -> None:
    bench = Bench()
    bench.runs.allow()
    bench.declare(*map(pipeline, range(PIPELINES_AT_ONCE.limit + 1)))
    assert len(bench.begun) == PIPELINES_AT_ONCE.limit


def test_sp7_a_pause_ends_a_run_and_a_resume_begins_it_again() -> None:
    bench = Bench()
    bench.declare(pipeline(1))
    bench.declare(pipeline(1, Wanted.PAUSED))
    bench.declare(pipeline(1, Wanted.PAUSED))
    assert bench.begun[0][1].calls == ["start", "stop"]
    assert bench.states["p1"] == ("running", "is being stopped")
    bench.end(pipeline(1), None)
    assert bench.states["p1"] == ("paused", "")
    bench.declare(pipeline(1))
    assert (bench.names, bench.states["p1"]) == (["p1", "p1"], ("running", ""))


def test_sp7_a_run_that_is_resumed_before_it_ended_begins_again_after_its_end() -> None:
    bench = Bench()
    bench.declare(pipeline(1))
    bench.declare(pipeline(1, Wanted.PAUSED))
    bench.declare(pipeline(1))
    assert bench.names == ["p1"]
    bench.end(pipeline(1), None)
    assert (bench.names, bench.states["p1"]) == (["p1", "p1"], ("running", ""))


def test_sp3_cancelled_runs_are_over() -> None:
    bench = Bench()
    bench.declare(pipeline(1), pipeline(2, Wanted.CANCELLED))
    assert bench.states["p2"] == ("cancelled", "")
    bench.declare(pipeline(1, Wanted.CANCELLED), pipeline(2, Wanted.CANCELLED))
    bench.end(pipeline(1), None, "was in the middle")
    assert bench.states["p1"] == ("cancelled", "")
    bench.declare(pipeline(1, run=2))
    assert bench.names == ["p1", "p1"], "another run is another one"


@pytest.mark.parametrize("state", [RunState.DONE, RunState.FAILED])
def test_a_run_that_is_over_does_not_begin_again_while_the_broker_does_not_know_it_yet(state: RunState) -> None:
    bench = Bench()
    bench.declare(pipeline(1))
    bench.end(pipeline(1), state, "why")
    bench.declare(pipeline(1), pipeline(2))
    assert (bench.names, bench.states["p1"]) == (["p1", "p2"], (state.value, "why"))
    bench.declare(pipeline(2))
    assert "p1" not in bench.states


def test_sp3_a_deleted_pipeline_is_stopped_and_forgotten() -> None:
    bench = Bench()
    bench.declare(pipeline(1))
    bench.declare()
    assert bench.begun[0][1].calls == ["start", "stop"] and "p1" in bench.states
    bench.end(pipeline(1), RunState.FAILED, "stopped in the middle")
    assert bench.states == {}


def test_the_jobs_of_a_run_that_does_not_stop_are_cancelled() -> None:
    bench = Bench()
    bench.declare(pipeline(1), pipeline(2))
    assert bench.runs.tick(0.0) is None
    bench.declare(pipeline(1, Wanted.PAUSED), pipeline(2))
    assert bench.runs.tick(1.0) == HANGING_S
    assert bench.runs.tick(HANGING_S) == 2 * HANGING_S
    assert bench.begun[0][1].calls == ["start", "stop", "cancel jobs"]
    assert bench.begun[1][1].calls == ["start"]


def test_an_attempt_that_fails_is_shown_until_the_next_one_runs() -> None:
    bench = Bench()
    bench.declare(pipeline(1))
    bench.runs.on_failing(key_of(pipeline(1)), "the broker is away", 2.0)
    bench.runs.tick(0.0)
    row = next(iter(bench.board.take().rows.values()))
    assert (row.state, row.reason, row.error) == (
        RunState.RUNNING,
        "next attempt in 2 s after an error",
        "the broker is away",
    )
    bench.runs.on_running(key_of(pipeline(1)))
    assert bench.states["p1"] == ("running", "")
