"""A consumer that moves between clusters with a replicated subscription, and acknowledges its messages."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

import pulsar

SUBSCRIPTION = "moving"
_STAY_S = (1.0, 6.0)
_AGAIN_S = 0.2
_RECEIVE_MS = 100
_SILENCE_MS = 2000  # after which an idle topic counts as drained


class MovingConsumer:
    """Runs from `start` until `end`. `received` counts deliveries by content."""

    def __init__(self, clients: Sequence[pulsar.Client], topic: str, stays: random.Random) -> None:
        self._clients = clients
        self._topic = topic
        self._stays = stays
        self._at = 0
        self._is_enough = threading.Event()
        self._thread = threading.Thread(target=self._move)
        self.received: Counter[bytes] = Counter()
        self.moves = 0

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        self._is_enough.set()

    def end(self) -> None:
        self._is_enough.set()
        self._thread.join()

    def _move(self) -> None:
        while not self._is_enough.is_set():
            # On any error after a kill, it continues in the other cluster.
            with contextlib.suppress(pulsar.PulsarException):
                self._stay(self._stays.uniform(*_STAY_S))
            self._is_enough.wait(_AGAIN_S)
            self._at = 1 - self._at
            self.moves += 1

    def _stay(self, stay_s: float) -> None:
        with contextlib.closing(self._subscribe()) as consumer:
            leaves_s = time.monotonic() + stay_s
            while time.monotonic() < leaves_s and not self._is_enough.is_set():
                with contextlib.suppress(pulsar.Timeout):
                    self._take(consumer, _RECEIVE_MS)

    def drain(self) -> None:
        """Drains the cluster it was not in last, once both are idle."""
        with contextlib.closing(self._subscribe()) as consumer, contextlib.suppress(pulsar.Timeout):
            while True:
                self._take(consumer, _SILENCE_MS)

    def _take(self, consumer: pulsar.Consumer, timeout_ms: int) -> None:
        message = consumer.receive(timeout_ms)
        self.received[message.data()] += 1
        consumer.acknowledge(message)

    def _subscribe(self) -> pulsar.Consumer:
        return self._clients[self._at].subscribe(
            self._topic,
            SUBSCRIPTION,
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=True,
        )
