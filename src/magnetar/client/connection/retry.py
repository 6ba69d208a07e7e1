"""Retries: which errors are worth another attempt, the delay before it, and the time after which it is given up.

The only retry of the project: for asyncio (`with_retry`), for blocking callers (`with_retry_blocking`), and for
producers and consumers that lost their connection (`Reconnector`). Knows nothing of brokers and topics.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    ConsumerBusy,
    Interrupted,
    ProducerBusy,
    ServerFailure,
    ServiceNotReady,
    Timeout,
    TooManyRequests,
)

_T = TypeVar("_T")

# A connection that lived this long was a good one: the first attempt after it is made soon again.
_GOOD_S = 10.0


def is_retriable(error: ClientError) -> bool:
    """Whether the same request may succeed a little later.

    True for the classes that are `retriable`: the broker cannot be reached, is not ready, is overloaded or too slow.
    Also true for what a lost connection leaves behind: the broker still holds the producer's name or the subscription
    (`ProducerBusy`, `ConsumerBusy`), or the topic is moving to another broker (`ServerFailure`).
    """
    return error.retriable or isinstance(error, ProducerBusy | ConsumerBusy | ServerFailure)


def is_momentary(error: ClientError) -> bool:
    """The rule for the first call of an application, which wants to know at once that there is no broker, or that a
    name is in use: only a broker that was reached, and is not ready or went away, is tried again."""
    return isinstance(error, ServiceNotReady | TooManyRequests | Interrupted)


class Backoff:
    """Doubles from `first_s` to `last_s`, minus up to a tenth at random, so that clients do not return all at once."""

    __slots__ = ("_first_s", "_last_s", "_next_s")

    def __init__(self, first_s: float = 0.1, last_s: float = 10.0) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    def next_s(self) -> float:
        delay_s = self._next_s
        self._next_s = min(delay_s * 2, self._last_s)
        return delay_s * (1 - random.random() / 10)

    def reset(self) -> None:
        self._next_s = self._first_s


class Retry:
    """A series of attempts that begins now and ends after `limit_s`."""

    def __init__(
        self,
        limit_s: float,
        backoff: Backoff | None = None,
        rule: Callable[[ClientError], bool] = is_retriable,
    ) -> None:
        self._deadline_s = time.monotonic() + limit_s
        self._backoff = backoff or Backoff()
        self._rule = rule

    def delay_s(self, error: ClientError) -> float | None:
        """The delay before the next attempt; None when the time is over. Raises an error that is not retriable."""
        if not self._rule(error):
            raise error
        delay_s = self._backoff.next_s()
        return None if time.monotonic() + delay_s > self._deadline_s else delay_s


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Raises `Timeout` with `what` in its text when the block takes longer; None is no limit."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Timeout(f"{what} took longer than {seconds:g} s") from None


async def with_retry(
    what: str,
    attempt: Callable[[], Awaitable[_T]],
    limit_s: float,
    *,
    backoff: Backoff | None = None,
    rule: Callable[[ClientError], bool] = is_retriable,
) -> _T:
    """Repeats `attempt` after retriable errors. After `limit_s` it is cancelled, and the last error raised."""
    retry = Retry(limit_s, backoff, rule)
    last: ClientError | None = None
    try:
        async with within(limit_s, what):
            while True:
                try:
                    return await attempt()
                except ClientError as error:
                    last, delay_s = error, retry.delay_s(error)
                if delay_s is None:
                    break
                await asyncio.sleep(delay_s)
    except Timeout as late:
        if last is None:
            raise late from None
    raise type(last)(
        f"{what} was given up after {limit_s:g} s: {last.text}", code=last.code, status=last.status
    ) from last


def with_retry_blocking(attempt: Callable[[], _T], limit_s: float) -> _T:
    """Repeats `attempt` after retriable errors; after `limit_s` the last of them is raised."""
    retry = Retry(limit_s, Backoff(last_s=2.0))
    while True:
        try:
            return attempt()
        except ClientError as error:
            delay_s = retry.delay_s(error)
            if delay_s is None:
                raise
        time.sleep(delay_s)


class Reconnector:
    """Opens a producer or consumer again after its connection was lost.

    Calls `reopen` until it succeeds; `on_failure` when it cannot succeed, or did not within `limit_s`.
    """

    def __init__(
        self,
        what: str,
        reopen: Callable[[], Awaitable[None]],
        on_failure: Callable[[ClientError], None],
        *,
        limit_s: float,
    ) -> None:
        self._what = what
        self._reopen = reopen
        self._on_failure = on_failure
        self._limit_s = limit_s
        self._backoff = Backoff()
        self._opened_at_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self, error: ClientError) -> None:
        """Does nothing if it is running already."""
        if self._is_stopped or self._task is not None:
            return
        if time.monotonic() - self._opened_at_s > _GOOD_S:
            self._backoff.reset()
        self._task = asyncio.get_running_loop().create_task(self._run(error))

    def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self, error: ClientError) -> None:
        retry = Retry(self._limit_s, self._backoff)
        try:
            # The first error is the lost connection itself, whatever its class.
            delay_s: float | None = self._backoff.next_s()
            while delay_s is not None:
                await asyncio.sleep(delay_s)
                try:
                    await self._reopen()
                except ClientError as failure:
                    error = failure
                    if not is_retriable(failure):
                        break
                    delay_s = retry.delay_s(failure)
                except Exception as fault:  # a bug of ours: callers that wait must not wait any longer
                    error = ClientError(f"{self._what} failed unexpectedly: {fault!r}")
                    break
                else:
                    self._opened_at_s = time.monotonic()
                    return
            else:
                text = f"{self._what} was given up after {self._limit_s:g} s without a broker: {error.text}"
                error = ConnectionLost(text, code=error.code)
        finally:
            self._task = None
        self._on_failure(error)
