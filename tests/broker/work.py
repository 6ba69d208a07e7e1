"""Work, measured without a clock: the lines of Python that a function runs, which is the same number each time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(function: Callable[[], object]) -> int:
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


def is_linear(work: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether twice the size is about twice the work: quadratic work would be four times as much."""
    return lines_run(work(2 * size)) < 2.6 * lines_run(work(size))
