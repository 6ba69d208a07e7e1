"""Waiting with a limit: every wait of the client ends, and its error says what was waited for, or what was wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from magnetar.client.connection.backoff import Backoff
from magnetar.client.errors import ClientError, Timeout

_T = TypeVar("_T")


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Raises `Timeout` naming `what` when the block takes longer; None is no limit."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Timeout(f"{what} took longer than {seconds:g} s") from None


async def with_retry(
    what: str, ask: Callable[[], Awaitable[_T]], is_passing: Callable[[ClientError], bool], seconds: float
) -> _T:
    """Asks again after errors that pass, for `seconds`. Then the last of them is the reason, not that time is over."""
    backoff = Backoff()
    last: ClientError | None = None
    try:
        async with within(seconds, what):
            while True:
                try:
                    return await ask()
                except ClientError as error:
                    if not is_passing(error):
                        raise
                    last = error
                await asyncio.sleep(backoff.next_s())
    except Timeout as late:
        raise last or late from None
