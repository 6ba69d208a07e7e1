"""Retries: the rule, the delays, and the time after which an attempt is given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from magnetar.client.connection.retry import (
    Backoff,
    is_momentary,
    is_retriable,
    with_retry,
    with_retry_blocking,
)
from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    ConsumerBusy,
    Interrupted,
    NotAuthorized,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    ProtocolBroken,
    ServerFailure,
    ServiceNotReady,
    Timeout,
    TooManyRequests,
)

Run = Callable[[Callable[[], str], float], str]


def blocking(attempt: Callable[[], str], limit_s: float) -> str:
    return with_retry_blocking(attempt, limit_s)


def awaited(attempt: Callable[[], str], limit_s: float) -> str:
    async def attempt_later() -> str:
        await asyncio.sleep(0)
        return attempt()

    return asyncio.run(with_retry("asking", attempt_later, limit_s))


@pytest.fixture(params=[blocking, awaited])
def run(request: pytest.FixtureRequest) -> Run:
    function: Run = request.param
    return function


def test_a_retriable_error_is_followed_by_another_attempt(run: Run) -> None:
    errors = [ConnectionLost("away"), ProducerBusy("still there")]

    def ask() -> str:
        if errors:
            raise errors.pop()
        return "here"

    assert run(ask, 10) == "here"


def test_after_the_limit_the_last_error_is_raised(run: Run) -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        raise ConnectionLost("broker 127.0.0.1:1 cannot be reached")

    began_s = time.monotonic()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        run(ask, 0.5)

    assert len(asked) > 1
    assert time.monotonic() - began_s < 5


def test_a_final_error_is_raised_at_once(run: Run) -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        raise NotFound("no such topic")

    with pytest.raises(NotFound, match=r"^no such topic$"):
        run(ask, 10)
    assert asked == [1]


def test_an_attempt_that_takes_too_long_is_cancelled() -> None:
    with pytest.raises(Timeout, match=r"^asking took longer than 0\.05 s$"):
        asyncio.run(with_retry("asking", lambda: asyncio.sleep(60), 0.05))


def test_a_hanging_attempt_after_an_error_is_given_up_with_that_error() -> None:
    errors = [ServiceNotReady("starting", code=6)]

    async def ask() -> None:
        if errors:
            raise errors.pop()
        await asyncio.sleep(60)

    with pytest.raises(ServiceNotReady, match=r"^asking was given up after 0\.3 s: starting$") as caught:
        asyncio.run(with_retry("asking", ask, 0.3))
    assert caught.value.code == 6


@pytest.mark.parametrize(
    ("kind", "retriable", "momentary"),
    [
        (ConnectionLost, True, False),
        (Interrupted, True, True),
        (ProtocolBroken, False, False),
        (Timeout, True, False),
        (ServiceNotReady, True, True),
        (TooManyRequests, True, True),
        (ProducerBusy, True, False),
        (ConsumerBusy, True, False),
        (ServerFailure, True, False),
        (ProducerFenced, False, False),
        (NotFound, False, False),
        (NotAuthorized, False, False),
    ],
)
def test_the_rules(kind: type[ClientError], retriable: bool, momentary: bool) -> None:
    assert (is_retriable(kind("")), is_momentary(kind(""))) == (retriable, momentary)


def test_the_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(0.1, 1.0)
    delays = [backoff.next_s() for _ in range(6)]
    for delay, full in zip(delays, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert full * 0.9 <= delay <= full
    backoff.reset()
    assert backoff.next_s() <= 0.1
