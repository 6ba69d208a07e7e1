"""Creation of topics in one remote cluster, as `partitions` decides: a few at once, with a bounded number of attempts.

The rest is left to the pipelines process, which checks every topic that it copies again. Knows nothing of where its
errands come from.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from itertools import islice

from magnetar.client import AsyncClient
from magnetar.client.errors import ClientError, Conflict, InvalidArgument, NamespaceNotFound, NotSupported
from magnetar.names import TopicName
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of
from magnetar.replication.model import ClusterAddress, Mismatch, State
from magnetar.replication.partitions import Decision, decide_remote
from magnetar.server.remote_topics import Errand, OnDecision

log = logging.getLogger(__name__)

_AT_ONCE = 16  # topics
_ATTEMPTS = 6
_ATTEMPT_TIMEOUT_S = 10.0
_PAUSE_FIRST_S = 0.5
_LINGER_S = 5.0  # for more errands, before the connection is closed


class TopicMaking:
    """One remote cluster, and a task that runs while there are errands."""

    def __init__(
        self,
        name: str,
        address: ClusterAddress,
        on_decision: OnDecision,
        *,
        creates: bool,
        mismatch: Mismatch,
        pause_last_s: float,
    ) -> None:
        self.address = address
        self._name = name
        self._on_decision = on_decision
        self._creates = creates
        self._mismatch = mismatch
        self._pause_last_s = pause_last_s
        self._waiting: dict[str, tuple[Errand, int]] = {}  # by topic, with the attempts so far
        self._warned_of: set[str] = set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def see_to(self, errand: Errand) -> None:
        self._waiting[errand.topic] = (errand, 0)
        self._news.set()
        self._run_if_needed()

    def forget(self, topic: str) -> None:
        self._waiting.pop(topic, None)

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _run_if_needed(self) -> None:
        if self._waiting and self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("unexpected error while creating topics in cluster %s", self._name, exc_info=error)
            return
        self._run_if_needed()  # for errands that came meanwhile

    async def _run(self) -> None:
        await asyncio.to_thread(importlib.import_module, "magnetar.client.connection.http_lookup")
        try:
            endpoint = endpoint_of(self._name, self.address)
            client = None if endpoint is None else _client(endpoint)
        except (InvalidArgument, NotSupported) as error:
            self._report_all(Decision(State.REFUSED, f"cluster {self._name} cannot be queried: {error}"))
            self._give_up(str(error))
            return
        if client is None:
            reason = "its record has no usable address"
            self._report_all(Decision(State.UNREACHABLE, f"cluster {self._name} cannot be reached: {reason}"))
            self._give_up(reason)
            return
        async with client:
            while self._waiting or await self._news_within(_LINGER_S):
                await self._all(client)

    async def _all(self, client: AsyncClient) -> None:
        """Until nothing waits."""
        failures = 0
        while self._waiting:
            if tried := self._least_attempts():
                await self._news_within(self._pause_s(tried))  # each was tried: a pause, unless new ones come
            unreachable = await self._round(client)
            failures = 0 if unreachable is None else failures + 1
            if unreachable is not None:
                self._report_all(
                    Decision(State.UNREACHABLE, f"cluster {self._name} cannot be reached: {unreachable.text}")
                )
            if failures == _ATTEMPTS:
                self._give_up("it cannot be reached")
            elif failures:
                await asyncio.sleep(self._pause_s(failures))

    async def _round(self, client: AsyncClient) -> ClientError | None:
        """Attempts the errands that were tried least; an error if the cluster cannot be reached."""
        self._news.clear()
        least = self._least_attempts()
        chosen = (errand for errand, attempts in self._waiting.values() if attempts == least)
        failures = await asyncio.gather(*(self._attempt(client, errand, least) for errand in islice(chosen, _AT_ONCE)))
        return failures[0] if failures and all(failures) else None

    def _least_attempts(self) -> int:
        return min((attempts for _, attempts in self._waiting.values()), default=0)

    async def _attempt(self, client: AsyncClient, errand: Errand, attempts: int) -> ClientError | None:
        """The error if the cluster did not reply; a refusal concerns this topic only."""
        try:
            decision = await self._make(client, errand)
        except ClientError as error:
            if error.retriable:
                return error
            self._tried(errand, attempts, error)
            return None
        if self._is_waiting(errand):
            del self._waiting[errand.topic]
            self._on_decision(errand.topic, self._name, decision)
        self._warned_of.discard(TopicName.parse(errand.target).namespace_full)
        return None

    async def _make(self, client: AsyncClient, errand: Errand) -> Decision:
        """Checks once more after a conflict: another client created the topic just now, perhaps as it should be."""
        for is_last in (False, True):
            there = await client.partition_count(errand.target)
            decision = decide_remote(
                errand.partitions, there, creates=self._creates, mismatch=self._mismatch, grown_from=errand.grown_from
            )
            try:
                if decision.creates is not None:
                    await client.create_topic(errand.target, decision.creates)
                elif decision.grows_to is not None:
                    await client.grow_topic(errand.target, decision.grows_to)
            except Conflict:
                if is_last:
                    raise
            else:
                return decision
        raise AssertionError  # the last conflict was raised

    def _tried(self, errand: Errand, attempts: int, error: ClientError) -> None:
        if not self._is_waiting(errand):
            return  # withdrawn or replaced meanwhile
        self._on_decision(errand.topic, self._name, _refused(error, errand.target, self._name))
        if attempts + 1 < _ATTEMPTS and not isinstance(error, InvalidArgument | NotSupported):
            self._waiting[errand.topic] = (errand, attempts + 1)
            return
        del self._waiting[errand.topic]
        # One warning per namespace: its topics mostly fail for the same reason.
        namespace = TopicName.parse(errand.target).namespace_full
        level = logging.INFO if namespace in self._warned_of else logging.WARNING
        self._warned_of.add(namespace)
        log.log(
            level,
            "cannot create %s in cluster %s, leaving it to the pipelines process: %s",
            errand.target,
            self._name,
            error,
        )

    def _is_waiting(self, errand: Errand) -> bool:
        return self._waiting.get(errand.topic, (None, 0))[0] == errand

    def _give_up(self, reason: str) -> None:
        log.warning(
            "cannot create %d topics in cluster %s, leaving them to the pipelines process: %s",
            len(self._waiting),
            self._name,
            reason,
        )
        self._waiting.clear()

    def _report_all(self, decision: Decision) -> None:
        for topic in self._waiting:
            self._on_decision(topic, self._name, decision)

    def _pause_s(self, failures: int) -> float:
        return float(min(_PAUSE_FIRST_S * 2 ** (failures - 1), self._pause_last_s))

    async def _news_within(self, timeout_s: float) -> bool:
        """Whether another errand came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        return self._news.is_set()


def _refused(error: ClientError, target: str, remote: str) -> Decision:
    if isinstance(error, NamespaceNotFound):
        return Decision(State.REFUSED, f"in cluster {remote} {error.text}")
    return Decision(State.REFUSED, f"cluster {remote} refuses {target}: {error.text}")


def _client(endpoint: ClusterEndpoint) -> AsyncClient:
    return AsyncClient(
        endpoint.service_url,
        admin_url=endpoint.admin_url,
        security=endpoint.security,
        operation_timeout_s=_ATTEMPT_TIMEOUT_S,
        connect_timeout_s=_ATTEMPT_TIMEOUT_S,
    )
