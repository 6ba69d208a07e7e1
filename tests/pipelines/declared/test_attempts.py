"""The attempts of a run: which errors are repeated, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from magnetar.client.errors import ConnectionLost, NotAuthenticated, ServiceNotReady
from magnetar.declared.model import Progress, RunState
from magnetar.errors import InvalidSetting
from magnetar.pipelines.declared.attempts import Attempts
from magnetar.pipelines.declared.context import DeclaredRun
from magnetar.pipelines.declared.failures import ATTEMPTS_MAX
from magnetar.pipelines.moving.lock import TopicLocked
from magnetar.pipelines.run import RunContext, RunFailed
from magnetar.replication.cluster import ClusterEndpoint

WAIT_S = 20.0


class FakeJobs:
    is_dead = False

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.cancelled: list[str] = []

    def begin(self, group: str, pool: str) -> None:
        self.groups.append(group)

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)


class Listener:
    def __init__(self) -> None:
        self.failing: list[str] = []
        self.ran_again = 0
        self.dead = ""
        self.ended: tuple[RunState | None, str] | None = None
        self.is_failing = threading.Event()

    def on_failing(self, error: str, delay_s: float) -> None:
        self.failing.append(error)
        self.is_failing.set()

    def on_running(self) -> None:
        self.ran_again += 1

    def on_ended(self, state: RunState | None, error: str) -> None:
        self.ended = state, error

    def on_dead(self, error: str) -> None:
        self.dead = error


def context() -> DeclaredRun:
    def no_session() -> None:
        raise AssertionError("no verb of these tests needs Spark")

    return DeclaredRun(no_session, lambda: ClusterEndpoint("a", "pulsar://a"), lambda: None)  # type: ignore[arg-type]


def ran(attempt: Callable[[RunContext], None], jobs: FakeJobs | None = None) -> Listener:
    listener = Listener()
    attempts = Attempts(attempt, context(), listener, jobs or FakeJobs(), "g", retry_max_s=0.001)  # type: ignore[arg-type]
    attempts.start()
    assert attempts.join(WAIT_S)
    return listener


def failing(*errors: Exception) -> Callable[[RunContext], None]:
    """Raises these, one in each attempt, and is done then."""
    left = list(errors)

    def attempt(context: RunContext) -> None:
        if left:
            raise left.pop(0)

    return attempt


def test_a_verb_that_returns_is_done() -> None:
    jobs = FakeJobs()
    listener = ran(failing(), jobs)
    assert (listener.ended, listener.failing, jobs.groups) == ((RunState.DONE, ""), [], ["g"])


def test_sp7_a_broker_that_is_away_is_waited_for() -> None:
    errors = [ConnectionLost("gone"), ServiceNotReady("not yet")] * ATTEMPTS_MAX
    listener = ran(failing(*errors))
    assert listener.ended == (RunState.DONE, "")
    assert (listener.failing[:2], listener.ran_again) == (["gone", "not yet"], len(errors))


@pytest.mark.parametrize("error", [RunFailed("no such column"), InvalidSetting("no such column")])
def test_sp3_an_error_of_the_verb_ends_the_run_with_its_reason(error: Exception) -> None:
    listener = ran(failing(error))
    assert (listener.ended, listener.failing) == ((RunState.FAILED, "no such column"), [])


@pytest.mark.parametrize("error", [ValueError("odd"), NotAuthenticated("odd")])
def test_sp7_an_unexpected_error_is_repeated_some_times(error: Exception) -> None:
    assert ran(failing(*[error] * (ATTEMPTS_MAX - 1))).ended == (RunState.DONE, "")
    listener = ran(failing(*[error] * ATTEMPTS_MAX))
    assert listener.ended is not None
    assert listener.ended[0] is RunState.FAILED and "odd" in listener.ended[1]


def test_sp7_progress_between_errors_counts_anew() -> None:
    left = list(range(3 * ATTEMPTS_MAX))

    def attempt(context: RunContext) -> None:
        if left:
            context.report(Progress(done=100 - left.pop()))
            raise ValueError("odd")

    assert ran(attempt).ended == (RunState.DONE, "")


def test_sp7_a_run_that_is_stopped_in_its_back_off_ends_at_once() -> None:
    listener, given = Listener(), context()
    attempts = Attempts(failing(ConnectionLost("gone")), given, listener, FakeJobs(), "g", retry_max_s=1e6)  # type: ignore[arg-type]
    attempts._backoff._next_s = 1e6
    attempts.start()
    assert listener.is_failing.wait(WAIT_S)
    attempts.stop()
    assert attempts.join(WAIT_S)
    assert listener.ended == (None, "")


def test_sp7_a_run_that_returns_because_it_is_stopped_is_not_done() -> None:
    def attempt(context: RunContext) -> None:
        assert isinstance(context, DeclaredRun)
        context.stop()
        assert context.is_stopping and context.wait(WAIT_S)

    assert ran(attempt).ended == (None, "")


def test_a_killed_jvm_is_reported_and_ends_no_run() -> None:
    listener = ran(failing(Py4JNetworkError("Answer from Java side is empty")))
    assert listener.dead and listener.ended is not None and listener.ended[0] is None


def test_the_rate_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("magnetar.pipelines.declared.context.time.monotonic", lambda: now_s)
    given = context()
    assert given.rate == 0.0
    for done in range(0, 300_000, 10):  # as often as wanted
        now_s += 0.001
        given.report(Progress(done=done))
    assert given.rate == pytest.approx(10_000, rel=0.01)
    assert len(given._points) < 50
    now_s += 30
    assert given.rate < 4_000
    now_s += 30
    assert given.rate < 100
    given.start_over()
    given.report(Progress(done=0))
    assert given.rate == 0.0


def test_sp3_a_topic_in_use_is_waited_for() -> None:
    """A process whose machine lost its power holds its locks until the broker misses it."""
    locked = [TopicLocked("t is in use by another magnetar.redrive")] * (ATTEMPTS_MAX + 3)
    listener = ran(failing(*locked))
    assert listener.ended == (RunState.DONE, "")
    assert len(listener.failing) == len(locked)
