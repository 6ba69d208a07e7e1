"""States of a route without a report: starting, stopped, and the broker's own check of the remote topic."""

from __future__ import annotations

from magnetar.broker.replication.reports import HEARTBEAT_MAX_MS, ReplicationReports
from magnetar.names import TopicName
from magnetar.replication.model import DeclaredRoute, Mismatch, Report, Reports, RoutePolicy, State, Status
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
    reports.expect_process(START_MS + 5)
    assert state(reports, 300_000) == (State.STARTING, "the pipelines process is starting")
    assert status(reports, 300_000).since_ms == START_MS + 5
    receive(reports, after_ms=300_000)
    assert state(reports, 300_000) == (State.STARTING, "the pipelines process has not reported this topic yet")
    receive(reports, Report(TOPIC, "east", State.RUNNING), after_ms=300_000)
    assert state(reports, 300_000)[0] is State.RUNNING
    assert status(reports, 300_000).has_heartbeat


def test_a_process_without_heartbeats_is_stopped_even_while_it_restarts() -> None:
    reports = ReplicationReports(START_MS)
    receive(reports, Report(TOPIC, "east", State.RUNNING))
    assert state(reports, 12_000) == (State.STOPPED, "no heartbeat from the pipelines process for 12 s")
    reports.no_process("it ended with code 1; restarting in 2 s")
    assert state(reports, 12_000) == (
        State.STOPPED,
        "no heartbeat from the pipelines process for 12 s (it ended with code 1; restarting in 2 s)",
    )
    reports.expect_process(START_MS + 13_000)
    assert state(reports, 13_000) == (State.STOPPED, "no heartbeat from the pipelines process for 13 s")
    assert not status(reports, 13_000).has_heartbeat


def test_without_a_process_replication_is_stopped_with_the_reason() -> None:
    reports = ReplicationReports(START_MS)
    reports.no_process("pipelinesEnabled is false")
    assert state(reports) == (State.STOPPED, "no pipelines process: pipelinesEnabled is false")


def test_an_external_process_has_the_time_of_a_heartbeat_to_report() -> None:
    reports = ReplicationReports(START_MS)
    assert state(reports, HEARTBEAT_MAX_MS) == (State.STARTING, "no pipelines process has reported yet")
    assert state(reports, HEARTBEAT_MAX_MS + 1)[0] is State.STOPPED


def test_a_paused_route_is_paused_before_the_process_has_started() -> None:
    reports = ReplicationReports(START_MS)
    reports.expect_process(START_MS)
    paused = DeclaredRoute(TOPIC, 0, "east", RoutePolicy(paused=True))
    assert status(reports, route=paused).state is State.PAUSED


def test_gr4_the_state_of_the_remote_topic_is_shown_before_the_first_report() -> None:
    reports = ReplicationReports(START_MS)
    reports.expect_process(START_MS)
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
    reports.expect_process(START_MS)
    reports.remote_topic_checked(TOPIC, "east", decide_remote(3, 2, creates=True, mismatch=Mismatch.PIP370), START_MS)
    found = [status(reports, route=PARTITIONED, topic=f"{TOPIC}-partition-{index}").state for index in range(3)]
    assert found == [State.STARTING, State.STARTING, State.MISMATCH]


def test_checks_of_deleted_routes_are_dropped() -> None:
    reports = ReplicationReports(START_MS)
    reports.expect_process(START_MS)
    reports.remote_topic_checked(TOPIC, "east", Decision(State.UNREACHABLE, "no route"), START_MS)
    reports.retain(lambda topic, remote: True, lambda topic, remote: True)
    assert state(reports)[0] is State.UNREACHABLE
    reports.retain(lambda topic, remote: True, lambda topic, remote: False)
    assert state(reports)[0] is State.STARTING
