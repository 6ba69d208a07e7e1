"""Waiting with a limit: every wait of the client ends, and its error says what was waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.client.errors import Timeout


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Raises `Timeout` naming `what` when the block takes longer; None is no limit."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Timeout(f"{what} took longer than {seconds:g} s") from None
