"""The screen of `top`: frames on the alternate screen until q or Ctrl-C; answers come in a thread of their own.

A broker that does not answer any more leaves its last frame, with the reason. Owns keys, resizing and the end.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from magnetar.cli.rest import Rest
from magnetar.cli.top.answers import Answers, Sort, ask
from magnetar.cli.top.frame import frame
from magnetar.cli.top.sparkline import History
from magnetar.errors import MagnetarError

_LOOK_S = 0.2
"""A key, a resize or an answer is noticed within this time."""

HINT = "q quits, s sorts by another column"


class Asking:
    """Asks at once, then every `interval_s`, and whenever `sort` changes."""

    def __init__(self, rest: Rest, sort: Sort, interval_s: float) -> None:
        self._rest = rest
        self._interval_s = interval_s
        self._again = threading.Event()
        self._is_over = False
        self.sort = sort
        self.answers: queue.SimpleQueue[Answers | MagnetarError] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="magnetar-top", daemon=True).start()

    def sort_by(self, sort: Sort) -> None:
        self.sort = sort
        self._again.set()

    def stop(self) -> None:
        self._is_over = True
        self._again.set()

    def _run(self) -> None:
        while not self._is_over:
            try:
                self.answers.put(ask(self._rest, self.sort))
            except MagnetarError as error:
                self.answers.put(error)
            except Exception:  # the connection was closed under it: the command ends
                if not self._is_over:
                    raise
            self._again.wait(self._interval_s)
            self._again.clear()


def run(rest: Rest, first: Answers, interval_s: float) -> int:
    """Until q: 0. Ctrl-C and SIGTERM raise KeyboardInterrupt."""
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, highlight=False, emoji=False)
    history, problem, shown = History(), "", first
    asking = Asking(rest, first.sort, interval_s)
    _remember(history, first)
    with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            size, is_new = None, True
            while True:
                if is_new or console.size != size:
                    size = console.size
                    live.update(_screen(shown, history, size.width, size.height, problem), refresh=True)
                    is_new = False
                for key in keys(_LOOK_S):
                    if key in "qQ\x1b":
                        return 0
                    if key in "sS":
                        asking.sort_by(asking.sort.after)
                while not asking.answers.empty():
                    found = asking.answers.get()
                    is_new = True
                    if isinstance(found, Answers):
                        shown, problem = found, ""
                        _remember(history, found)
                    else:
                        problem = f"no answer: {found}; asking again"
        finally:
            asking.stop()


def _remember(history: History, answers: Answers) -> None:
    totals = answers.overview["totals"]
    history.add(answers.overview["time"], totals["rateIn"], totals["rateOut"])


def _screen(answers: Answers, history: History, width: int, height: int, problem: str) -> Any:
    from rich.console import Group
    from rich.text import Text

    return Group(frame(answers, history, width, height - 2, problem), Text(f"\n{HINT}", "dim"))


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits for keys, each as it is typed; without a terminal as stdin it only waits."""
    handler = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if not sys.stdin.isatty():
            yield _only_wait
            return
        import termios
        import tty

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
        tty.setcbreak(file)
        try:
            yield lambda seconds: _typed(file, seconds)
        finally:
            termios.tcsetattr(file, termios.TCSADRAIN, before)
    finally:
        signal.signal(signal.SIGTERM, handler)


def _typed(file: int, seconds: float) -> str:
    if not select.select([file], [], [], seconds)[0]:
        return ""
    text = os.read(file, 100).decode(errors="replace")
    return text if len(text) == 1 or not text.startswith("\x1b") else ""  # an arrow, and no escape


def _only_wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
