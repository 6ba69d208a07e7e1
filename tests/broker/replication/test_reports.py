"""States of a route without a report: starting, stopped, and the broker's own check of the remote topic."""

from __future__ import annotations

from magnetar.broker.pipelines.presence import HEARTBEAT_MAX_MS, LEAVING_MS
from magnetar.broker.replication.reports import ERROR_SHOWN_MS, ReplicationReports
from magnetar.names import TopicName
from magnetar.replication.model import (
    DeclaredRoute,
    Mismatch,
    Problem,
    Process,
    Report,
    Reports,
    RoutePolicy,
    State,
    Status,
)
from magnetar.replication.partitions import Decision, decide_remote

START_MS = 1_000_000
TOPIC = "persistent://public/default/t"
ROUTE = DeclaredRoute(TOPIC, 0, "east")
PARTITIONED = DeclaredRoute(TOPIC, 3, "east")


def status(
    reports: ReplicationReports, after_ms: int = 0, *, route: DeclaredRoute = ROUTE, topic: str = TOPIC
) -> Status:
    return reports.status(TopicName.parse(topic), route, "public/default", START_MS + after_ms)


def state(reports: ReplicationReports, after_ms: int = 0) -> tuple[State, str]:
    found = status(reports, after_ms)
    return found.state, found.reason


def receive(reports: ReplicationReports, *rows: Report, after_ms: int = 0) -> None:
    reports.receive(Reports("p1", False, list(rows)), START_MS + after_ms, lambda topic, remote: True)


def test_a_process_that_the_broker_starts_is_starting_until_it_reports() -> None:
    reports = ReplicationReports(START_MS)
    reports.presence.expect_process(START_MS + 5)
    assert state(reports, 300_000) == (State.STARTING, "the pipelines process is starting")
    assert status(reports, 300_000).since_ms == START_MS + 5
    receive(reports, after_ms=300_000)
    assert state(reports, 300_000) == (State.STARTING, "the pipelines process has not reported this topic yet")
    receive(reports, Report(TOPIC, "east", State.RUNNING), after_ms=300_000)
    assert state(reports, 300_000)[0] is State.RUNNING
    assert status(reports, 300_000).process is Process.REPORTING


def test_a_process_without_heartbeats_is_stopped_even_while_it_restarts() -> None:
    reports = ReplicationReports(START_MS)
    receive(reports, Report(TOPIC, "east", State.RUNNING))
    assert state(reports, 12_000) == (State.STOPPED, "no heartbeat from the pipelines process for 12 s")
    reports.presence.no_process("it ended with code 1; restarting in 2 s", START_MS + 12_000, Process.STARTING)
    assert state(reports, 12_000) == (
        State.STOPPED,
        "no heartbeat from the pipelines process for 12 s (it ended with code 1; restarting in 2 s)",
    )
    reports.presence.expect_process(START_MS + 13_000)
    again = "no heartbeat from the pipelines process for 13 s (the broker is starting it again)"
    assert state(reports, 13_000) == (State.STOPPED, again)
    assert status(reports, 13_000).process is Process.STARTING


def test_a_process_that_ended_is_stopped_at_once() -> None:
    reports = ReplicationReports(START_MS)
    receive(reports, Report(TOPIC, "east", State.RUNNING))
    reports.presence.no_process("it ended with code -9; restarting in 1 s", START_MS + 1, Process.STARTING)
    gone = "the pipelines process is gone (it ended with code -9; restarting in 1 s)"
    assert state(reports, 1) == (State.STOPPED, gone)
    assert status(reports, 900).since_ms == START_MS + 1
    reports.presence.expect_process(START_MS + 1000)
    assert state(reports, 1000) == (State.STOPPED, "the pipelines process is gone (the broker is starting it again)")
    assert status(reports, 1000).process is Process.STARTING
    reports.receive(Reports("p2", True, []), START_MS + 5000, lambda topic, remote: True)
    assert state(reports, 5000)[0] is State.STARTING
    assert status(reports, 5000).process is Process.REPORTING


def test_a_process_whose_connection_ended_is_stopped_at_once_whoever_started_it() -> None:
    reports = ReplicationReports(START_MS)
    receive(reports, Report(TOPIC, "east", State.RUNNING))
    reports.presence.process_left("another", START_MS + 1)
    reports.presence.process_left("", START_MS + 1)
    assert state(reports, 1)[0] is State.RUNNING
    reports.presence.process_left("p1", START_MS + 1)
    assert state(reports, 1) == (State.STOPPED, "the pipelines process is gone")
    assert status(reports, 1).process is Process.ABSENT
    receive(reports, Report(TOPIC, "east", State.RUNNING), after_ms=LEAVING_MS)
    assert state(reports, LEAVING_MS)[0] is State.STOPPED, "the report was on its way"
    receive(reports, after_ms=LEAVING_MS + 1)
    assert state(reports, LEAVING_MS + 1)[0] is State.RUNNING, "only the connection was lost"


