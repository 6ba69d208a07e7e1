"""Heartbeats: the status board is sent to the source when it changed, and at least every few seconds.

Owns the thread and its pace. The source drops rows without a heartbeat, and after a restart it knows none: now and then
all rows are sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from magnetar.pipelines.status_board import Snapshot, StateT, StatusBoard

HEARTBEAT_S = 2.0
_COALESCE_S = 0.05
_ALL_EVERY = 15  # heartbeats


class Heartbeats:
    """`send` returns False if a snapshot did not arrive; `before` is called before each one."""

    def __init__(
        self,
        board: StatusBoard[StateT],
        send: Callable[[Snapshot[StateT]], bool],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._board = board
        self._send = send
        self._before = before
        self._sent = 0  # since all rows were sent for the first time
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._board.changed.set()

    def join(self) -> None:
        self._thread.join()

    def start_over(self) -> None:
        """All rows are sent next: the source restarted and knows none."""
        self._sent = 0
        self._board.changed.set()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            if self._board.changed.wait(HEARTBEAT_S):
                self._is_stopped.wait(_COALESCE_S)
            self._board.changed.clear()
            self._before()
            if self._send(self._board.take(is_all=self._sent % _ALL_EVERY == 0)):
                self._sent += 1
            else:
                self._board.put_back()
                self._is_stopped.wait(HEARTBEAT_S / 2)
