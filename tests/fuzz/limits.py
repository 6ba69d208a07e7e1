"""Limits of a process that handles hostile input: its memory, and its CPU time per frame.

CPU time and not the time of day, so that a busy machine changes nothing; a slow one gets as much more as it needs for
a known piece of work.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

MEMORY_MAX = 512 << 20
CPU_MAX_S = 1.0
_INTERRUPTED_AFTER = 3  # times the limit: what never ends is interrupted
_REFERENCE_S = 0.03  # of the known piece of work, on the machine that the limit was chosen for


class TooExpensive(BaseException):
    """Not an Exception: no guard of the broker may take it for a fault of its own."""


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))


@cache
def slowness() -> float:
    """How much slower than the reference this machine is now, at least 1."""
    started = time.process_time()
    table: dict[int, bytes] = {}
    for number in range(100_000):
        table[number % 1000] = number.to_bytes(8, "big")
    return max(1.0, (time.process_time() - started) / _REFERENCE_S)


@contextmanager
def cpu_limit(units: float = 1) -> Iterator[None]:
    """Raises TooExpensive for a block that takes more than a second of CPU time per unit."""
    allowed_s = CPU_MAX_S * units * slowness()
    before = signal.signal(signal.SIGPROF, _interrupt)
    signal.setitimer(signal.ITIMER_PROF, allowed_s * _INTERRUPTED_AFTER)
    started = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    used_s = time.process_time() - started
    if used_s > allowed_s:
        raise TooExpensive(f"{used_s:.1f} s of CPU time, allowed are {allowed_s:.1f} s")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise TooExpensive(f"interrupted after {_INTERRUPTED_AFTER} times the CPU time that is allowed")
