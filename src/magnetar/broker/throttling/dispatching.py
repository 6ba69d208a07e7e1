"""The limits on dispatch of one subscription: the broker's, the topic's and its own.

The subscription asks for room before a turn, counts what it delivered, and waits when a limit is exhausted. Limits that
it shares with other subscriptions are taken in turn. Replication has a limit of its own and no other.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence

from magnetar.broker.throttling.rate_limit import UNLIMITED, RateLimit

Entry = tuple[int, int, int, bytes]
"""An entry of a topic's log, of which only the blob, the last part, counts here."""


class LimitLevel(enum.StrEnum):
    BROKER = "broker"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class Throttle:
    """`messages` and `bytes` are the room as last measured. The events say how often each limit made it wait."""

    __slots__ = ("_is_my_turn", "_resume", "_waiter", "byte_events", "bytes", "limits", "message_events", "messages")

    def __init__(self, waiter: object, resume: Callable[[], None]) -> None:
        self._waiter = waiter
        self._resume = resume
        self._is_my_turn = False
        self.limits: dict[LimitLevel, RateLimit] = {}
        self.messages = self.bytes = UNLIMITED
        self.message_events: Counter[LimitLevel] = Counter()
        self.byte_events: Counter[LimitLevel] = Counter()

    def measure(self) -> bool:
        """Whether anything may be delivered; sets the room."""
        rooms = [limit.room for limit in self.limits.values()]
        self.messages = min((messages for messages, _ in rooms), default=UNLIMITED)
        self.bytes = min((size for _, size in rooms), default=UNLIMITED)
        return self.messages > 0 and self.bytes > 0

    def begin_turn(self) -> bool:
        """False if a limit is exhausted, or others wait for it already: then it waits too."""
        is_my_turn, self._is_my_turn = self._is_my_turn, False
        is_open = self.measure()
        return is_open and (is_my_turn or not any(limit.waiting for limit in self.limits.values()))

    def within_bytes(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The first entries, up to the one that uses up the bytes."""
        size = 0
        for index, entry in enumerate(entries):
            if size >= self.bytes:
                return entries[:index]
            size += len(entry[3])
        return entries

    def take(self, messages: int, size: int) -> bool:
        """Counts what was delivered; false if nothing more may be."""
        for limit in self.limits.values():
            limit.take(messages, size)
        return self.measure()

    def wait(self, *, is_served: bool) -> None:
        """Resumes the subscription when the first limit that it waits for has room."""
        for limit in self.limits.values():
            if limit.is_awaited_by(self._waiter):
                return
        for level, limit in self.limits.items():
            messages, size = limit.room
            if messages > 0 and size > 0 and not limit.waiting:
                continue
            self.message_events[level] += messages <= 0
            self.byte_events[level] += size <= 0
            limit.wait(self._waiter, self._my_turn, is_served=is_served)
            return
        self._my_turn()  # time has passed since the limits were measured: none is exhausted any more

    def _my_turn(self) -> None:
        self._is_my_turn = True
        self._resume()

    def forget(self) -> None:
        """The subscription ends, or a limit is not its any more."""
        for limit in self.limits.values():
            limit.forget(self._waiter)
