"""Coming back after a connection was lost: tries again with back-off, for a limited time.

Owns which errors are worth another try. What has to be opened again it is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.client.connection.backoff import Backoff
from magnetar.client.errors import ClientError, ConnectionLost, ConsumerBusy, ProducerBusy, ServerFailure

# The broker may not have noticed yet that the old connection is gone, or a topic is on its way to another broker.
_PASSING = (ProducerBusy, ConsumerBusy, ServerFailure)
# A connection that lived this long was a good one: the next try after it comes soon again.
_GOOD_S = 10.0


class Recovery:
    """`reopen` is called until it works; `on_failure` when it cannot, or has not within `give_up_s`."""

    def __init__(
        self,
        what: str,
        reopen: Callable[[], Awaitable[None]],
        on_failure: Callable[[ClientError], None],
        *,
        give_up_s: float,
    ) -> None:
        self._what = what
        self._reopen = reopen
        self._on_failure = on_failure
        self._give_up_s = give_up_s
        self._backoff = Backoff()
        self._opened_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self, error: ClientError) -> None:
        """Nothing happens if it is under way already."""
        if self._is_stopped or self._task is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._opened_at_s > _GOOD_S:
            self._backoff.reset()
        self._task = loop.create_task(self._run(error))

    def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self, error: ClientError) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._give_up_s
        try:
            while True:
                delay_s = self._backoff.next_s()
                if loop.time() + delay_s > deadline_s:
                    text = f"{self._what} was given up after {self._give_up_s:g} s without a broker: {error.text}"
                    error = ConnectionLost(text, code=error.code)
                    break
                await asyncio.sleep(delay_s)
                try:
                    await self._reopen()
                except ClientError as failure:
                    error = failure
                    if not is_passing(failure):
                        break
                except Exception as fault:  # whoever waits must not wait for ever because of our own mistake
                    error = ClientError(f"{self._what} failed unexpectedly: {fault!r}")
                    break
                else:
                    self._opened_at_s = loop.time()
                    return
        finally:
            self._task = None
        self._on_failure(error)


def is_passing(error: ClientError) -> bool:
    """Whether the same may work a little later."""
    return error.retriable or isinstance(error, _PASSING)
