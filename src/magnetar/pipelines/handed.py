"""What the broker handed over: the token for it and the credentials of remote clusters, kept in memory only.

Filled by `lifeline`, read by the threads of the process. They wait while there is none: a broker that started again
hands over others. Knows no connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from magnetar.client.errors import Timeout
from magnetar.replication.handover import Handover

_WAIT_S = 30.0  # for a broker that is starting
_CREDENTIALS_S = 2.0  # the declaration may be ahead of the pipe

_handover = msgspec.json.Decoder(Handover)


class Handed:
    """Valid until the broker that handed it over is gone; never in a `repr`."""

    def __init__(self) -> None:
        self._current: Handover | None = None
        self._changed = threading.Condition()
        self._is_over = False

    def put(self, line: bytes) -> None:
        """A line that a broker was killed in the middle of is followed by a whole one."""
        try:
            found = _handover.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        with self._changed:
            self._current = found
            self._changed.notify_all()

    def forget(self) -> None:
        """The broker is gone, and what it handed over with it."""
        with self._changed:
            self._current = None

    def end(self) -> None:
        """Ends every wait."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def token(self) -> str:
        """For the broker. Raises `Timeout`."""
        return self._when(lambda found: True, _WAIT_S).token

    def credentials(self, version: str) -> msgspec.Raw:
        """Those for remote clusters, of this version. Raises `Timeout`."""
        return self._when(lambda found: found.version == version, _CREDENTIALS_S).credentials

    def _when(self, is_right: Callable[[Handover], bool], timeout_s: float) -> Handover:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or (self._current is not None and is_right(self._current)), timeout_s
            )
            if self._is_over or self._current is None or not is_right(self._current):
                raise Timeout("the broker did not hand over the credentials for its declaration")
            return self._current
