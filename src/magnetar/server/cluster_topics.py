"""The topics of one remote cluster, in the server's loop: created as soon as they are declared, with a few attempts.

The rest is left to the pipelines process, which checks every topic that it copies. Owns the task, the connection and
the limit of attempts; the algorithm is in `client.admin.remote_topics`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import time

from magnetar.client import AsyncClient
from magnetar.client.admin.remote_topics import Ticket, TopicQueue, decision_after, reconcile, run_async
from magnetar.client.errors import ClientError, InvalidArgument, NotSupported
from magnetar.names import TopicName
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of
from magnetar.replication.model import ClusterAddress, Mismatch, State
from magnetar.replication.partitions import Decision, WantedTopic
from magnetar.server import tasks
from magnetar.server.remote_topics import OnDecision
from magnetar.server.tasks import Spawn

log = logging.getLogger(__name__)

_ATTEMPTS = 6
_ATTEMPT_TIMEOUT_S = 10.0
_PAUSE_FIRST_S = 0.5
_LINGER_S = 5.0  # for more topics, before the connection is closed


class ClusterTopics:
    """One remote cluster, and a task that runs while a topic is wanted there."""

    def __init__(
        self,
        name: str,
        address: ClusterAddress,
        on_decision: OnDecision,
        *,
        creates: bool,
        mismatch: Mismatch,
        pause_last_s: float,
        spawn: Spawn = tasks.spawn,
    ) -> None:
        self.address = address
        self._name = name
        self._spawn = spawn
        self._on_decision = on_decision
        self._creates = creates
        self._mismatch = mismatch
        self._queue = TopicQueue(_PAUSE_FIRST_S, pause_last_s)
        self._wanted: dict[str, WantedTopic] = {}
        self._warned_of: set[str] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def put(self, wanted: WantedTopic) -> None:
        self._wanted[wanted.topic] = wanted
        self._queue.put(wanted.topic, time.monotonic())
        self._changed.set()
        self._run_if_needed()

    def discard(self, topic: str) -> None:
        self._wanted.pop(topic, None)
        self._queue.discard(topic)

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _run_if_needed(self) -> None:
        if self._queue and self._task is None and not self._is_closed:
            self._task = self._spawn(f"topics in cluster {self._name}", self._run)
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._run_if_needed()  # for topics that came meanwhile

    async def _run(self) -> None:
        await asyncio.to_thread(importlib.import_module, "magnetar.client.connection.http_lookup")
        try:
            endpoint = endpoint_of(self._name, self.address)
            client = None if endpoint is None else _client(endpoint)
        except (InvalidArgument, NotSupported) as error:
            self._report(
                self._queue.topics, Decision(State.REFUSED, f"cluster {self._name} cannot be queried: {error}")
            )
            self._give_up(str(error))
            return
        if client is None:
            reason = "its record has no usable address"
            unreachable = Decision(State.UNREACHABLE, f"cluster {self._name} cannot be reached: {reason}")
            self._report(self._queue.topics, unreachable)
            self._give_up(reason)
            return
        async with client:
            while self._queue or await self._changed_within(_LINGER_S):
                self._changed.clear()
                await self._check_all(client)

    async def _check_all(self, client: AsyncClient) -> None:
        while self._queue:
            self._changed.clear()
            now_s = time.monotonic()
            if tickets := self._queue.take(now_s):
                await asyncio.gather(*(self._check(client, ticket, self._wanted[ticket.topic]) for ticket in tickets))
                if self._queue.failures == _ATTEMPTS:
                    self._give_up("it cannot be reached")
            else:
                due_s = self._queue.next_s()
                await self._changed_within(_LINGER_S if due_s is None else due_s - now_s)

    async def _check(self, client: AsyncClient, ticket: Ticket, wanted: WantedTopic) -> None:
        try:
            decision = await run_async(reconcile(wanted, creates=self._creates, mismatch=self._mismatch), client)
        except ClientError as error:
            decision = decision_after(error, wanted.target, self._name)
            if decision.state is not State.UNREACHABLE:
                self._refused(ticket, wanted, decision, error)
            elif self._queue.unreachable(ticket, decision, time.monotonic()):
                self._report(self._queue.topics, decision)
            return
        self._warned_of.discard(TopicName.parse(wanted.target).namespace_full)
        if self._queue.settled(ticket, time.monotonic()):
            self.discard(wanted.topic)
            self._report([wanted.topic], decision)

    def _refused(self, ticket: Ticket, wanted: WantedTopic, decision: Decision, error: ClientError) -> None:
        if not self._queue.retry(ticket, time.monotonic()):
            return
        self._report([wanted.topic], decision)
        if ticket.attempts < _ATTEMPTS and not isinstance(error, InvalidArgument | NotSupported):
            return
        self.discard(wanted.topic)
        # One warning per namespace: its topics mostly fail for the same reason.
        namespace = TopicName.parse(wanted.target).namespace_full
        level = logging.INFO if namespace in self._warned_of else logging.WARNING
        self._warned_of.add(namespace)
        log.log(
            level,
            "cannot create %s in cluster %s, leaving it to the pipelines process: %s",
            wanted.target,
            self._name,
            error,
        )

    def _give_up(self, reason: str) -> None:
        log.warning(
            "cannot create %d topics in cluster %s, leaving them to the pipelines process: %s",
            len(self._queue),
            self._name,
            reason,
        )
        self._wanted.clear()
        self._queue.clear()

    def _report(self, topics: list[str], decision: Decision) -> None:
        for topic in topics:
            self._on_decision(topic, self._name, decision)

    async def _changed_within(self, timeout_s: float) -> bool:
        """Whether another topic was put."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self._changed.is_set()


def _client(endpoint: ClusterEndpoint) -> AsyncClient:
    return AsyncClient(
        endpoint.service_url,
        admin_url=endpoint.admin_url,
        security=endpoint.security,
        operation_timeout_s=_ATTEMPT_TIMEOUT_S,
        connect_timeout_s=_ATTEMPT_TIMEOUT_S,
    )
