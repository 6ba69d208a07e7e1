"""The pipelines process: a child of the broker, started with the first replicated topic and restarted when it fails.

Owns its start, restart and end: the child reads stdin until it closes, so it ends even with a broker that is killed.
Knows nothing of what the process does, and the broker's loop never waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from magnetar.broker.replication.declaration import DeclaredRoutes
from magnetar.client.connection.retry import Backoff
from magnetar.log.events import PIPELINES_ENDED, PIPELINES_STARTED, emit
from magnetar.replication.model import Process
from magnetar.settings.settings import Settings

PAUSE_FIRST_S = 1.0
PAUSE_LAST_S = 30.0
_GOOD_S = 60.0  # a process that ran this long is restarted without a long pause
_END_S = 6.0

NEEDS_SPARK = "replication needs Spark, which is not installed: pip install 'magnetar[spark]' and restart the broker"


class Child(Protocol):
    """The part of `asyncio.subprocess.Process` that is used here."""

    @property
    def stdin(self) -> asyncio.StreamWriter | None: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def command(url: str, service_url: str, settings: Settings, spark_log: Path) -> list[str]:
    master, retry_max_s = settings.pipelinesMaster, settings.replicationRetryMaxSeconds
    return [
        *(sys.executable, "-m", "magnetar.pipelines", "--until-stdin-ends", "--spark-log", str(spark_log)),
        *("--log-level", settings.logLevel, "--log-format", settings.logFormat),
        *("--url", url, "--service-url", service_url, "--master", master, "--retry-max", str(retry_max_s)),
    ]


async def start(words: list[str], environment: Mapping[str, str] | None = None) -> Child:
    return await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, env=environment)


class PipelinesProcess:
    """`run` until `close`."""

    def __init__(
        self, replication: DeclaredRoutes, words: list[str], *, is_enabled: bool = True, spark_log: Path | str = ""
    ) -> None:
        self._replication = replication
        self._words = words
        self._is_enabled = is_enabled
        self._spark_log = spark_log
        self._changed = asyncio.Event()
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        if self._is_enabled:
            self._replication.expect_process()
            self._task = asyncio.get_running_loop().create_task(self._keep())
        else:
            self._replication.no_process("pipelinesEnabled is false")

    async def _keep(self) -> None:
        self._replication.watch(self._changed.set)
        try:
            await self._wait_for_topics()
        finally:
            self._replication.unwatch(self._changed.set)
        if find_spec("pyspark") is None:
            emit(PIPELINES_ENDED, reason=f"cannot be started: {NEEDS_SPARK}")
            self._replication.no_process(NEEDS_SPARK, Process.NEEDS_SPARK)
            return
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_LAST_S)
        loop = asyncio.get_running_loop()
        while True:
            self._replication.expect_process()
            started_s = loop.time()
            ended = await self._live()
            if loop.time() - started_s > _GOOD_S:
                backoff.reset()
            pause_s = backoff.next_s()
            what = f"{ended}; restarting in {pause_s:.0f} s"
            emit(PIPELINES_ENDED, reason=what)
            self._replication.no_process(f"it {what}", Process.STARTING)
            await asyncio.sleep(pause_s)

    async def _wait_for_topics(self) -> None:
        while not self._replication.declaration().topics:
            self._changed.clear()
            await self._changed.wait()

    async def _live(self) -> str:
        """Runs the child; returns how it ended."""
        try:
            self._child = await start(self._words)
        except OSError as error:
            return f"could not be started: {error}"
        emit(PIPELINES_STARTED, spark_log=self._spark_log)
        return f"ended with code {await self._child.wait()}"

    def end(self) -> None:
        """Terminates the child without waiting for it."""
        if self._task is not None:
            self._task.cancel()
        if self._child is not None and self._child.returncode is None:
            if self._child.stdin is not None:
                self._child.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                self._child.terminate()

    async def close(self) -> None:
        self.end()
        if self._child is None:
            return
        try:
            await asyncio.wait_for(self._child.wait(), _END_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()