def test_an_error_that_is_over_goes_after_a_while() -> None:
    reports = ReplicationReports(START_MS)
    for after_ms in range(0, ERROR_SHOWN_MS + 5000, 5000):
        receive(reports, Report(TOPIC, "east", State.RUNNING, error="lost", error_ms=START_MS), after_ms=after_ms)
    assert status(reports, ERROR_SHOWN_MS).last_error == "lost"
    assert status(reports, ERROR_SHOWN_MS).last_error_ms == START_MS
    late = status(reports, ERROR_SHOWN_MS + 1)
    assert (late.state, late.last_error, late.last_error_ms) == (State.RUNNING, "", 0)
    receive(reports, Report(TOPIC, "east", State.UNREACHABLE, error="lost", error_ms=START_MS), after_ms=ERROR_SHOWN_MS)
    assert status(reports, ERROR_SHOWN_MS + 1).last_error == "lost", "it is not over"


def test_the_problem_goes_with_its_reason() -> None:
    reports = ReplicationReports(START_MS)
    receive(reports, Report(TOPIC, "east", State.STOPPED, "where …", problem=Problem.FILTER))
    assert status(reports).problem is Problem.FILTER
    assert status(reports, HEARTBEAT_MAX_MS + 1).problem is Problem.OTHER, "there is no process"


def test_without_a_process_replication_is_stopped_with_the_reason() -> None:
    reports = ReplicationReports(START_MS)
    reports.presence.no_process("pipelinesEnabled is false", START_MS)
    assert state(reports) == (State.STOPPED, "no pipelines process: pipelinesEnabled is false")


def test_an_external_process_has_the_time_of_a_heartbeat_to_report() -> None:
    reports = ReplicationReports(START_MS)
    assert state(reports, HEARTBEAT_MAX_MS) == (State.STARTING, "no pipelines process has reported yet")
    assert state(reports, HEARTBEAT_MAX_MS + 1)[0] is State.STOPPED


def test_a_paused_route_is_paused_before_the_process_has_started() -> None:
    reports = ReplicationReports(START_MS)
    reports.presence.expect_process(START_MS)
    paused = DeclaredRoute(TOPIC, 0, "east", RoutePolicy(paused=True))
    assert status(reports, route=paused).state is State.PAUSED


def test_gr4_the_state_of_the_remote_topic_is_shown_before_the_first_report() -> None:
    reports = ReplicationReports(START_MS)
    reports.presence.expect_process(START_MS)
    missing = decide_remote(0, None, creates=False, mismatch=Mismatch.PIP370)
    reports.remote_topic_checked(TOPIC, "east", missing, START_MS + 1)
    reports.remote_topic_checked(TOPIC, "east", missing, START_MS + 9)
    assert state(reports, 10) == (State.WAITING, missing.reason)
    assert status(reports, 10).since_ms == START_MS + 1
    reports.remote_topic_checked(
        TOPIC, "east", decide_remote(0, 0, creates=False, mismatch=Mismatch.PIP370), START_MS + 20
    )
    assert state(reports, 20)[0] is State.STARTING
    reports.remote_topic_checked(TOPIC, "east", Decision(State.UNREACHABLE, "no route"), START_MS + 30)
    receive(reports, Report(TOPIC, "east", State.RUNNING), after_ms=40)
    assert state(reports, 40)[0] is State.RUNNING, "the report is newer"


def test_gr4_a_mismatch_holds_for_the_partitions_that_it_leaves_out() -> None:
    reports = ReplicationReports(START_MS)
    reports.presence.expect_process(START_MS)
    reports.remote_topic_checked(TOPIC, "east", decide_remote(3, 2, creates=True, mismatch=Mismatch.PIP370), START_MS)
    found = [status(reports, route=PARTITIONED, topic=f"{TOPIC}-partition-{index}").state for index in range(3)]
    assert found == [State.STARTING, State.STARTING, State.MISMATCH]


def test_checks_of_deleted_routes_are_dropped() -> None:
    reports = ReplicationReports(START_MS)
    reports.presence.expect_process(START_MS)
    reports.remote_topic_checked(TOPIC, "east", Decision(State.UNREACHABLE, "no route"), START_MS)
    reports.retain(lambda topic, remote: True, lambda topic, remote: True)
    assert state(reports)[0] is State.UNREACHABLE
    reports.retain(lambda topic, remote: True, lambda topic, remote: False)
    assert state(reports)[0] is State.STARTING
