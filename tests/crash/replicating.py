"""A replicating cluster: a broker and its pipelines process, both of which can be killed, whole or in part.

Owns the processes and the admin calls. The broker starts the pipelines process itself, or the process is kept alive
next to it, as by an init system.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.spark.killable_driver import Process, environment_without_spark, processes_of, wait_until

from .killable import KillableBroker

NAMESPACE = "public/geo"
SETTINGS = ("brokerDeduplicationEnabled=true", "replicationRetryMaxSeconds=2", "pipelinesMaster=local[1,3]")

_PAUSE_S = 0.5
_BOTH_S = (0.5, 3.0)
_AWAY_MAX_S = 1.5


def environment_of(scratch: Path) -> dict[str, str]:
    """Environment of a JVM that starts quickly and leaves its temporary files in a folder that is cleared."""
    quick = f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={scratch}"
    places = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "JDK_JAVA_OPTIONS": quick}
    return {**environment_without_spark(), **places}


def partition(topic: str, index: int) -> str:
    return f"{topic}-partition-{index}"


def full(topic: str) -> str:
    return f"persistent://{NAMESPACE}/{topic}"


def signal_all(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def kill_sessions(sessions: list[int]) -> None:
    """Kills every process of these sessions."""
    for session in sessions:
        while left := list(processes_of(session)):
            signal_all(left, signal.SIGKILL)


class KeptAlive:
    """`magnetar pipelines`, restarted whenever it exits, until `close`."""

    def __init__(self, url: str, log: Path, environment: Mapping[str, str]) -> None:
        self._words = [sys.executable, "-m", "magnetar", "pipelines", "--url", url, "--master", "local[1,3]"]
        self._words += ["--retry-max", "2"]
        self._log = log
        self._environment = environment
        self._is_closed = threading.Event()
        self.sessions: list[int] = []
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("a") as log:
            process = subprocess.Popen(
                self._words, start_new_session=True, env=self._environment, stdout=log, stderr=log
            )
        self.sessions.append(process.pid)
        return process

    @property
    def starts(self) -> int:
        """Number of starts of the pipeline, from its log."""
        return self._log.read_text().count("replicating from")

    def _keep(self) -> None:
        while True:
            self._process.wait()
            if self._is_closed.wait(_PAUSE_S):
                return
            self._process = self._start()

    def close(self) -> None:
        self._is_closed.set()
        while self._thread.is_alive():  # one may have just been started
            kill_sessions(self.sessions)
            self._thread.join(_PAUSE_S)


class Site:
    """A cluster. `rest` is its REST interface."""

    def __init__(self, name: str, folder: Path, scratch: Path, *, starts_pipelines: bool) -> None:
        self.name = name
        self._starts_pipelines = starts_pipelines
        self._environment = environment_of(scratch)
        self._logs = {part: folder / f"{name}-{part}.log" for part in ("broker", "pipelines", "rival")}
        settings = (f"clusterName={name}", f"pipelinesEnabled={str(starts_pipelines).lower()}", *SETTINGS)
        self.broker = KillableBroker(folder / name, settings, log=self._logs["broker"], environment=self._environment)
        self._sessions: list[int] = []
        self._pipelines: KeptAlive | None = None
        self._start_broker()
        self.rest = httpx.Client(base_url=f"{self.broker.http_url}/admin/v2/", timeout=30, trust_env=False)

    def _start_broker(self) -> None:
        self.broker.start()
        self._sessions.append(self.broker.process_id)

    @property
    def log(self) -> str:
        return "".join(log.read_text() for log in self._logs.values() if log.exists())

    def close(self) -> None:
        self.rest.close()
        if self._pipelines is not None:
            self._pipelines.close()
        self.broker.kill()
        kill_sessions(self._sessions)

    # -- admin calls

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        headers = {"Content-Type": "application/json"}
        answer = self.rest.request(method, path, json=body, params=query, headers=headers)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def replicate_to(self, other: Site) -> None:
        """Replicates the whole namespace, with unlimited retention."""
        names = [self.name, other.name]
        urls = {"serviceUrl": other.broker.http_url, "brokerServiceUrl": other.broker.service_url}
        self.ask("PUT", f"clusters/{other.name}", urls)
        self.ask("POST", "tenants/public", {"allowedClusters": names, "adminRoles": []})
        self.ask("PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": names})
        self.ask("POST", f"namespaces/{NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})

    def start_pipelines(self) -> None:
        """Starts the pipelines process if the broker does not."""
        if not self._starts_pipelines:
            self._pipelines = KeptAlive(self.broker.http_url, self._logs["pipelines"], self._environment)

    def create(self, topic: str, partitions: int) -> None:
        path = f"persistent/{NAMESPACE}/{topic}"
        self.ask("PUT", f"{path}/partitions", partitions) if partitions else self.ask("PUT", path)

    def grow(self, topic: str, partitions: int) -> None:
        self.ask("POST", f"persistent/{NAMESPACE}/{topic}/partitions", partitions)

    def partitions(self, topic: str) -> int:
        return int(self.ask("GET", f"persistent/{NAMESPACE}/{topic}/partitions")["partitions"])

    def status(self) -> dict[str, dict[str, Any]]:
        """Replication status by topic or partition."""
        return {row["topic"]: row for row in self.ask("GET", "replication/status")}

    def copied(self, topic: str, remote: Site) -> str:
        """The copied position."""
        stats = self.ask("GET", f"persistent/{NAMESPACE}/{topic}/internalStats")
        return str(stats["cursors"][f"pulsar.repl.{remote.name}"]["markDeletePosition"])

    # -- faults

    def kill_broker(self, moments: random.Random) -> None:
        """Kills and restarts the broker, which takes its pipelines process over."""
        self.broker.kill()
        time.sleep(moments.uniform(0, _AWAY_MAX_S))
        self._start_broker()

    def kill_driver(self, _: random.Random) -> None:
        """Kills the pipelines process, its JVM and all its workers at once."""
        wait_until(f"the driver of {self.name} runs", lambda: bool(self._driver()))
        signal_all(self._driver(), signal.SIGKILL)  # once: the next one is the restarted one

    def kill_java(self, moments: random.Random) -> None:
        self._kill_one("Spark", lambda: [each for each in self._driver() if "SparkSubmit" in each.command], moments)

    def kill_worker(self, moments: random.Random) -> None:
        """Kills a worker while it copies."""
        self._kill_one("a worker", self._busy_workers, moments)

    def stall_driver(self, moments: random.Random, take_over: Callable[[], None]) -> None:
        """Suspends the driver until another one has taken over, then resumes it."""
        wait_until(f"the driver of {self.name} copies", lambda: bool(self._busy_workers()))
        stalled = self._driver()
        signal_all(stalled, signal.SIGSTOP)
        rival = KeptAlive(self.broker.http_url, self._logs["rival"], self._environment)
        starts = rival.starts
        try:
            wait_until(f"another driver of {self.name} runs", lambda: rival.starts > starts)
            take_over()
            signal_all(stalled, signal.SIGCONT)
            time.sleep(moments.uniform(*_BOTH_S))
        finally:
            rival.close()

    @property
    def has_workers(self) -> bool:
        return bool(self._busy_workers())

    def _kill_one(self, what: str, find: Callable[[], list[Process]], moments: random.Random) -> None:
        def is_killed() -> bool:
            if found := find():
                with suppress(ProcessLookupError):
                    os.kill(moments.choice(found).pid, signal.SIGKILL)
                    return True
            return False

        wait_until(f"{what} of {self.name} runs", is_killed)

    def _driver(self) -> list[Process]:
        """In the session of the broker that started it, which may be over."""
        sessions = self._sessions if self._pipelines is None else self._pipelines.sessions[-1:]
        found = [each for session in sessions for each in processes_of(session)]
        return sorted(each for each in found if each.pid != self.broker.process_id)

    def _busy_workers(self) -> list[Process]:
        return [each for each in self._driver() if each.is_busy and each.is_worker]
