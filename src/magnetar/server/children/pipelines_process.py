"""The pipelines process: started by the broker with the first route, replicated namespace or declared pipeline, and
restarted on failure.

Owns its start, restart and end, and hands it the credentials that it works with. A broker that is killed, or stopped by
a supervisor, leaves it for the next broker of the data folder, which takes it over if it was started with the same
words (see `lifeline`). Knows nothing of what the process does, and the broker's loop never waits for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec

from magnetar.broker.pipelines.declared import DeclaredPipelines
from magnetar.broker.replication.declaration import DeclaredRoutes
from magnetar.client.connection.retry import Backoff
from magnetar.log.events import PIPELINES_ADOPTED, PIPELINES_ENDED, PIPELINES_STARTED, emit
from magnetar.replication.handover import Handover
from magnetar.replication.model import Process
from magnetar.server import lifeline, tasks
from magnetar.server.tasks import Spawn
from magnetar.settings.environment import without_secrets
from magnetar.settings.settings import Settings
from magnetar.version import __version__

PAUSE_FIRST_S = 1.0
PAUSE_LAST_S = 30.0
_GOOD_S = 60.0  # a process that ran this long is restarted without a long pause
_END_S = 6.0

NEEDS_SPARK = "pipelines need Spark, which is not installed: pip install 'magnetar[spark]' and restart the broker"


def command(url: str, service_url: str, settings: Settings, spark_log: Path, trust_certs: Path | None) -> list[str]:
    """`trust_certs` has the authorities that sign the broker's own certificate."""
    master, retry_max_s = settings.pipelinesMaster, settings.replicationRetryMaxSeconds
    trust = str(trust_certs or settings.brokerClientTrustCertsFilePath) if url.startswith("https:") else ""
    return [
        *(sys.executable, "-m", "magnetar.pipelines", "--spark-log", str(spark_log)),
        *("--linger", str(settings.pipelinesLingerSeconds)),
        *("--log-level", settings.logLevel, "--log-format", settings.logFormat),
        *("--url", url, "--service-url", service_url, "--master", master, "--retry-max", str(retry_max_s)),
        *(("--trust-certs", trust) if trust else ()),
    ]


class PipelinesProcess:
    """`run` until `close`."""

    def __init__(
        self,
        replication: DeclaredRoutes,
        words: list[str],
        folder: Path,
        *,
        pipelines: DeclaredPipelines,
        token: str,
        is_enabled: bool = True,
        spark_log: Path | str = "",
        spawn: Spawn = tasks.spawn,
    ) -> None:
        self._replication = replication
        self._pipelines = pipelines
        self._declared = (replication, pipelines)
        self._words = words
        self._token = token
        self._is_enabled = is_enabled
        self._spark_log = spark_log
        self._spawn = spawn
        self._changed = asyncio.Event()
        self._lifeline = lifeline.path_of(folder, words, __version__)
        self._held: lifeline.Held | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self._held = lifeline.find(self._lifeline)
        if self._is_enabled:
            self._expect()
            self._task = self._spawn("pipelines process", self._keep)
        else:
            self.end()
            self._note_absence("pipelinesEnabled is false")

    async def _keep(self) -> None:
        for one in self._declared:
            one.watch(self._changed.set)
        try:
            await self._keep_one()
        finally:
            for one in self._declared:
                one.unwatch(self._changed.set)

    def _expect(self) -> None:
        for one in self._declared:
            one.expect_process()

    def _note_absence(self, reason: str, process: Process = Process.ABSENT) -> None:
        for one in self._declared:
            one.no_process(reason, process)

    async def _keep_one(self) -> None:
        await self._wait_for_work()
        if find_spec("pyspark") is None:
            emit(PIPELINES_ENDED, reason=f"cannot be started: {NEEDS_SPARK}")
            self._note_absence(NEEDS_SPARK, Process.NEEDS_SPARK)
            return
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_LAST_S)
        loop = asyncio.get_running_loop()
        while True:
            self._expect()
            started_s = loop.time()
            ended = await self._live()
            if loop.time() - started_s > _GOOD_S:
                backoff.reset()
            pause_s = backoff.next_s()
            what = f"{ended}; restarting in {pause_s:.0f} s"
            emit(PIPELINES_ENDED, reason=what)
            self._note_absence(f"it {what}", Process.STARTING)
            await asyncio.sleep(pause_s)

    async def _wait_for_work(self) -> None:
        while not (self._replication.is_expecting_routes() or self._pipelines.is_expecting_runs()):
            self._changed.clear()
            await self._changed.wait()

    async def _live(self) -> str:
        """Runs the process, or keeps the one of an earlier broker; returns how it ended."""
        if self._held is None:
            try:
                self._held = lifeline.start(self._lifeline, self._words, without_secrets(os.environ))
            except OSError as error:
                return f"could not be started: {error}"
            emit(PIPELINES_STARTED, spark_log=self._spark_log)
        else:
            emit(PIPELINES_ADOPTED)
        handing = asyncio.ensure_future(self._hand_over(self._held))
        try:
            ended = await self._held.wait()
        finally:
            handing.cancel()
        self._held.release()
        self._held = None
        return ended

    async def _hand_over(self, held: lifeline.Held) -> None:
        """At once, and after every change of a remote cluster."""
        handed = ""
        while True:
            self._changed.clear()
            version, clusters = self._replication.clusters()
            if version != handed:
                credentials = msgspec.Raw(msgspec.json.encode(clusters))
                held.send(msgspec.json.encode(Handover(self._token, version, credentials)))
                handed = version
            await self._changed.wait()

    def end(self) -> None:
        """Terminates the process without waiting for it."""
        if self._task is not None:
            self._task.cancel()
        if self._held is not None:
            self._held.terminate()

    def leave(self) -> None:
        """For the next broker: it ends by itself if none comes."""
        if self._task is not None:
            self._task.cancel()
        if self._held is not None:
            self._held.release()
            self._held = None

    async def close(self) -> None:
        """After `end`."""
        if self._held is None:
            return
        try:
            await asyncio.wait_for(self._held.wait(), _END_S)
        except TimeoutError:
            self._held.kill()
        self._held.release()
        self._held = None
