"""Kill -9 while a stream copies a topic: the copy equals the source, in order per partition (SP1).

`MAGNETAR_STREAM_MESSAGES=1000000 MAGNETAR_STREAM_KILLS=40` sets the size, as `make simulate` does.
`MAGNETAR_STREAM_SEED` repeats an order of kills.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import httpx
import pulsar
import pytest

from magnetar.client import Client, MessageId
from tests.crash.killable import KillableBroker
from tests.spark.kill_job import SUBSCRIPTION
from tests.spark.killable_driver import LOOK_AGAIN_S, Driver, wait_until

_MESSAGES = int(os.environ.get("MAGNETAR_STREAM_MESSAGES", "60000"))
_KILLS = int(os.environ.get("MAGNETAR_STREAM_KILLS", "8"))
_SEED = int(os.environ.get("MAGNETAR_STREAM_SEED", random.randrange(1_000_000)))

PARTITIONS = 2
MESSAGES_PER_ENTRY = 50
ENTRIES_PER_TRIGGER = 80
MESSAGES_PER_TRIGGER = MESSAGES_PER_ENTRY * ENTRIES_PER_TRIGGER
SOURCE, TARGET = "numbers", "copied"

_BROKER_AWAY_MAX_S = 2.0
_MOMENT_MAX_S = 0.4
_DURING_WRITES = 0.6
_AHEAD_MAX = 2 * MESSAGES_PER_TRIGGER


class Kind(StrEnum):
    """The process that is killed."""

    WORKER = "worker"  # a process that runs a task
    TASK = "task"  # by Spark, which interrupts it
    DRIVER = "driver"  # all its processes at once; another driver continues from the checkpoint
    BROKER = "broker"
    PLANNER = "planner"  # the process that plans offsets: Spark ends the query


_OFTEN = (Kind.WORKER, Kind.TASK, Kind.DRIVER, Kind.BROKER, Kind.PLANNER, Kind.WORKER, Kind.TASK, Kind.BROKER)


def kills(moments: random.Random) -> list[Kind]:
    order = [_OFTEN[index % len(_OFTEN)] for index in range(_KILLS)]
    moments.shuffle(order)
    return order


class Stream:
    """A copy that continues until it equals the source, despite kills."""

    def __init__(self, broker: KillableBroker, folder: Path, moments: random.Random) -> None:
        self.broker = broker
        self._checkpoint = folder / "checkpoint"
        self._log = folder / "driver.log"
        self._moments = moments
        self._failures: list[str] = []
        # A short name, since it becomes part of socket paths.
        self._scratch = tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True)
        self._driver = self._start()

    def _start(self) -> Driver:
        checkpoint = str(self._checkpoint)
        arguments = [
            self.broker.service_url,
            self.broker.http_url,
            SOURCE,
            TARGET,
            str(ENTRIES_PER_TRIGGER),
            checkpoint,
        ]
        return Driver(arguments, Path(self._scratch.name), self._log)

    @property
    def failures(self) -> list[str]:
        """Reported errors of ended queries."""
        return self._failures + self._driver.failures

    @property
    def batches(self) -> int:
        """Number of committed micro-batches."""
        return max((int(each.name) + 1 for each in (self._checkpoint / "commits").glob("[0-9]*")), default=0)

    @property
    def copied(self) -> int:
        """Number of messages in them."""
        return sum((entry_id + 1) * MESSAGES_PER_ENTRY for _, entry_id in self.offsets.values())

    @property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """Their end offsets: ledger and entry by partition."""
        if not (done := self.batches):
            return {}
        offsets = json.loads((self._checkpoint / "offsets" / str(done - 1)).read_text().splitlines()[-1])
        return {topic: MessageId.parse(text).position for topic, text in offsets.items()}

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Waits as long as there is progress."""
        done = -1
        while done < self.batches:
            done = self.batches
            with suppress(AssertionError):
                return wait_until(what, is_so)
            self._driver.check()
        pytest.fail(f"{what}: micro-batch {done} does not end; {self.failures}; see {self._log}")

    @contextmanager
    def during_a_write(self) -> Iterator[None]:
        """A task has just stored a message that is not committed yet."""
        with Client(self.broker.service_url) as client:
            watch = client.tail(self._moments.choice(partitions_of(TARGET)))
            last = watch.bounds().last
            self.wait("a write", lambda: watch.wait(last, 1.0))
            yield

    def kill(self, kind: Kind) -> None:
        if kind is Kind.TASK:
            self._driver.kill_task()
        elif kind is Kind.DRIVER:
            self._driver.kill()
            self._failures += self._driver.failures
            self._driver = self._start()
        elif kind is Kind.BROKER:
            self.broker.kill()
            time.sleep(self._moments.uniform(0, _BROKER_AWAY_MAX_S))
            self.broker.start()
        elif kind is Kind.PLANNER:
            self._driver.kill_planner(self._moments)
        else:
            self._driver.kill_worker(self._moments)

    def close(self) -> None:
        self._driver.kill()
        self._scratch.cleanup()


# -- the topics


def partitions_of(topic: str) -> list[str]:
    return [f"persistent://public/default/{topic}-partition-{index}" for index in range(PARTITIONS)]


def content(number: int) -> bytes:
    return b"message %d" % number


