"""A load of messages that fail until they are dead letters, in its own process, with the official Python client.

Every message is nacked on each delivery until it is in the dead letter topic, where each must appear exactly once.
Under the client's policy the client publishes the dead letters; under the broker's policy, which a consumer requests in
its properties, the client only nacks. Does not know which broker it is connected to.

It runs in its own process because pulsar-client 3.13.0 crashes with a segmentation fault when clearly more than 1,000
messages reach its policy at once: that must not end the benchmark, and the window of that row stays below it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import pulsar  # type: ignore[import-untyped]

SUBSCRIPTION, READER = "failing", "reader"
MAX_REDELIVER_COUNT = 2
QUEUE_SIZE = 1000
LIMIT_S = 120.0
_PATIENCE_MS = 200
_ACKED_TOGETHER = 100
_WINDOW_OF_CLIENT, _WINDOW_OF_BROKER = 800, 20_000

_CLIENT, _BROKER = "client", "broker"
_NACK_DELAY_MS = 1  # the client raises it to 100
_numbers = itertools.count()


class DeadLettersFailed(Exception):
    """Dead letters are missing or duplicated, or the client crashed."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load with at most `window` outstanding messages: published, and not yet read from the dead letter topic."""

    messages: int
    window: int
    policy: str


@dataclass(frozen=True, slots=True)
class Outcome:
    seconds: float
    ended: float  # wall-clock time, shared by several processes
    deliveries: int

    dead_letters: int
    distinct: int


def by_client(service_url: str, messages: int, clients: int) -> float:
    """Dead letters per second under the policies of `clients` clients, each with `messages` messages on its own topic.

    The broker may deliver more often than necessary, but must not lose a message.
    """
    load = Load(messages, window=_WINDOW_OF_CLIENT, policy=_CLIENT)
    with ThreadPoolExecutor(clients) as processes:
        outcomes = list(processes.map(lambda _: _run(service_url, load), range(clients)))
    for outcome in outcomes:
        check_complete(load, outcome)
    seconds = max(outcome.ended for outcome in outcomes) - min(outcome.ended - outcome.seconds for outcome in outcomes)
    return sum(outcome.distinct for outcome in outcomes) / seconds


def by_broker(service_url: str, messages: int) -> float:
    """Dead letters per second under the broker's policy; no extra delivery or dead letter is allowed."""
    load = Load(messages, window=min(messages, _WINDOW_OF_BROKER), policy=_BROKER)
    outcome = _run(service_url, load)
    check_complete(load, outcome)
    check_exact(load, outcome)
    return outcome.distinct / outcome.seconds


def check_complete(load: Load, outcome: Outcome) -> None:
    if outcome.distinct != load.messages:
        raise DeadLettersFailed(
            f"{outcome.distinct} of {load.messages} messages became dead letters within {outcome.seconds:.0f} s"
        )


def check_exact(load: Load, outcome: Outcome) -> None:
    deliveries = load.messages * (1 + MAX_REDELIVER_COUNT)
    if (outcome.dead_letters, outcome.deliveries) != (load.messages, deliveries):
        raise DeadLettersFailed(
            f"{load.messages} messages became {outcome.dead_letters} dead letters after "
            f"{outcome.deliveries} deliveries, expected {load.messages} after {deliveries}"
        )


def _run(service_url: str, load: Load) -> Outcome:
    words = ("--url", service_url, "--policy", load.policy, "--messages", load.messages, "--window", load.window)
    topic = f"persistent://public/default/bench-dead-{load.policy}-{next(_numbers)}"
    command = [sys.executable, __file__, *map(str, words), "--topic", topic]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S * 1.5)
    except subprocess.TimeoutExpired as error:
        raise DeadLettersFailed(f"the load did not finish within {LIMIT_S * 1.5:.0f} s") from error
    try:
        return Outcome(**json.loads(done.stdout))  # printed before the client is closed, which may crash
    except ValueError as error:
        text = f"the load exited with code {done.returncode}: {done.stderr.strip()[-500:]}"
        raise DeadLettersFailed(text) from error


