"""Planted exceptions: methods of the core that raise at a random call, as a bug of ours would."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from random import Random
from typing import Any

from magnetar.broker.schema.registry import SchemaRegistry
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.dead_letter import DeadLetterMove
from magnetar.broker.subscription.deliveries import Deliveries
from magnetar.broker.subscription.redelivery import Redelivery
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.deduplication import Deduplication
from magnetar.broker.topic.log import Log
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.session.session import Session

CLASSES: tuple[type, ...] = (
    SchemaRegistry,
    Cursor,
    DeadLetterMove,
    Deliveries,
    Redelivery,
    Subscription,
    Deduplication,
    Log,
    PersistentTopic,
    Session,
)
_NEVER = {
    "invariants",  # called by the test
    "_stored",  # what is durable then becomes visible with the next entry, or the next start
}
# Of a session, what the core calls: the rest runs under its guards, or is the guard.
_OF_A_SESSION = {
    "publish",
    "receipts",
    "send_error",
    "deliver",
    "active_changed",
    "end_of_topic",
    "close_consumer",
    "close_producer",
}


class PlantedError(Exception):
    """Nothing in the broker knows this class."""


class Planter:
    """`arm` chooses a method; one of its next calls raises, once. `raised` counts."""

    def __init__(self, rng: Random, methods: Sequence[tuple[type, str]]) -> None:
        self._rng = rng
        self._methods = methods
        self._target = ""
        self._calls_left = 0
        self.raised = 0

    def arm(self) -> str:
        owner, name = self._rng.choice(self._methods)
        self._target = f"{owner.__name__}.{name}"
        self._calls_left = self._rng.choice((0, 0, 1, 3, 10))
        return self._target

    def disarm(self) -> None:
        self._target = ""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For checks, which call the same methods."""
        target, self._target = self._target, ""
        try:
            yield
        finally:
            self._target = target

    def called(self, target: str) -> None:
        if target == self._target:
            if self._calls_left:
                self._calls_left -= 1
                return
            self._target = ""
            self.raised += 1
            raise PlantedError(f"planted in {target}")

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = [(owner, name, owner.__dict__[name]) for owner, name in self._methods]
        for owner, name, method in before:
            setattr(owner, name, self._raising(f"{owner.__name__}.{name}", method))
        try:
            yield
        finally:
            for owner, name, method in before:
                setattr(owner, name, method)

    def _raising(self, target: str, method: Callable[..., Any]) -> Callable[..., Any]:
        called = self.called

        @wraps(method)
        def raising(*args: Any, **options: Any) -> Any:
            called(target)
            return method(*args, **options)

        return raising


def methods_of(classes: Sequence[type]) -> list[tuple[type, str]]:
    return [
        (owner, name)
        for owner in classes
        for name, method in vars(owner).items()
        if inspect.isfunction(method)
        and not name.startswith("__")
        and name not in _NEVER
        and (owner is not Session or name in _OF_A_SESSION)
    ]
