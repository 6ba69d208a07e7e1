"""The deadline of a stop: the process ends within it, whatever hangs.

Nothing is lost by it: what was acknowledged is in the synced log before its receipt goes out.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import sys
import threading

from magnetar.bounds import STOP_WAIT
from magnetar.log.events import STOP_ABANDONED, emit

_BACKSTOP_S = 1.0  # in which the last line is written


class StopDeadline:
    """Ends the process some seconds after the first `start`, unless it is cancelled."""

    def __init__(self, seconds: float = STOP_WAIT.limit) -> None:
        self._seconds = seconds
        self._timer = threading.Timer(seconds - _BACKSTOP_S, self._end)
        self._timer.daemon = True
        self._is_started = False

    def start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        self._timer.start()
        with contextlib.suppress(ValueError, OSError, AttributeError):  # stderr is closed, or no file
            # Without Python: a native call that hangs may hold the interpreter's lock.
            faulthandler.dump_traceback_later(self._seconds, exit=True)

    def cancel(self) -> None:
        self._timer.cancel()
        faulthandler.cancel_dump_traceback_later()

    def _end(self) -> None:
        emit(STOP_ABANDONED, seconds=f"{self._seconds:g}")
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(1)