class _Run:
    """One load: the main thread nacks every message, one thread publishes and one reads the dead letters.

    Listeners would cost this client twice as much per message.
    """

    def __init__(self, client: pulsar.Client, topic: str, load: Load) -> None:
        self._client, self._topic, self._load = client, topic, load
        self._deliveries = self._dead_letters = 0
        self._distinct: set[int] = set()
        self._room = threading.Semaphore(load.window)
        self._over = threading.Event()
        self._ended = 0.0

    def run(self) -> Outcome:
        failing, reader = self._subscribe_failing(), self._subscribe_reader()
        producer = self._client.create_producer(self._topic, batching_enabled=False, block_if_queue_full=True)
        threads = [
            threading.Thread(target=self._publish, args=(producer,)),
            threading.Thread(target=self._read, args=(reader,)),
        ]
        began = time.time()
        for thread in threads:
            thread.start()
        while not self._over.is_set() and time.time() - began < LIMIT_S:
            self._nack_all(failing)
        ended = self._ended or time.time()
        self._over.set()
        self._room.release()
        for thread in threads:
            thread.join()
        return Outcome(ended - began, ended, self._deliveries, self._dead_letters, len(self._distinct))

    def _subscribe_failing(self) -> pulsar.Consumer:
        policy = pulsar.ConsumerDeadLetterPolicy(MAX_REDELIVER_COUNT, self._dead_letter_topic, READER)
        properties = {
            "deadLetterPolicy.maxRedeliverCount": str(MAX_REDELIVER_COUNT),
            "deadLetterPolicy.deadLetterTopic": self._dead_letter_topic,
            "deadLetterPolicy.initialSubscriptionName": READER,
        }
        by_client = self._load.policy == _CLIENT
        return self._client.subscribe(
            self._topic,
            SUBSCRIPTION,
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=_NACK_DELAY_MS,
            receiver_queue_size=QUEUE_SIZE,
            dead_letter_policy=policy if by_client else None,
            properties={} if by_client else properties,
        )

    def _subscribe_reader(self) -> pulsar.Consumer:
        return self._client.subscribe(self._dead_letter_topic, READER, initial_position=pulsar.InitialPosition.Earliest)

    @property
    def _dead_letter_topic(self) -> str:
        return f"{self._topic}-{SUBSCRIPTION}-DLQ"

    def _publish(self, producer: pulsar.Producer) -> None:
        for number in range(self._load.messages):
            self._room.acquire()
            if self._over.is_set():
                return
            producer.send_async(b"%-100d" % number, None)

    def _nack_all(self, failing: pulsar.Consumer) -> None:
        """Nacks until no message arrives for a while."""
        with contextlib.suppress(pulsar.Timeout):
            while True:
                failing.negative_acknowledge(failing.receive(_PATIENCE_MS))
                self._deliveries += 1

    def _read(self, reader: pulsar.Consumer) -> None:
        """Reads until no message arrives any more, so that duplicates are seen."""
        while True:
            try:
                message = reader.receive(_PATIENCE_MS)
            except pulsar.Timeout:
                if self._over.is_set():
                    return
                continue
            self._dead_letters += 1
            if self._dead_letters % _ACKED_TOGETHER == 0:  # reading dead letters is not measured
                reader.acknowledge_cumulative(message)
            number = int(message.data())
            if number in self._distinct:
                continue
            self._distinct.add(number)
            self._room.release()
            if len(self._distinct) == self._load.messages:
                self._ended = time.time()
                self._over.set()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="nack messages until they are dead letters")
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--policy", choices=(_CLIENT, _BROKER), default=_CLIENT)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--window", type=int, default=800)
    options = parser.parse_args(arguments)
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    outcome = _Run(client, options.topic, Load(options.messages, options.window, options.policy)).run()
    print(json.dumps(asdict(outcome)), flush=True)
    client.close()


if __name__ == "__main__":
    main()
