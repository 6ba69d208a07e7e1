"""The scheduler of replication: every row is in one state (see `row`), and events move it to another.

Owns these moves and nothing else: no thread, no Spark, no socket. The time is an argument. Remote topics, the topic
watcher and the job lanes are behind three small interfaces.
"""

from __future__ import annotations

import heapq
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import msgspec

from magnetar.client.connection.retry import Backoff
from magnetar.client.errors import ClientError
from magnetar.client.message import MessageId
from magnetar.deadletter.topics import is_dead_letter_or_retry_topic
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.replicate.remote_topics import Route
from magnetar.pipelines.replicate.reports import count_outcome
from magnetar.pipelines.replicate.row import CopyJob, Row, RowKey, RowState
from magnetar.pipelines.status_board import StatusBoard
from magnetar.replication.cluster import ClusterEndpoint, endpoints_of
from magnetar.replication.model import PARKED_SUFFIX, Declaration, DeclaredRoute, Problem, State
from magnetar.replication.partitions import Decision
from magnetar.replication.topic_template import remote_topic

log = logging.getLogger(__name__)

GROUP_MAX = 128
"""The most rows that one job copies."""

SLICE_S = 10.0
"""The time slice of a job whose topics are never silent and keep up. Between two jobs their messages wait a little."""

SLICE_FIRST_S = 3.0
"""The same while it is unknown whether they keep up: a job reports its progress when it ends."""

SLICE_SHORT_S = 0.3
SLICE_SHORT_PER_TOPIC_S = 0.02
"""The same for the last free lane, so that other topics need not wait long; many topics take longer to open."""

LINGER_S = 0.15
"""The time without new entries after which a job ends early."""

_PAUSE_FIRST_S = 0.2
_BEHIND_MAX = 3  # jobs in a row that did not reach the end, before a row is reported as catching up
_EMPTY_JOBS_MAX = 3  # jobs in a row that found no entries although the watcher reported some


_Kind = tuple[str, bool]
"""Rows that are copied together: to one remote cluster, with or without a filter before."""


class RemoteChecks(Protocol):
    """Checks remote topics; decisions come back by `Scheduler.on_decision`."""

    def declare(
        self, declaration: Declaration, endpoints: dict[str, ClusterEndpoint], errors: dict[str, str]
    ) -> None: ...

    def check(self, route: Route) -> None: ...


class Watcher(Protocol):
    """Reports once when a topic has entries after a position, by `Scheduler.on_unread`."""

    def watch(self, topic: str, after: MessageId) -> None: ...

    def forget(self, topic: str) -> None: ...


class Lanes(Protocol):
    """Runs jobs, `free` more at this moment; results come back by `Scheduler.on_done` or `on_failed`."""

    @property
    def free(self) -> int: ...

    def run(self, job: CopyJob) -> None: ...


@dataclass
class _Routed:
    """A route and its rows."""

    declared: DeclaredRoute
    rows: dict[RowKey, Row]
    decision: Decision | None = None
    known: tuple[DeclaredRoute, ClusterEndpoint, ClusterEndpoint] | None = None  # the rows were created from these


