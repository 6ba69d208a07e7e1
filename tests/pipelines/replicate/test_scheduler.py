"""The state of every topic and its transitions: events in, jobs out, no thread and no clock."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.errors import NotFound
from magnetar.client.message import MessageId
from magnetar.clock import ManualClock
from magnetar.log.events import REPLICATION_STATE
from magnetar.pipelines.copy.assignment import Outcome
from magnetar.pipelines.replicate.remote_topics import Route
from magnetar.pipelines.replicate.reports import log_level
from magnetar.pipelines.replicate.row import CopyJob, RowState
from magnetar.pipelines.replicate.scheduler import SLICE_FIRST_S, SLICE_S, SLICE_SHORT_S, Scheduler
from magnetar.pipelines.status_board import StatusBoard
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import ClusterAddress, Declaration, DeclaredRoute, Mismatch, Refusal, RoutePolicy, State
from magnetar.replication.partitions import Decision

SOURCE = ClusterEndpoint("a", "pulsar://a:6650")
FITS = Decision(State.RUNNING, copied=1)
RETRY_MAX_S = 10.0


def full(name: str) -> str:
    return f"persistent://public/default/{name}"


class FakeRemotes:
    def __init__(self) -> None:
        self.declared: list[Declaration] = []
        self.checked: list[Route] = []

    def declare(self, declaration: Declaration, endpoints: dict[str, ClusterEndpoint], errors: dict[str, str]) -> None:
        self.declared.append(declaration)

    def check(self, route: Route) -> None:
        self.checked.append(route)


class FakeWatcher:
    def __init__(self) -> None:
        self.watched: dict[str, MessageId] = {}

    def watch(self, topic: str, after: MessageId) -> None:
        self.watched[topic] = after

    def forget(self, topic: str) -> None:
        self.watched.pop(topic, None)


class FakeLanes:
    def __init__(self, count: int) -> None:
        self.free = count
        self.running: list[CopyJob] = []

    def run(self, job: CopyJob) -> None:
        assert self.free > 0
        self.free -= 1
        self.running.append(job)


class Driver:
    """A replication with fakes around it."""

    def __init__(self, lanes: int = 2) -> None:
        self.remotes = FakeRemotes()
        self.watcher = FakeWatcher()
        self.lanes = FakeLanes(lanes)
        self.board = StatusBoard(ManualClock(0), REPLICATION_STATE, log_level)
        self.replication = Scheduler(
            self.remotes, self.watcher, self.lanes, self.board, prefix="pulsar.repl.", retry_max_s=RETRY_MAX_S
        )
        self.now_s = 0.0

    def declare(self, *topics: DeclaredRoute) -> None:
        clusters = {name: ClusterAddress(broker_service_url=f"pulsar://{name}:6650") for name in ("b", "c")}
        declaration = Declaration("1", "a", True, Mismatch.PIP370, clusters, list(topics))
        self.replication.on_declared(declaration, SOURCE, self.now_s)

    def decide(self, topic: str, decision: Decision = FITS, remote: str = "b") -> None:
        self.replication.on_decision((full(topic), remote), decision, self.now_s)

    def start(self, *topics: str, remote: str = "b") -> None:
        self.declare(*(DeclaredRoute(full(topic), 0, remote) for topic in topics))
        for topic in topics:
            self.decide(topic, remote=remote)

    def done(self, *outcomes: Outcome, is_full: bool = False) -> CopyJob:
        job = self.lanes.running.pop(0)
        self.lanes.free += 1
        told = list(outcomes) or [reached(a.topic, 0, a.remote.name) for a in job.assignments]
        self.replication.on_done(job, told, is_full, self.now_s)
        return job

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.replication.tick(self.now_s)

    def tell(self, topic: str, error: NotFound | None = None) -> None:
        self.watcher.watched.pop(full(topic), None)
        self.replication.on_unread({full(topic): error}, self.now_s)

    def state(self, topic: str, remote: str = "b") -> State | None:
        return self.board.state_of((full(topic), remote))

    def copied_now(self) -> list[list[str]]:
        return [[a.topic.rpartition("/")[2] for a in job.assignments] for job in self.lanes.running]


def reached(topic: str, entry_id: int, remote: str = "b", **more: object) -> Outcome:
    return Outcome(topic, remote, acked=MessageId(1, entry_id), entries=1, messages=1, **more)  # type: ignore[arg-type]


def failed(topic: str, state: State, remote: str = "b") -> Outcome:
    return Outcome(topic, remote, state=state, reason="because", error="because", is_behind=True)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_topic_is_copied_once_its_partitions_are_known_and_then_waits_for_messages(driver: Driver) -> None:
    driver.declare(DeclaredRoute(full("t"), 0, "b"))
    assert driver.copied_now() == []
    driver.decide("t")
    assert driver.copied_now() == [["t"]]
    (assignment,) = driver.lanes.running[0].assignments
    assert (assignment.subscription, assignment.target) == ("pulsar.repl.b", full("t"))
    assert driver.state("t") is State.CATCHING_UP
    driver.done(reached(full("t"), 7))
    assert driver.state("t") is State.RUNNING
    assert driver.copied_now() == []
    assert driver.watcher.watched == {full("t"): MessageId(1, 7)}
    driver.tell("t")
    assert driver.copied_now() == [["t"]]


def test_a_topic_with_a_backlog_continues_at_once_and_is_catching_up_after_a_while(driver: Driver) -> None:
    driver.start("t")
    driver.done(reached(full("t"), 1, is_behind=True))
    assert driver.state("t") is State.CATCHING_UP
    driver.done(reached(full("t"), 2))
    assert driver.state("t") is State.RUNNING
    driver.tell("t")
    for entry_id in (3, 4):
        driver.done(reached(full("t"), entry_id, is_behind=True))
        assert driver.state("t") is State.RUNNING, "a slice that ends in the middle is no backlog yet"
    driver.done(reached(full("t"), 5, is_behind=True))
    assert driver.state("t") is State.CATCHING_UP


def test_a_topic_that_was_never_idle_continues_without_a_notification(driver: Driver) -> None:
    driver.start("t")
    driver.done(reached(full("t"), 1), is_full=True)
    assert driver.copied_now() == [["t"]]
    assert driver.watcher.watched == {}


def test_the_note_of_a_copied_topic_is_its_reason(driver: Driver) -> None:
    driver.start("t")
    for said in ("deduplication is not known", ""):
        driver.done(reached(full("t"), 1, reason=said), is_full=True)
        (row,) = driver.board.take().rows.values()
        assert (row.state, row.reason) == (State.RUNNING, said)


def test_gr4_matching_partitions_are_copied_and_the_others_have_a_reason(driver: Driver) -> None:
    driver.declare(DeclaredRoute(full("t"), 2, "b"))
    driver.decide("t", Decision(State.MISMATCH, "2 here, 1 there", copied=1))
    assert driver.copied_now() == [["t-partition-0"]]
    driver.done()
    assert driver.state("t-partition-0") is State.RUNNING
    assert driver.state("t-partition-1") is State.MISMATCH
    assert reason_of(driver, "t-partition-0") == "2 here, 1 there"
    driver.decide("t", Decision(State.RUNNING, copied=2))
    assert driver.copied_now() == [["t-partition-1"]]
    assert reason_of(driver, "t-partition-0") == "", "without waiting for the next message"


def reason_of(driver: Driver, topic: str) -> str:
    return driver.board.take(is_all=True).rows[full(topic), "b"].reason


@pytest.mark.parametrize("state", [State.WAITING, State.MISMATCH, State.UNREACHABLE, State.REFUSED])
def test_a_negative_decision_holds_a_topic_until_the_next(driver: Driver, state: State) -> None:
    driver.start("t")
    driver.done()
    driver.decide("t", Decision(state, "because"))
    assert driver.state("t") is state
    assert driver.watcher.watched == {}
    driver.decide("t")
    assert driver.copied_now() == [["t"]]
    driver.done()
    assert driver.state("t") is State.RUNNING


def test_a_decision_during_a_copy_applies_afterwards(driver: Driver) -> None:
    driver.start("t")
    driver.decide("t", Decision(State.UNREACHABLE, "away"))
    assert driver.state("t") is State.CATCHING_UP
    driver.done()
    assert driver.state("t") is State.UNREACHABLE
    assert driver.watcher.watched == {}
    assert driver.copied_now() == []


def test_pausing_stops_and_resuming_continues(driver: Driver) -> None:
    driver.start("t")
    driver.done()
    driver.declare(DeclaredRoute(full("t"), 0, "b", RoutePolicy(paused=True)))
    assert driver.state("t") is State.PAUSED
    assert driver.watcher.watched == {}
    driver.declare(DeclaredRoute(full("t"), 0, "b"))
    assert driver.copied_now() == [["t"]], "its shape is known"


def test_a_withdrawn_topic_is_removed_after_its_job(driver: Driver) -> None:
    driver.start("t", "other")
    assert len(driver.lanes.running) == 2
    driver.declare(DeclaredRoute(full("other"), 0, "b"))
    assert driver.state("t") is State.CATCHING_UP, "it is still copied"
    driver.done()
    assert driver.state("t") is None
    driver.done()
    driver.declare()
    assert driver.state("other") is None
    assert driver.watcher.watched == {}


def test_a_topic_with_new_partitions_is_checked_again(driver: Driver) -> None:
    driver.declare(DeclaredRoute(full("t"), 1, "b"))
    driver.decide("t")
    driver.done()
    driver.declare(DeclaredRoute(full("t"), 2, "b", grown_from=1))
    assert driver.copied_now() == []
    driver.decide("t", Decision(State.RUNNING, copied=2))
    copied = [topic for job in driver.copied_now() for topic in job]
    assert sorted(copied) == ["t-partition-0", "t-partition-1"]


def test_a_failure_backs_off_longer_each_time_and_may_recheck_the_partitions(driver: Driver) -> None:
    driver.start("t")
    pauses = []
    for _ in range(8):
        driver.done(failed(full("t"), State.UNREACHABLE))
        assert driver.state("t") is State.UNREACHABLE
        waited = 0.0
        while not driver.remotes.checked:
            driver.pass_time(0.1)
            waited += 0.1
        pauses.append(waited)
        assert driver.remotes.checked.pop() == (full("t"), "b")
        driver.decide("t")
        assert driver.state("t") is State.UNREACHABLE, "it has to be copied first"
    assert pauses[0] < 0.5
    assert RETRY_MAX_S * 0.85 <= pauses[-1] <= RETRY_MAX_S + 0.2
    driver.done()
    assert driver.state("t") is State.RUNNING


def test_gr8_a_refused_topic_is_retried_unchanged(driver: Driver) -> None:
    driver.start("t")
    driver.done(failed(full("t"), State.REFUSED))
    driver.pass_time(RETRY_MAX_S)
    assert driver.remotes.checked == []
    assert driver.copied_now() == [["t"]]
    assert driver.state("t") is State.REFUSED


def test_a_new_route_policy_is_tried_at_once(driver: Driver) -> None:
    driver.start("t")
    for _ in range(5):
        driver.done(failed(full("t"), State.REFUSED))
        driver.pass_time(RETRY_MAX_S)
    driver.done(failed(full("t"), State.REFUSED))
    assert driver.copied_now() == []
    driver.declare(DeclaredRoute(full("t"), 0, "b", RoutePolicy(refused=Refusal.SKIP)))
    assert driver.copied_now() == [["t"]]
    driver.done()
    assert driver.state("t") is State.RUNNING


def test_a_failed_job_is_repeated(driver: Driver) -> None:
    driver.start("t")
    job = driver.lanes.running.pop()
    driver.lanes.free += 1
    driver.replication.on_failed(job, "a worker was killed", driver.now_s)
    assert driver.copied_now() == []
    driver.pass_time(0.5)
    assert driver.copied_now() == [["t"]]
    (row,) = driver.board.take().rows.values()
    assert row.error == "a worker was killed"


def test_a_topic_missing_at_the_source_is_looked_up_with_back_off(driver: Driver) -> None:
    driver.start("t")
    driver.done()
    driver.tell("t", NotFound("no such topic"))
    assert driver.copied_now() == []
    driver.pass_time(0.5)
    assert driver.copied_now() == [["t"]]


def test_notifications_without_messages_do_not_keep_a_lane_busy(driver: Driver) -> None:
    driver.start("t")
    jobs = 0
    for _ in range(100):
        if driver.lanes.running:
            jobs += 1
            driver.done(Outcome(full("t"), "b", acked=MessageId(1, 1)))
        if full("t") in driver.watcher.watched:
            driver.tell("t")
        driver.pass_time(0.01)
    assert jobs < 10


def test_lanes_share_ready_topics_and_use_short_slices_under_load() -> None:
    driver = Driver(lanes=1)
    driver.start("first")
    assert driver.lanes.running[0].slice_s == SLICE_SHORT_S, "no lane is left for others"
    driver.start("first", *(f"t{number}" for number in range(10)))
    driver.lanes.free = 2
    driver.done()
    assert [len(job.assignments) for job in driver.lanes.running] == [4, 3, 3]
    assert [job.slice_s for job in driver.lanes.running[:2]] == [SLICE_FIRST_S, SLICE_FIRST_S]
    assert SLICE_SHORT_S < driver.lanes.running[2].slice_s < 2 * SLICE_SHORT_S


def test_a_topic_that_keeps_up_gets_longer_slices(driver: Driver) -> None:
    driver.start("t")
    for is_behind, slice_s in ((True, SLICE_FIRST_S), (False, SLICE_FIRST_S), (True, SLICE_S), (False, SLICE_FIRST_S)):
        assert driver.lanes.running[0].slice_s == slice_s
        driver.done(reached(full("t"), 1, is_behind=is_behind), is_full=True)
    assert driver.lanes.running[0].slice_s == SLICE_S


def test_a_group_has_one_remote_and_filters_are_separate() -> None:
    driver = Driver(lanes=1)
    topics = [full(name) for name in ("x", "y")]
    policy = RoutePolicy(where="true")
    driver.lanes.free = 0
    driver.declare(
        *(DeclaredRoute(topic, 0, remote) for topic in topics for remote in "bc"),
        DeclaredRoute(full("z"), 0, "b", policy),
    )
    for name, remote in (("x", "b"), ("y", "b"), ("x", "c"), ("y", "c"), ("z", "b")):
        driver.decide(name, remote=remote)
    groups = []
    driver.lanes.free = 1
    driver.replication.tick(0)
    while driver.lanes.running:
        job = driver.done()
        groups.append([(a.topic.rpartition("/")[2], a.remote.name) for a in job.assignments])
    assert groups == [[("x", "b"), ("y", "b")], [("x", "c"), ("y", "c")], [("z", "b")]]


def test_remotes_of_one_topic_share_its_notifications(driver: Driver) -> None:
    driver.declare(*(DeclaredRoute(full("t"), 0, remote) for remote in "bc"))
    driver.decide("t", remote="b")
    driver.decide("t", remote="c")
    driver.done(reached(full("t"), 5, "b"))
    driver.done(reached(full("t"), 3, "c"))
    assert driver.watcher.watched == {full("t"): MessageId(1, 3)}
    driver.tell("t")
    assert len(driver.lanes.running) == 2


def test_dead_letter_topics_are_left_out_unless_requested(driver: Driver) -> None:
    driver.declare(
        DeclaredRoute(full("t-s-DLQ"), 0, "b"), DeclaredRoute(full("t-s-RETRY"), 0, "b", RoutePolicy(dead_letters=True))
    )
    driver.decide("t-s-DLQ")
    driver.decide("t-s-RETRY")
    assert driver.copied_now() == [["t-s-RETRY"]]
    asked_for = [declared.topic for declared in driver.remotes.declared[-1].topics]
    assert asked_for == [full("t-s-RETRY")], "nor are they made in the remote cluster"


def places(driver: Driver) -> dict[RowState, int]:
    rows = driver.replication._rows.values()
    return {place: sum(row.state is place for row in rows) for place in RowState}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=120), st.integers(0, 1000))
def test_every_topic_is_always_in_one_state_and_lanes_are_used(steps: Sequence[int], seed: int) -> None:
    chance = random.Random(seed)
    driver = Driver(lanes=2)
    names = [f"t{number}" for number in range(8)]
    for step in steps:
        name = chance.choice(names)
        if step == 0:
            driver.declare(*(DeclaredRoute(full(name), 0, "b") for name in names if chance.random() < 0.8))
        elif step == 1:
            driver.decide(name, chance.choice([FITS, FITS, Decision(State.WAITING, "not there")]))
        elif step == 2 and driver.lanes.running:
            driver.done()
        elif step == 3 and driver.lanes.running:
            job = driver.lanes.running[0]
            driver.done(*(failed(a.topic, chance.choice(list(State))) for a in job.assignments))
        elif step == 4 and driver.watcher.watched:
            driver.tell(chance.choice(sorted(driver.watcher.watched)).rpartition("/")[2])
        elif step == 5:
            driver.pass_time(chance.random() * 5)
        elif step == 6 and driver.lanes.running:
            driver.done(is_full=True)
        counted = places(driver)
        running = {a.topic for job in driver.lanes.running for a in job.assignments}
        assert counted[RowState.COPYING] <= len(running)
        assert counted[RowState.READY] == 0 or driver.lanes.free == 0
        assert counted[RowState.IDLE] == len(driver.watcher.watched)
    while driver.lanes.running:
        driver.done()
    assert places(driver)[RowState.COPYING] == 0


def test_sp6_a_rename_does_not_mix_two_topics(driver: Driver) -> None:
    driver.start("x")
    driver.done()
    clash = "both would be x"
    renamed = DeclaredRoute(full("a"), 0, "b", RoutePolicy(rename="x"), clash=clash)
    driver.declare(DeclaredRoute(full("x"), 0, "b", clash=clash), renamed, DeclaredRoute(full("c"), 0, "b"))
    for topic in ("a", "c"):
        driver.decide(topic)
    assert [driver.state(topic) for topic in ("a", "x")] == [State.STOPPED] * 2
    assert driver.copied_now() == [["c"]], "nothing else"
    driver.done()
    driver.declare(DeclaredRoute(full("x"), 0, "b"), DeclaredRoute(full("a"), 0, "b", RoutePolicy(rename="y")))
    driver.decide("a")
    assert sorted(topic for topics in driver.copied_now() for topic in topics) == ["a", "x"]
