"""The console process beside a broker: started after it serves, restarted with a growing pause, ended with it.

Owns its life, and reports its address. Knows nothing of what the console shows; the broker's loop never waits for it.
A broker that is killed takes it along: it ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from magnetar.client.connection.retry import Backoff
from magnetar.log.events import CONSOLE_ENDED, emit
from magnetar.server import tasks
from magnetar.server.tasks import Spawn
from magnetar.settings.environment import without_secrets

PAUSE_FIRST_S = 1.0
PAUSE_LAST_S = 60.0
_GOOD_S = 60.0  # a process that ran this long is restarted without a long pause
_END_S = 5.0
_READY = "console "


def command(url: str, port: int, trust_certs: Path | None) -> list[str]:
    """`trust_certs` has the authorities that sign the broker's own certificate."""
    trust = ("--trust-certs", str(trust_certs)) if trust_certs is not None and url.startswith("https:") else ()
    return [
        *(sys.executable, "-m", "magnetar", "console"),
        *("--url", url, "--port", str(port), "--until-eof", *trust),
    ]


class ConsoleProcess:
    """`serves` is called with its address whenever it serves, and with an empty one when it ended."""

    def __init__(self, words: list[str], serves: Callable[[str], None], spawn: Spawn = tasks.spawn) -> None:
        self._words = words
        self._serves = serves
        self._spawn = spawn
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self._task = self._spawn("console process", self._keep)

    async def _keep(self) -> None:
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_LAST_S)
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            ended = await self._live()
            self._serves("")
            if loop.time() - started_s > _GOOD_S:
                backoff.reset()
            pause_s = backoff.next_s()
            emit(CONSOLE_ENDED, reason=f"{ended}; restarting in {pause_s:.0f} s")
            await asyncio.sleep(pause_s)

    async def _live(self) -> str:
        """Runs it; returns how it ended."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._words, stdin=pipe, stdout=pipe, env=without_secrets(os.environ), start_new_session=True
            )
        except OSError as error:
            return f"could not be started: {error}"
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode(errors="replace").strip()
        if line.startswith(_READY):
            self._serves(line.removeprefix(_READY))
        return f"ended with exit code {await self._process.wait()}"

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            process.kill()
            await process.wait()
