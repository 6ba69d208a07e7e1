"""The limit of lines of each kind, so that a client that fails all day does not fill a disk.

Takes the time as an argument. Knows no records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from magnetar.bounds import LOG_KINDS

WINDOW_S = 60.0
KINDS_MAX = LOG_KINDS.limit  # kinds are places in the code; the bound is for a library that surprises us


@dataclass(slots=True)
class _Window:
    start_s: float
    written: int = 0
    suppressed: int = 0


class LineLimit:
    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def admits(self, kind: str, per_minute: int, now_s: float) -> bool:
        """Whether one more line of this kind is written; if not, it is counted."""
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= KINDS_MAX:
                self._windows = {known: one for known, one in self._windows.items() if one.suppressed}
                kind = kind if len(self._windows) < KINDS_MAX else "others"
            window = self._windows.setdefault(kind, _Window(now_s))
        if not 0 <= now_s - window.start_s < WINDOW_S and not window.suppressed:
            window.start_s, window.written = now_s, 0
        if window.written < per_minute:
            window.written += 1
            return True
        window.suppressed += 1
        return False

    def take_suppressed(self, now_s: float | None = None) -> Iterator[tuple[str, int]]:
        """Kinds whose window is over, with the lines that were not written; all of them without a time."""
        for kind, window in list(self._windows.items()):
            is_over = now_s is None or not 0 <= now_s - window.start_s < WINDOW_S
            if window.suppressed and is_over:
                count = window.suppressed
                del self._windows[kind]
                yield kind, count
