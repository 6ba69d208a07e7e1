"""Messages that fail until they are dead letters: a load of its own process, with the official Python client.

Every message is given back each time it comes, until it is in the dead letter topic, where each has to be exactly once.
By the client's own policy the client publishes the letters; by the broker's, which a consumer asks for in its
properties, the client only gives messages back. Does not know which broker it talks to.

It runs apart because pulsar-client 3.13.0 ends with a segmentation fault when clearly more than 1,000 messages reach
its policy at a time: that must not end the benchmark, and the window of that row stays below it.
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
_NACK_DELAY_MS = 1  # the client makes at least 100 of it
_numbers = itertools.count()


class LettersFailed(Exception):
    """The load did not end as it should: letters are missing or double, or the client crashed."""


@dataclass(frozen=True, slots=True)
class Load:
    """`window` messages are under way at a time: published, and not seen in the dead letter topic."""

    messages: int
    window: int
    policy: str


@dataclass(frozen=True, slots=True)
class Outcome:
    seconds: float
    ended: float  # by the clock on the wall, which several processes share
    deliveries: int
    letters: int
    distinct: int


def by_client(service_url: str, messages: int, clients: int) -> float:
    """Letters per second by the policies of so many clients, each with `messages` of its own on a topic of its own.

    A broker may deliver more often than it should, but lose none.
    """
    load = Load(messages, window=_WINDOW_OF_CLIENT, policy=_CLIENT)
    with ThreadPoolExecutor(clients) as processes:
        outcomes = list(processes.map(lambda _: _run(service_url, load), range(clients)))
    for outcome in outcomes:
        check_complete(load, outcome)
    seconds = max(outcome.ended for outcome in outcomes) - min(outcome.ended - outcome.seconds for outcome in outcomes)
    return sum(outcome.distinct for outcome in outcomes) / seconds


def by_broker(service_url: str, messages: int) -> float:
    """Letters per second by the broker's policy, with nothing delivered or published once too often."""
    load = Load(messages, window=min(messages, _WINDOW_OF_BROKER), policy=_BROKER)
    outcome = _run(service_url, load)
    check_complete(load, outcome)
    check_exact(load, outcome)
    return outcome.distinct / outcome.seconds


def check_complete(load: Load, outcome: Outcome) -> None:
    if outcome.distinct != load.messages:
        raise LettersFailed(
            f"{outcome.distinct} of {load.messages} messages became letters within {outcome.seconds:.0f} s"
        )


def check_exact(load: Load, outcome: Outcome) -> None:
    deliveries = load.messages * (1 + MAX_REDELIVER_COUNT)
    if (outcome.letters, outcome.deliveries) != (load.messages, deliveries):
        raise LettersFailed(
            f"{load.messages} messages became {outcome.letters} letters after {outcome.deliveries} deliveries,"
            f" wanted {load.messages} after {deliveries}"
        )


def _run(service_url: str, load: Load) -> Outcome:
    words = ("--url", service_url, "--policy", load.policy, "--messages", load.messages, "--window", load.window)
    topic = f"persistent://public/default/bench-dead-{load.policy}-{next(_numbers)}"
    command = [sys.executable, __file__, *map(str, words), "--topic", topic]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S * 1.5)
    except subprocess.TimeoutExpired as error:
        raise LettersFailed(f"the load did not end within {LIMIT_S * 1.5:.0f} s") from error
    try:
        return Outcome(**json.loads(done.stdout))  # which it says before the client is closed, and may crash
    except ValueError as error:
        text = f"the load ended with code {done.returncode}: {done.stderr.strip()[-500:]}"
        raise LettersFailed(text) from error


class _Run:
    """One load: the main thread gives everything back, one thread publishes and one reads the letters.

    Not with listeners: handing each message to one costs this client twice as much.
    """

    def __init__(self, client: pulsar.Client, topic: str, load: Load) -> None:
        self._client, self._topic, self._load = client, topic, load
        self._deliveries = self._letters = 0
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
            self._give_back(failing)
        ended = self._ended or time.time()
        self._over.set()
        self._room.release()
        for thread in threads:
            thread.join()
        return Outcome(ended - began, ended, self._deliveries, self._letters, len(self._distinct))

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

    def _give_back(self, failing: pulsar.Consumer) -> None:
        """All that comes until nothing does."""
        with contextlib.suppress(pulsar.Timeout):
            while True:
                failing.negative_acknowledge(failing.receive(_PATIENCE_MS))
                self._deliveries += 1

    def _read(self, reader: pulsar.Consumer) -> None:
        """Until nothing comes any more: what comes twice is to be seen."""
        while True:
            try:
                message = reader.receive(_PATIENCE_MS)
            except pulsar.Timeout:
                if self._over.is_set():
                    return
                continue
            self._letters += 1
            if self._letters % _ACKED_TOGETHER == 0:  # reading letters is not what is measured
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
    parser = argparse.ArgumentParser(description="messages that fail until they are dead letters")
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
