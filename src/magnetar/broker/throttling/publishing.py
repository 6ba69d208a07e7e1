"""The limits on publishing to one topic: its own and the broker's.

Nothing is refused: a connection whose messages exceed a limit is not read until the limit has room again, so the rest
waits in the client, and receipts come later. All producers of that connection wait with it, as in Apache Pulsar.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.peer import Peer
    from magnetar.broker.throttling.rate_limit import RateLimit


class PublishLimit:
    """`times`: how often a connection had to wait."""

    __slots__ = ("_limits", "times")

    def __init__(self, limits: tuple[RateLimit, ...], times: int = 0) -> None:
        self._limits = limits
        self.times = times

    def take(self, peer: Peer, messages: int, size: int) -> None:
        """Counts messages that were published, and holds their connection if they exceed a limit."""
        for limit in self._limits:
            limit.take(messages, size)
        self.admit(peer)

    def admit(self, peer: Peer) -> None:
        """Holds the connection while a limit is exhausted: a client that reconnects does not evade it."""
        is_held, peer.is_limited = False, True
        for limit in self._limits:
            if limit.is_exhausted and limit.wait(peer, partial(peer.release, limit), is_served=True):
                peer.hold(limit)
                is_held = True
        self.times += is_held