class Publisher:
    """Publishes numbers in batches, to the partitions in turn. It has a name, so that resent messages are dropped."""

    def __init__(self, client: pulsar.Client) -> None:
        self._failures: list[pulsar.Result] = []
        self._producers = [
            client.create_producer(
                topic,
                producer_name=f"numbers of {topic}",
                batching_enabled=True,
                batching_max_messages=MESSAGES_PER_ENTRY,
                batching_max_publish_delay_ms=1000,
                block_if_queue_full=True,
                send_timeout_millis=0,
            )
            for topic in partitions_of(SOURCE)
        ]

    def publish(self, numbers: range) -> None:
        for number in numbers:
            self._producers[number % PARTITIONS].send_async(content(number), self._on_receipt)

    def _on_receipt(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            self._failures.append(result)

    def follow(self, first: int, copied: Callable[[], int], is_enough: threading.Event) -> int:
        """Publishes while the copy runs, never far ahead of it; returns the total.

        Continues until the last kill: a kill during a write needs a write.
        """
        while first < _MESSAGES or not is_enough.is_set():
            while first - copied() > _AHEAD_MAX and not is_enough.wait(LOOK_AGAIN_S):
                pass
            self.publish(range(first, first + MESSAGES_PER_TRIGGER))
            first += MESSAGES_PER_TRIGGER
        self.flush()
        return first

    def flush(self) -> None:
        for producer in self._producers:
            producer.flush()
        assert self._failures == []


def backlog(broker: KillableBroker) -> int:
    """The backlog of the stream's subscription."""
    urls = [
        f"{broker.http_url}/admin/v2/persistent/{topic.partition('://')[2]}/stats" for topic in partitions_of(SOURCE)
    ]
    return sum(httpx.get(url).json()["subscriptions"][SUBSCRIPTION]["msgBacklog"] for url in urls)


def ends(broker: KillableBroker, topic: str) -> dict[str, tuple[int, int]]:
    """The position of the last entry by partition."""
    with Client(broker.service_url) as client:
        return {each: client.tail(each).bounds().last.position for each in partitions_of(topic)}


def read_to_the_end(client: pulsar.Client, topic: str) -> list[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    read = []
    while reader.has_message_available():
        read.append(reader.read_next(10_000).data())
    reader.close()
    return read


def check(topic: str, expected: list[bytes], found: list[bytes]) -> None:
    if found == expected:
        return
    counts = Counter(found)
    twice = [each for each, count in counts.items() if count > 1]
    missing = [each for each in expected if each not in counts]
    strange = counts.keys() - set(expected)
    pytest.fail(
        f"{topic} has {len(found)} messages instead of {len(expected)}: {len(twice)} are there more than once"
        f" {twice[:5]}, {len(missing)} are missing {missing[:5]}, {len(strange)} are not from there, else they are out"
        f" of order (seed {_SEED})"
    )


@contextmanager
def connected(broker: KillableBroker, folder: Path) -> Iterator[pulsar.Client]:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(folder / "client.log"))
    client = pulsar.Client(broker.service_url, logger=logger)
    with closing(client):
        yield client


def check_all(client: pulsar.Client, topic: str, messages: int) -> None:
    for index, partition in enumerate(partitions_of(topic)):
        expected = [content(number) for number in range(index, messages, PARTITIONS)]
        check(partition, expected, read_to_the_end(client, partition))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the driver's processes are found in /proc")
@pytest.mark.timeout(300 + 60 * _KILLS)
def test_sp1_kills_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    moments = random.Random(_SEED)
    order = kills(moments)
    broker = KillableBroker(tmp_path / "data", ("brokerDeduplicationEnabled=true",))
    broker.start()
    try:
        for topic in (SOURCE, TARGET):
            url = f"{broker.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
            httpx.put(url, json=PARTITIONS).raise_for_status()
        began_s = time.monotonic()
        with connected(broker, tmp_path) as client, closing(Stream(broker, tmp_path, moments)) as stream:
            messages = copy_and_kill(stream, Publisher(client), order, moments)
            batches, failures = stream.batches, stream.failures
        took_s = time.monotonic() - began_s
        # A kill of the planner ends the query. After any other kill the same query continued.
        assert len(failures) <= order.count(Kind.PLANNER), failures
        with connected(broker, tmp_path) as client:
            for topic in (SOURCE, TARGET):
                check_all(client, topic, messages)
    finally:
        broker.kill()
    killed = ", ".join(f"{count} x {kind}" for kind, count in sorted(Counter(order).items()))
    print(
        f"{len(order)} kills ({killed}; seed {_SEED}), {messages} messages in {batches} micro-batches and {took_s:.0f}"
        f" s, each exactly once and in order; {len(failures)} queries were started again"
    )


def copy_and_kill(stream: Stream, publisher: Publisher, order: list[Kind], moments: random.Random) -> int:
    """Half of the source exists before, the other half is published while it is copied. Returns the total."""
    publisher.publish(range(_MESSAGES // 2))
    publisher.flush()
    is_enough = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        rest = threads.submit(publisher.follow, _MESSAGES // 2, lambda: stream.copied, is_enough)
        try:
            kill_all(stream, order, moments)
        finally:
            is_enough.set()
        stream.wait("the rest is published", rest.done)
        end = ends(stream.broker, SOURCE)
        stream.wait("the end", lambda: stream.offsets == end)
        wait_until("the subscription is at the end", lambda: backlog(stream.broker) == 0)
        return rest.result()


def kill_all(stream: Stream, order: list[Kind], moments: random.Random) -> None:
    """Kills spread over the micro-batches, some in quick succession, many during a write."""
    points = sorted(moments.choices(range(1, _MESSAGES // MESSAGES_PER_TRIGGER), k=len(order)))
    for point, kind in zip(points, order, strict=True):
        stream.wait(f"micro-batch {point}", lambda point=point: stream.batches >= point)  # type: ignore[misc]
        if moments.random() < _DURING_WRITES:
            with stream.during_a_write():
                stream.kill(kind)
        else:
            time.sleep(moments.uniform(0, _MOMENT_MAX_S))
            stream.kill(kind)
