"""Awaiting several things at once, for modules that must not import asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

_T = TypeVar("_T")


async def gather(awaited: Iterable[Awaitable[_T]]) -> list[_T]:
    """The results of all, which run concurrently and to their end; then the first error is raised, if there is one."""
    results: list[_T] = []
    for result in await asyncio.gather(*awaited, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