class Scheduler:
    """Called by one thread only."""

    def __init__(
        self,
        remotes: RemoteChecks,
        watcher: Watcher,
        lanes: Lanes,
        board: StatusBoard[State],
        *,
        prefix: str,
        retry_max_s: float = 10.0,
    ) -> None:
        self._remotes = remotes
        self._watcher = watcher
        self._lanes = lanes
        self._board = board
        self._prefix = prefix
        self._retry_max_s = retry_max_s
        self._routed: dict[Route, _Routed] = {}
        self._rows: dict[RowKey, Row] = {}
        self._ready: dict[_Kind, OrderedDict[RowKey, Row]] = {}  # in the order of waiting
        self._turn: list[_Kind] = []  # the one that is next first
        self._idle: dict[str, dict[str, Row]] = {}  # by topic and remote
        self._backing_off: list[tuple[float, int, Row]] = []
        self._numbers = count()
        self._now_s = 0.0

    # -- declarations

    def on_declared(self, declaration: Declaration, source: ClusterEndpoint, now_s: float) -> None:
        self._now_s = now_s
        endpoints, errors = endpoints_of(declaration.clusters)
        wanted = [declared for declared in declaration.topics if _is_wanted(declared)]
        by_route = {(declared.topic, declared.remote): declared for declared in wanted}
        for route in [route for route in self._routed if route not in by_route]:
            for row in self._routed.pop(route).rows.values():
                self._remove(row)
        for route, declared in by_route.items():
            remote = endpoints.get(declared.remote, ClusterEndpoint(declared.remote, ""))
            known = (declared, source, remote)
            routed = self._routed.setdefault(route, _Routed(declared, {}))
            if routed.known == known:
                continue  # unchanged, as most are
            if _shape_of(routed.declared) != _shape_of(declared):
                routed.decision = None
            routed.declared, routed.known = declared, known
            self._make_rows(routed, source, remote)
            self._apply(routed)
        self._remotes.declare(msgspec.structs.replace(declaration, topics=wanted), endpoints, errors)
        self._dispatch()

    def _make_rows(self, routed: _Routed, source: ClusterEndpoint, remote: ClusterEndpoint) -> None:
        declared = routed.declared
        name = TopicName.parse(declared.topic)
        names = [name.with_partition(index) for index in range(declared.partitions)] or [name]
        wanted = {(topic.full, declared.remote): topic for topic in names}
        for key in [key for key in routed.rows if key not in wanted]:
            self._remove(routed.rows.pop(key))
        for key, topic in wanted.items():
            try:
                target = remote_topic(topic.full, declared.policy.rename)
            except InvalidName as error:
                self._board.set(key, State.REFUSED, str(error))
                continue
            assignment = Assignment(
                source=source,
                remote=remote,
                topic=topic.full,
                target=target,
                subscription=self._prefix + declared.remote,
                policy=declared.policy,
            )
            row = routed.rows.get(key)
            if row is None:
                index = topic.partition if declared.partitions else -1
                row = Row(key, (declared.topic, declared.remote), index, assignment, self._new_backoff())
                routed.rows[key] = self._rows[key] = row
            elif row.assignment != assignment and row.state is RowState.BACKING_OFF:
                row.state = RowState.HELD  # the cause of the failure may be gone
                row.backoff.reset()
            row.assignment = assignment

    def _new_backoff(self) -> Backoff:
        return Backoff(_PAUSE_FIRST_S, self._retry_max_s)

    def _remove(self, row: Row) -> None:
        self._leave(row)
        self._rows.pop(row.key, None)
        if row.state is not RowState.COPYING:  # then it is removed when the job is done
            row.state = RowState.HELD
            self._board.remove(row.key)

    # -- decisions about remote topics

    def on_decision(self, route: Route, decision: Decision, now_s: float) -> None:
        self._now_s = now_s
        routed = self._routed.get(route)
        if routed is not None:
            routed.decision = decision
            self._apply(routed)
            self._dispatch()

    def _apply(self, routed: _Routed) -> None:
        """Holds and releases rows by the declaration and the decision."""
        decision = routed.decision
        for row in routed.rows.values():
            if row.assignment.policy.paused:
                self._hold(row, State.PAUSED)
            elif routed.declared.clash:
                self._hold(row, State.STOPPED, routed.declared.clash)
            elif decision is None:
                self._hold(row, None)
            elif decision.copies(row.partition):
                self._explain(row, decision.reason)
                self._release(row)
            else:
                self._hold(row, decision.state, decision.reason, decision.problem)

    def _explain(self, row: Row, reason: str) -> None:
        """The reason of a row that is copied may be over before its next message."""
        state = self._board.state_of(row.key)
        if row.reason != reason and state is not None and state.is_copying:
            self._board.set(row.key, state, reason)
        row.reason = reason

    def _hold(self, row: Row, state: State | None, reason: str = "", problem: Problem = Problem.OTHER) -> None:
        if row.state is RowState.COPYING:
            return  # held when the job is done
        self._leave(row)
        row.state = RowState.HELD
        if state is not None:
            is_error = state not in (State.PAUSED, State.WAITING)
            self._board.set(row.key, state, reason, error=reason if is_error else "", problem=problem)

    def _release(self, row: Row) -> None:
        if row.state is RowState.HELD:
            if not row.is_failing:
                self._board.set(row.key, State.CATCHING_UP, row.reason)
            self._make_ready(row)

    # -- topics with unread entries, and back-off

    def on_unread(self, topics: Mapping[str, ClientError | None], now_s: float) -> None:
        self._now_s = now_s
        for topic, error in topics.items():
            for row in self._idle.pop(topic, {}).values():
                if error is None:
                    self._make_ready(row)
                else:
                    # A deleted topic will leave the declaration too; a broker that is away comes back.
                    log.debug("%s cannot be watched: %s", topic, error)
                    self._back_off(row)
        self._dispatch()

    def tick(self, now_s: float) -> float | None:
        """Wakes rows whose back-off is over; returns the time of the next, if there is one."""
        self._now_s = now_s
        while self._backing_off and self._backing_off[0][0] <= now_s:
            row = heapq.heappop(self._backing_off)[2]
            if row.state is not RowState.BACKING_OFF or self._rows.get(row.key) is not row:
                continue
            if self._board.state_of(row.key) in (State.UNREACHABLE, State.WAITING, State.MISMATCH):
                row.state = RowState.HELD
                self._remotes.check(row.route)
            else:
                self._make_ready(row)
        self._dispatch()
        return self._backing_off[0][0] if self._backing_off else None

    # -- jobs

    def on_done(self, job: CopyJob, outcomes: Sequence[Outcome], is_full: bool, now_s: float) -> None:
        """`is_full`: see `Copied`."""
        self._now_s = now_s
        by_key = {(outcome.topic, outcome.remote): outcome for outcome in outcomes}
        for row in self._still_wanted(job):
            outcome = by_key.get(row.key)
            if outcome is None:
                self._back_off(row)
            else:
                self._take(row, outcome, is_full)
            self._apply_again(row)
        self._dispatch()

    def on_failed(self, job: CopyJob, error: str, now_s: float) -> None:
        """The job itself failed: a worker was killed, or there is a bug. Its rows are copied again."""
        self._now_s = now_s
        for row in self._still_wanted(job):
            state = self._board.state_of(row.key)
            if state is not None:
                self._board.set(row.key, state, row.reason, error=error)
            self._back_off(row)
            self._apply_again(row)
        self._dispatch()

    def _still_wanted(self, job: CopyJob) -> Iterable[Row]:
        for row in job.rows:
            if row.key not in self._rows:
                self._board.remove(row.key)
        return [row for row in job.rows if self._rows.get(row.key) is row]

    def _take(self, row: Row, outcome: Outcome, is_full: bool) -> None:
        count_outcome(self._board, row.key, outcome)
        if outcome.acked is not None:
            row.after = outcome.acked
        if not outcome.state.is_copying:
            row.is_failing = True
            error = outcome.error or outcome.reason
            self._board.set(row.key, outcome.state, outcome.reason, error=error, problem=outcome.problem)
            self._back_off(row)
            return
        row.is_failing = False
        row.behind = row.behind + 1 if outcome.is_behind else 0
        was_running = self._board.state_of(row.key) is State.RUNNING
        is_behind = outcome.is_behind and (row.behind >= _BEHIND_MAX or not was_running)
        state = State.CATCHING_UP if is_behind else State.RUNNING
        self._board.set(row.key, state, outcome.reason or row.reason, error=outcome.error)
        is_moving = bool(outcome.entries or outcome.skipped or outcome.dead_lettered)
        row.empty_jobs = 0 if is_moving else row.empty_jobs + 1
        if row.after is None or row.empty_jobs > _EMPTY_JOBS_MAX:
            self._back_off(row)
            return
        if is_moving:
            row.backoff.reset()
        if outcome.is_behind or (is_full and is_moving):
            self._make_ready(row)
        else:
            self._make_idle(row)

    def _apply_again(self, row: Row) -> None:
        """Applies decisions that came while it was copied."""
        routed = self._routed[row.route]
        decision = routed.decision
        is_wanted = decision is not None and decision.copies(row.partition)
        if row.assignment.policy.paused or routed.declared.clash or not is_wanted:
            self._apply(routed)

    # -- states

    def _leave(self, row: Row) -> None:
        if row.state is RowState.READY:
            for waiting in self._ready.values():
                waiting.pop(row.key, None)
        elif row.state is RowState.IDLE:
            others = self._idle[row.key[0]]
            others.pop(row.key[1], None)
            if not others:
                del self._idle[row.key[0]]
                self._watcher.forget(row.key[0])

    def _make_ready(self, row: Row) -> None:
        kind = (row.key[1], bool(row.assignment.policy.where))
        if kind not in self._ready:
            self._ready[kind] = OrderedDict()
            self._turn.append(kind)
        row.state = RowState.READY
        self._ready[kind][row.key] = row

    def _make_idle(self, row: Row) -> None:
        row.state = RowState.IDLE
        waiting = self._idle.setdefault(row.key[0], {})
        waiting[row.key[1]] = row
        positions = [other.after for other in waiting.values() if other.after is not None]
        self._watcher.watch(row.key[0], min(positions, key=lambda position: position.position))

    def _back_off(self, row: Row) -> None:
        row.state = RowState.BACKING_OFF
        heapq.heappush(self._backing_off, (self._now_s + row.backoff.next_s(), next(self._numbers), row))

    def _dispatch(self) -> None:
        """Gives each free lane a fair group of one kind, so that no remote cluster delays another."""
        while self._lanes.free > 0 and (rows := self._next_group()):
            for row in rows:
                row.state = RowState.COPYING
            is_last = self._lanes.free == 1
            job = CopyJob(
                assignments=[row.assignment for row in rows],
                starts={row.key: row.after for row in rows},
                slice_s=_short_slice_s(len(rows)) if is_last else self._slice_s(rows),
                linger_s=LINGER_S,
                rows=rows,
            )
            self._lanes.run(job)

    def _slice_s(self, rows: list[Row]) -> float:
        keep_up = all(self._board.state_of(row.key) is State.RUNNING and not row.behind for row in rows)
        return SLICE_S if keep_up else SLICE_FIRST_S

    def _next_group(self) -> list[Row]:
        total = sum(map(len, self._ready.values()))
        size = min(GROUP_MAX, -(-total // self._lanes.free))
        for kind in list(self._turn):
            waiting = self._ready[kind]
            if waiting:
                self._turn.remove(kind)
                self._turn.append(kind)
                return [waiting.popitem(last=False)[1] for _ in range(min(size, len(waiting)))]
        return []


def _is_wanted(declared: DeclaredRoute) -> bool:
    if declared.topic.endswith(PARKED_SUFFIX):
        return False
    return declared.policy.dead_letters or not is_dead_letter_or_retry_topic(TopicName.parse(declared.topic))


def _short_slice_s(topics: int) -> float:
    return min(SLICE_FIRST_S, SLICE_SHORT_S + SLICE_SHORT_PER_TOPIC_S * (topics - 1))


def _shape_of(declared: DeclaredRoute) -> tuple[int, int, str]:
    return declared.partitions, declared.grown_from, declared.policy.rename
