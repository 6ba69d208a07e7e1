"""A rate limit: messages and bytes per period, and those that wait for their turn.

Whatever finds the limit exhausted waits here and is resumed when there are tokens again, or at once when the limit is
lifted. It knows neither producers nor subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.throttling.token_bucket import TokenBucket

UNLIMITED = 1 << 62
_PAUSE_MIN_MS = 10  # between two turns: the tokens of that time are taken together

Resume = Callable[[], None]


class RateLimit:
    """`messages` and `bytes` are None where there is no limit.

    `now_ms` and `wake_at` are of monotonic time. `one_by_one`: those that wait are resumed in turn while there are
    tokens, instead of all together.
    """

    __slots__ = ("_now_ms", "_one_by_one", "_served", "_unserved", "_wake_at", "_wake_ms", "bytes", "messages")

    def __init__(
        self, now_ms: Callable[[], int], wake_at: Callable[[int, Resume], None], *, one_by_one: bool = False
    ) -> None:
        self._now_ms = now_ms
        self._wake_at = wake_at
        self._one_by_one = one_by_one
        self._wake_ms = 0
        # Those that got nothing come first next time, so that none of them starves.
        self._unserved: dict[object, Resume] = {}
        self._served: dict[object, Resume] = {}
        self.messages: TokenBucket | None = None
        self.bytes: TokenBucket | None = None

    def set(self, messages: int, size: int, period_ms: int = 1000) -> None:
        """The limits from now on, 0 or less for none; those that wait notice it at once."""
        now_ms = self._now_ms()
        self.messages = _changed(self.messages, messages, period_ms, now_ms)
        self.bytes = _changed(self.bytes, size, period_ms, now_ms)
        self._wake_ms = 0
        self._wake()

    def lift(self) -> None:
        self.set(0, 0)

    @property
    def room(self) -> tuple[int, int]:
        """Messages and bytes that may pass now; 0 or less if none may."""
        now_ms = self._now_ms()
        return (
            UNLIMITED if self.messages is None else self.messages.available(now_ms),
            UNLIMITED if self.bytes is None else self.bytes.available(now_ms),
        )

    @property
    def is_exhausted(self) -> bool:
        return min(self.room) <= 0

    def take(self, messages: int, size: int) -> None:
        now_ms = self._now_ms()
        if self.messages is not None:
            self.messages.take(messages, now_ms)
        if self.bytes is not None:
            self.bytes.take(size, now_ms)

    # -- waiting

    def wait(self, waiter: object, resume: Resume, *, is_served: bool) -> bool:
        """Calls `resume` once when there are tokens; false if it waits already. `is_served`: it just took some."""
        if self.is_awaited_by(waiter):
            return False
        (self._served if is_served else self._unserved)[waiter] = resume
        self._schedule()
        return True

    def is_awaited_by(self, waiter: object) -> bool:
        return waiter in self._unserved or waiter in self._served

    def forget(self, waiter: object) -> None:
        self._unserved.pop(waiter, None)
        self._served.pop(waiter, None)

    @property
    def waiting(self) -> int:
        return len(self._unserved) + len(self._served)

    def _schedule(self) -> None:
        now_ms = self._now_ms()
        buckets = [bucket for bucket in (self.messages, self.bytes) if bucket is not None]
        at_ms = now_ms + max([_PAUSE_MIN_MS, *(bucket.wait_ms(now_ms) for bucket in buckets)])
        if not now_ms < self._wake_ms <= at_ms:
            self._wake_ms = at_ms
            self._wake_at(at_ms, self._wake)

    def _wake(self) -> None:
        if not self.waiting:
            return
        if self.is_exhausted:
            self._schedule()
            return
        waiting = {**self._unserved, **self._served}
        first = list(waiting)[: 1 if self._one_by_one and (self.messages or self.bytes) else None]
        for waiter in first:
            self.forget(waiter)
        for waiter in first:
            waiting[waiter]()
        if self.waiting:
            # The others follow when this one had its turn, which is not before this method returns.
            self._wake_at(self._now_ms(), self._wake)


def _changed(bucket: TokenBucket | None, rate: int, period_ms: int, now_ms: int) -> TokenBucket | None:
    if rate <= 0:
        return None
    if bucket is None:
        return TokenBucket(rate, period_ms, now_ms)
    bucket.change(rate, period_ms, now_ms)
    return bucket
