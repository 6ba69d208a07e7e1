"""Background tasks: started by `spawn`, which reports a task that fails and starts it again after a pause.

Owns the pauses, and with `Aside` the thread for work that would hold up the loop. Knows nothing of what the tasks do. A
task that returns has ended as it should.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from threading import Condition, Thread
from typing import Protocol

from magnetar.broker.host import FaultKind
from magnetar.log.events import FAULT, emit_traceback

PAUSE_FIRST_S = 1.0
PAUSE_LAST_S = 60.0
_GOOD_S = 60.0  # a task that ran this long is started again after the first pause

Run = Callable[[], Awaitable[None]]
Report = Callable[[FaultKind, Exception, str], None]
_Work = tuple[Callable[[], object], Callable[[], None]]


class Spawn(Protocol):
    """Starts a task: its name for the log, and the function that makes its coroutine, again after each failure."""

    def __call__(self, name: str, run: Run, /) -> asyncio.Task[None]: ...


def _log(kind: FaultKind, error: Exception, where: str) -> None:
    emit_traceback(FAULT, error, kind=kind, where=where)


def spawn(name: str, run: Run, report: Report = _log) -> asyncio.Task[None]:
    """A task that ends when `run` returns or it is cancelled, and by nothing else. Keep it: the loop does not."""
    return asyncio.get_running_loop().create_task(_keep(name, run, report), name=name)


async def _keep(name: str, run: Run, report: Report) -> None:
    loop = asyncio.get_running_loop()
    pause_s = PAUSE_FIRST_S
    while True:
        started_s = loop.time()
        try:
            await run()
            return
        except Exception as error:
            if loop.time() - started_s > _GOOD_S:
                pause_s = PAUSE_FIRST_S
            report("task", error, f"{name}, started again in {pause_s:.0f} s")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_LAST_S)


class Aside:
    """One thread, started by the first work: Python computes in one at a time, so more would only take from the loop.

    Work of one source is done in its order, sources have their turns: many works of one hold up no other by more than
    one. It is a daemon: the end of the process does not wait for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "aside") -> None:
        self._loop = loop
        self._name = name
        self._waiting: dict[str, deque[_Work]] = {}  # by source, in the order of their turns
        self._is_closed = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def run(self, work: Callable[[], object], then: Callable[[], None], source: str = "") -> None:
        """Calls `then` in the loop, whatever `work` returned or raised."""
        if self._thread is None:
            self._thread = Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        with self._changed:
            self._waiting.setdefault(source, deque()).append((work, then))
            self._changed.notify()

    def close(self) -> None:
        """After the work that was given so far, of which nothing is heard any more once the loop is closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _serve(self) -> None:
        while (item := self._next()) is not None:
            work, then = item
            with contextlib.suppress(Exception):
                work()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(then)

    def _next(self) -> _Work | None:
        """The first work of the source whose turn it is, and the source to the end; None after the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return None
            source = next(iter(self._waiting))
            works = self._waiting.pop(source)
            found = works.popleft()
            if works:
                self._waiting[source] = works
            return found
