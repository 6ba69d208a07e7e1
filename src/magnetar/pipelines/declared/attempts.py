"""The thread of one run: attempt after attempt, until it is done, fails for good or is stopped.

Owns the delays between attempts. What a run is for is in its verb, and which runs there are in `runs`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import InheritableThread

from magnetar.client.connection.retry import Backoff
from magnetar.declared.model import RunState
from magnetar.pipelines.declared.context import DeclaredRun
from magnetar.pipelines.declared.failures import ATTEMPTS_MAX, is_final, is_transient, text_of
from magnetar.pipelines.jobs import Jobs

log = logging.getLogger(__name__)

_PAUSE_FIRST_S = 1.0


class AttemptListener(Protocol):
    """What a run tells of itself, from its thread."""

    def on_failing(self, error: str, delay_s: float) -> None:
        """An attempt failed, and the next one begins after the delay."""
        ...

    def on_running(self) -> None:
        """The next attempt begins."""
        ...

    def on_ended(self, state: RunState | None, error: str) -> None:
        """`state` is None if the run was stopped."""
        ...

    def on_dead(self, error: str) -> None:
        """Spark is gone."""
        ...


class Attempts:
    """Runs `attempt` in a thread from `start` on; `group` is that of its Spark jobs."""

    def __init__(
        self,
        attempt: Callable[[DeclaredRun], None],
        context: DeclaredRun,
        listener: AttemptListener,
        jobs: Jobs,
        group: str,
        *,
        retry_max_s: float,
    ) -> None:
        self._attempt = attempt
        self.context = context
        self._listener = listener
        self._jobs = jobs
        self._group = group
        self._backoff = Backoff(min(_PAUSE_FIRST_S, retry_max_s), retry_max_s)
        self._failed = 0  # attempts in a row without progress
        self._thread = InheritableThread(target=self._run, name=group, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.context.stop()

    def cancel_jobs(self) -> None:
        self._jobs.cancel(self._group)

    def join(self, seconds: float) -> bool:
        """Whether the thread ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            state, error = self._ended()
        except Exception as failure:  # a bug of ours: the run must not seem to go on
            log.exception("unexpected error in %s, please report it", self._group)
            state, error = RunState.FAILED, text_of(failure)
        self._listener.on_ended(None if self.context.is_stopping else state, error)

    def _ended(self) -> tuple[RunState | None, str]:
        self._jobs.begin(self._group, self._group)
        is_over = False
        while not is_over:
            done = self.context.progress.done
            try:
                self._attempt(self.context)
                return RunState.DONE, ""
            except Exception as error:  # of any kind: the operator gets its text
                failure, text = error, text_of(error)
            log.debug("%s failed: %s", self._group, text, exc_info=failure)
            if isinstance(failure, Py4JNetworkError) or self._jobs.is_dead:
                self._listener.on_dead(text)
                return None, text
            if not self._goes_on(failure, self.context.progress.done > done):
                return RunState.FAILED, text
            is_over = self._is_stopped_in_back_off(text)
        return None, ""

    def _goes_on(self, error: Exception, has_progress: bool) -> bool:
        """Whether there is another attempt."""
        if has_progress:
            self._failed = 0
            self._backoff.reset()
        if is_transient(error):
            return True
        self._failed += 1
        return not is_final(error) and self._failed < ATTEMPTS_MAX

    def _is_stopped_in_back_off(self, text: str) -> bool:
        delay_s = self._backoff.next_s()
        self._listener.on_failing(text, delay_s)
        if self.context.wait(delay_s):
            return True
        self.context.start_over()
        self._listener.on_running()
        return False
