"""Topics of replication in a remote cluster: checked, created and grown by PIP-370's table, with back-off.

The one algorithm of the broker, which creates remote topics as soon as they are declared, and of the pipelines process,
which checks them while it copies. They add asyncio and threads. No socket and no clock: a step is a request that the
caller sends, and the time is an argument.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from magnetar.client.connection.retry import Backoff
from magnetar.client.errors import (
    ClientError,
    Conflict,
    InvalidArgument,
    NamespaceNotFound,
    NeedsRest,
    NotAuthorized,
    WrongPort,
)
from magnetar.replication.model import Mismatch, State
from magnetar.replication.partitions import Decision, WantedTopic, decide_remote
from magnetar.replication.problems import CreationDenied, problem_of

TRIES_MAX = 3
"""Checks of one topic while other clients create and delete it."""

CHECKS_MAX = 16
"""Topics of one cluster that are checked at the same time."""


# -- one topic


@dataclass(frozen=True)
class Check:
    """The partitions of a topic, None where it does not exist."""

    topic: str


@dataclass(frozen=True)
class Create:
    topic: str
    partitions: int
    copy_of: str


@dataclass(frozen=True)
class Grow:
    topic: str
    partitions: int


Steps = Generator[Check | Create | Grow, int | None, Decision]


def reconcile(wanted: WantedTopic, *, creates: bool, mismatch: Mismatch) -> Steps:
    """The requests for one topic; errors are thrown in. Raises the last `Conflict` after `TRIES_MAX`, and
    `CreationDenied`."""
    for tries in range(1, TRIES_MAX + 1):
        partitions = yield Check(wanted.target)
        decision = decide_remote(
            wanted.partitions, partitions, creates=creates, mismatch=mismatch, grown_from=wanted.grown_from
        )
        try:
            if decision.creates is not None:
                yield Create(wanted.target, decision.creates, wanted.copy_of)
            elif decision.grows_to is not None:
                yield Grow(wanted.target, decision.grows_to)
        except Conflict:  # another client was faster: its topic is checked
            if tries == TRIES_MAX:
                raise
        except NotAuthorized as error:
            raise CreationDenied(error.text, code=error.code, status=error.status) from error
        else:
            return decision
    raise AssertionError("the last conflict was raised")


class BlockingTopics(Protocol):
    """The calls of a blocking client."""

    def partition_count(self, topic: str) -> int | None: ...

    def create_topic(self, topic: str, partitions: int, copy_of: str) -> None: ...

    def grow_topic(self, topic: str, partitions: int) -> None: ...


class AsyncTopics(Protocol):
    """The same of an `AsyncClient`."""

    async def partition_count(self, topic: str) -> int | None: ...

    async def create_topic(self, topic: str, partitions: int, copy_of: str) -> None: ...

    async def grow_topic(self, topic: str, partitions: int) -> None: ...


def run_blocking(steps: Steps, client: BlockingTopics) -> Decision:
    try:
        step = next(steps)
        while True:
            partitions: int | None = None
            try:
                match step:
                    case Check(topic):
                        partitions = client.partition_count(topic)
                    case Create(topic, wanted, copy_of):
                        client.create_topic(topic, wanted, copy_of)
                    case Grow(topic, wanted):
                        client.grow_topic(topic, wanted)
            except ClientError as error:
                step = steps.throw(error)
            else:
                step = steps.send(partitions)
    except StopIteration as end:
        decision: Decision = end.value
        return decision


async def run_async(steps: Steps, client: AsyncTopics) -> Decision:
    try:
        step = next(steps)
        while True:
            partitions: int | None = None
            try:
                match step:
                    case Check(topic):
                        partitions = await client.partition_count(topic)
                    case Create(topic, wanted, copy_of):
                        await client.create_topic(topic, wanted, copy_of)
                    case Grow(topic, wanted):
                        await client.grow_topic(topic, wanted)
            except ClientError as error:
                step = steps.throw(error)
            else:
                step = steps.send(partitions)
    except StopIteration as end:
        decision: Decision = end.value
        return decision


def decision_after(error: ClientError, target: str, cluster: str) -> Decision:
    """Unreachable, which concerns every topic of the cluster, or refused, which concerns this one."""
    if error.retriable or isinstance(error, WrongPort):
        return Decision(State.UNREACHABLE, f"cluster {cluster} cannot be reached: {error.text}")
    if isinstance(error, NamespaceNotFound):
        return Decision(State.REFUSED, f"in cluster {cluster} {error.text}")
    if isinstance(error, NeedsRest):
        repair = f"magnetar clusters update {cluster} --service-url http://HOST:PORT"
        return Decision(State.REFUSED, f"cluster {cluster} has no HTTP address to create {target}: {repair}")
    if isinstance(error, InvalidArgument):  # a file of a token or certificate: no request was sent
        return Decision(State.REFUSED, f"cluster {cluster} cannot be queried: {error.text}")
    return Decision(State.REFUSED, f"cluster {cluster} refuses {target}: {error.text}", problem=problem_of(error))


# -- all topics of one cluster


class Ticket:
    """A topic that is wanted in the cluster, until it is discarded."""

    def __init__(self, topic: str, backoff: Backoff) -> None:
        self.topic = topic
        self.attempts = 0
        """Replies after which it was not as wanted."""
        self.backoff = backoff
        self.due_s: float | None = None  # None: settled or busy
        self.is_busy = False
        self.is_outdated = False  # changed while it was checked


class TopicQueue:
    """When each topic of one cluster is checked. A ticket that was taken is busy until one of four calls returns it.

    A cluster that does not reply is `away`: one topic at a time is tried, with back-off, and the others wait for it.
    """

    def __init__(self, first_s: float, last_s: float) -> None:
        self._first_s = first_s
        self._last_s = max(first_s, last_s)
        self._tickets: dict[str, Ticket] = {}
        self._due: list[tuple[float, int, Ticket]] = []
        self._numbers = count()
        self._busy = 0
        self._backoff = self._new_backoff()
        self._probe: Ticket | None = None
        self._probe_s = 0.0
        self.away: Decision | None = None
        self.failures = 0
        """Attempts in a row without a reply of the cluster."""

    def _new_backoff(self) -> Backoff:
        return Backoff(self._first_s, self._last_s)

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def topics(self) -> list[str]:
        return list(self._tickets)

    # -- wanted topics

    def put(self, topic: str, now_s: float) -> None:
        """Checks it as soon as possible, and once more if it is being checked."""
        ticket = self._tickets.get(topic)
        if ticket is None:
            ticket = self._tickets[topic] = Ticket(topic, self._new_backoff())
        if ticket.is_busy:
            ticket.is_outdated = True
        else:
            self._plan(ticket, now_s)

    def discard(self, topic: str) -> None:
        ticket = self._tickets.pop(topic, None)
        if ticket is not None and ticket.is_busy:
            self._end(ticket)

    def clear(self) -> None:
        for topic in self.topics:
            self.discard(topic)
        self._is_back()

    def _plan(self, ticket: Ticket, due_s: float) -> None:
        ticket.due_s = due_s
        heapq.heappush(self._due, (due_s, next(self._numbers), ticket))

    def _is_planned(self, due_s: float, ticket: Ticket) -> bool:
        return ticket.due_s == due_s and self._tickets.get(ticket.topic) is ticket

    # -- what is due

    def take(self, now_s: float) -> list[Ticket]:
        """The topics to check now, at most `CHECKS_MAX` at the same time."""
        limit = CHECKS_MAX - self._busy
        if self.away is not None:
            limit = 1 if self._probe is None and self._probe_s <= now_s else 0
        taken: list[Ticket] = []
        while len(taken) < limit and self._due and self._due[0][0] <= now_s:
            due_s, _, ticket = heapq.heappop(self._due)
            if self._is_planned(due_s, ticket):
                ticket.due_s, ticket.is_busy = None, True
                self._busy += 1
                taken.append(ticket)
        if self.away is not None and taken:
            self._probe = taken[0]
        return taken

    def next_s(self) -> float | None:
        """When `take` has a topic, unless another call comes before; None if only that can help."""
        while self._due and not self._is_planned(self._due[0][0], self._due[0][2]):
            heapq.heappop(self._due)
        if not self._due or self._busy >= CHECKS_MAX or self._probe is not None:
            return None
        due_s = self._due[0][0]
        return due_s if self.away is None else max(due_s, self._probe_s)

    # -- outcomes

    def settled(self, ticket: Ticket, now_s: float) -> bool:
        """The topic is as wanted. False if the outcome is outdated."""
        self._is_back()
        ticket.backoff.reset()
        return self._end(ticket, now_s)

    def retry(self, ticket: Ticket, now_s: float) -> bool:
        """The cluster replied, and the topic is not as wanted: again with back-off. False if outdated."""
        self._is_back()
        if not self._end(ticket, now_s):
            return False
        ticket.attempts += 1
        self._plan(ticket, now_s + ticket.backoff.next_s())
        return True

    def unreachable(self, ticket: Ticket, decision: Decision, now_s: float) -> bool:
        """The cluster did not reply. True after the first such attempt, and after each one of those that follow; False
        for the others that were under way with the first.
        """
        is_new = self.away is None
        is_counted = is_new or ticket is self._probe
        if is_counted:
            self.away = decision
            self.failures += 1
            self._probe_s = now_s + self._backoff.next_s()
        if self._end(ticket, now_s):
            self._plan(ticket, now_s)
        if is_new:
            for other in self._tickets.values():
                if other.due_s is None and not other.is_busy:
                    self._plan(other, now_s)
        return is_counted

    def abandoned(self, ticket: Ticket, now_s: float) -> None:
        """There is no outcome: it is checked again."""
        if self._end(ticket, now_s):
            self._plan(ticket, now_s)

    def _is_back(self) -> None:
        self.away, self.failures = None, 0
        self._backoff.reset()

    def _end(self, ticket: Ticket, now_s: float = 0.0) -> bool:
        """False if the ticket was discarded or put again while it was busy: then it is checked again."""
        if not ticket.is_busy:
            return False
        ticket.is_busy = False
        self._busy -= 1
        if self._probe is ticket:
            self._probe = None
        if self._tickets.get(ticket.topic) is not ticket:
            return False
        if ticket.is_outdated:
            ticket.is_outdated = False
            self._plan(ticket, now_s)
            return False
        return True
