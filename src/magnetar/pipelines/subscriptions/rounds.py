"""Rounds of replicated subscriptions: about once a second, a job for the topics that have some.

Owns the pace of rounds, and the memory that one round leaves for the next. The positions follow in `following`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import partial

from pyspark import InheritableThread

from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.pipelines.jobs import Jobs, failure_text
from magnetar.pipelines.subscriptions import task
from magnetar.pipelines.subscriptions.following import FollowResult, FollowTask, Memory
from magnetar.replication.cluster import ClusterEndpoint, endpoints_of
from magnetar.replication.model import Declaration, DeclaredRoute
from magnetar.replication.topic_template import remote_topic

log = logging.getLogger(__name__)

ROUND_S = 1.0
QUIET_ROUND_S = 5.0
_QUIET_AFTER = 5  # rounds in which nothing moved

_Key = tuple[str, str]


class SubscriptionRounds:
    def __init__(self, name: str) -> None:
        self._jobs: Jobs | None = None
        self._name = name
        self._tasks: list[FollowTask] = []
        self._memories: dict[_Key, dict[str, Memory]] = {}
        self._logged: dict[_Key, str] = {}
        self._failure = ""  # of the last round
        self._quiet = 0
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread: InheritableThread | None = None

    def declare(self, declaration: Declaration, source: ClusterEndpoint) -> None:
        endpoints, _ = endpoints_of(declaration.clusters)
        tasks = [
            each
            for declared in declaration.topics
            if declared.subscriptions and not declared.policy.paused and declared.remote in endpoints
            for each in _tasks_of(declared, source, endpoints[declared.remote])
        ]
        with self._changed:
            if tasks != self._tasks:
                self._tasks = tasks
                self._quiet = 0
                keys = {(each.topic, each.remote.name) for each in tasks}
                self._memories = {key: memory for key, memory in self._memories.items() if key in keys}
                self._changed.notify()

    def start(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._thread = InheritableThread(target=self._rounds, args=(jobs,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(ROUND_S)
            if self._jobs is not None and self._thread.is_alive():
                self._jobs.cancel(self._name)
                self._thread.join()

    def _rounds(self, jobs: Jobs) -> None:
        jobs.begin(self._name, "subscriptions")
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._tasks) or self._is_stopped)
                if self._is_stopped:
                    return
                tasks = [
                    FollowTask(
                        each.source,
                        each.remote,
                        each.topic,
                        each.target,
                        each.subscriptions,
                        self._memories.get((each.topic, each.remote.name), {}),
                    )
                    for each in self._tasks
                ]
            is_behind = self._round(jobs, tasks)
            with self._changed:
                pause_s = QUIET_ROUND_S if self._quiet > _QUIET_AFTER else ROUND_S
                if not is_behind and not self._is_stopped:
                    self._changed.wait(pause_s)

    def _round(self, jobs: Jobs, tasks: list[FollowTask]) -> bool:
        """Whether the next round is due at once."""
        try:
            results = jobs.run(partial(task.follow, tasks, ROUND_S))
        except Exception as failure:  # of any kind: the next round tries again
            self._log_failure(failure_text(failure))
            return False
        self._log_failure("")
        with self._changed:
            self._quiet = self._quiet + 1 if all(result.is_quiet for result in results) else 0
            for result in results:
                self._memories[result.topic, result.remote] = result.memories
                self._log_changes(result)
        return any(result.is_behind for result in results)

    def _log_failure(self, failure: str) -> None:
        if failure and failure != self._failure and not self._is_stopped:
            log.warning("a round of replicated subscriptions failed and is repeated: %s", failure)
        self._failure = failure

    def _log_changes(self, result: FollowResult) -> None:
        key = (result.topic, result.remote)
        text = result.error or "; ".join(f"{name}: {note}" for name, note in sorted(result.notes.items()))
        if text != self._logged.get(key, ""):
            log.info("%s -> %s: subscriptions %s", *key, f"do not follow: {text}" if text else "follow")
        self._logged[key] = text


def _tasks_of(declared: DeclaredRoute, source: ClusterEndpoint, remote: ClusterEndpoint) -> Iterator[FollowTask]:
    name = TopicName.parse(declared.topic)
    for topic in [name.with_partition(index) for index in range(declared.partitions)] or [name]:
        try:
            target = remote_topic(topic.full, declared.policy.rename)
        except InvalidName:  # the scheduler reports it
            return
        yield FollowTask(source, remote, topic.full, target, declared.subscriptions)
