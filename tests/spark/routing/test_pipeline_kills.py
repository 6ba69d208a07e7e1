"""Kill -9 for the driver of a pipeline, at any step of a micro-batch: each row is once at every target (SP2).

`MAGNETAR_PIPELINE_ROWS=100000 MAGNETAR_PIPELINE_KILLS=40` sets the size. `MAGNETAR_PIPELINE_SEED` repeats an order of
kills; the chance that decides about rows is Spark's own.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pulsar
import pyarrow.parquet as pq
import pytest
from pulsar.schema import JsonSchema, Long, Record

from magnetar.client import EARLIEST, Client, Message
from magnetar.client.blocking.readers import TopicTail
from magnetar.client.errors import ClientError, NotFound
from tests.crash.killable import KillableBroker
from tests.spark.killable_driver import Driver
from tests.spark.routing.pipeline_job import DELAYS, SUBSCRIPTION

_ROWS = int(os.environ.get("MAGNETAR_PIPELINE_ROWS", "2000"))
_KILLS = int(os.environ.get("MAGNETAR_PIPELINE_KILLS", "3"))
_SEED = int(os.environ.get("MAGNETAR_PIPELINE_SEED", random.randrange(1_000_000)))

TOPIC = "orders"
OUT, DEAD, RETRY = f"{TOPIC}-out", f"{TOPIC}-{SUBSCRIPTION}-DLQ", f"{TOPIC}-{SUBSCRIPTION}-RETRY"
PARTITIONS = 2
UNREADABLE = 50
"""One row in so many cannot be read."""

_PATIENCE_S = 120.0
_LOOK_S, _LOOK_AT_ALL_S = 0.02, 1.0
_MOMENT_MAX_S = 0.3
_JOB = Path(__file__).with_name("pipeline_job.py")

_FILES = {
    "rows are stored": "checkpoint/batches/*/rows-0.stored",
    "the archive is staged": "archive/_staging/*/_stored",
    "the archive is done": "checkpoint/batches/*/archive.done",
    "retries are planned": "checkpoint/retries/*/plan",
    "retries are archived": "checkpoint/retries/*/archive.done",
    "retries are done": "checkpoint/retries/*/committed.done",
}
_TOPICS = {"good rows are sent": OUT, "retries are sent": RETRY, "letters are sent": DEAD}
STEPS = (*_FILES, *_TOPICS)
"""After which the driver is killed."""


class Order(Record):
    id = Long()


class Pipeline:
    """A pipeline that is started again after each kill, and its topics."""

    def __init__(self, broker: KillableBroker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        # A short name, since it becomes part of socket paths.
        self._scratch = tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True)
        self._log = folder / "driver.log"
        self._client = Client(broker.service_url)
        self._tails: dict[str, TopicTail] = {}
        self._killed: list[Driver] = []
        self._driver = self._start()

    def _start(self) -> Driver:
        arguments = [self._broker.http_url, TOPIC, str(self._folder / "checkpoint"), str(self._folder / "archive")]
        return Driver(arguments, Path(self._scratch.name), self._log, _JOB)

    def close(self) -> None:
        self._client.close()
        for driver in (*self._killed, self._driver):
            driver.kill()
        self._scratch.cleanup()

    def kill(self, *, alone: bool) -> None:
        """Alone, its JVM ends by itself while the next driver starts."""
        self._driver.check()
        if alone:
            self._driver.kill_alone()
        else:
            self._driver.kill()
        self._killed.append(self._driver)
        self._driver = self._start()

    @property
    def failures(self) -> list[str]:
        return [failure for driver in (*self._killed, self._driver) for failure in driver.failures]

    # -- progress

    def seen(self, step: str) -> set[str]:
        """What shows that the step was done; it grows each time."""
        if step in _FILES:
            return {str(path) for path in self._folder.glob(_FILES[step])}
        with suppress(ClientError):
            if step not in self._tails:
                self._tails[step] = self._client.tail(f"persistent://public/default/{_TOPICS[step]}")
            return {str(self._tails[step].last())}
        return set()

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """As long as there is progress."""
        seen, looked_s = self._all(), time.monotonic()
        deadline_s = looked_s + _PATIENCE_S
        while not is_so():
            self._driver.check()
            time.sleep(_LOOK_S)
            if (now_s := time.monotonic()) < looked_s + _LOOK_AT_ALL_S:
                continue
            looked_s = now_s
            if (now := self._all()) != seen:
                seen, deadline_s = now, now_s + _PATIENCE_S
            if now_s > deadline_s:
                pytest.fail(f"{what} (seed {_SEED}): no progress; {self.failures}; {self._log.read_text()[-5000:]}")

    def _all(self) -> set[str]:
        return {one for step in STEPS for one in self.seen(step)}

    def is_drained(self) -> bool:
        """Nothing waits, neither in the topic nor, after that, on the ladder."""
        return self._backlog(TOPIC, "partitioned-stats") == 0 and self._backlog(RETRY, "stats") == 0

    def _backlog(self, topic: str, stats: str) -> int:
        url = f"{self._broker.http_url}/admin/v2/persistent/public/default/{topic}/{stats}"
        return int(httpx.get(url).raise_for_status().json()["subscriptions"][SUBSCRIPTION]["msgBacklog"])

    # -- results

    def messages(self, topic: str) -> list[Message]:
        found: list[Message] = []
        with suppress(NotFound), self._client.reader(topic, EARLIEST) as reader:
            while reader.has_next():
                found.append(reader.read(_PATIENCE_S))
        return found

    def archived(self) -> Iterator[tuple[int, str | None]]:
        """The number and the reason of each row."""
        for file in sorted((self._folder / "archive").glob("*.parquet")):
            for row in pq.read_table(file, columns=["__messageProperties", "__reason"]).to_pylist():
                yield int(dict(row["__messageProperties"])["n"]), row["__reason"]


def publish(broker: KillableBroker, numbers: range) -> None:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    batches = {"batching_enabled": True, "batching_max_messages": 20, "block_if_queue_full": True}
    typed = client.create_producer(TOPIC, schema=JsonSchema(Order), **batches)
    plain = client.create_producer(TOPIC, **batches)
    for number in numbers:
        properties = {"n": str(number)}
        if number % UNREADABLE == 1:
            plain.send_async(b"not json", None, properties)
        else:
            typed.send_async(Order(id=number), None, properties)
    typed.flush()
    plain.flush()
    client.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the driver's processes are found in /proc")
@pytest.mark.timeout(300 + 60 * _KILLS)
def test_sp2_sp8_kills_in_the_middle_of_a_pipeline(tmp_path: Path) -> None:
    print(f"MAGNETAR_PIPELINE_SEED={_SEED}")
    moments = random.Random(_SEED)
    broker = KillableBroker(tmp_path / "data", ("brokerDeduplicationEnabled=true", "pipelinesEnabled=false"))
    broker.start()
    try:
        url = f"{broker.http_url}/admin/v2/persistent/public/default/{TOPIC}/partitions"
        httpx.put(url, json=PARTITIONS).raise_for_status()
        part = _ROWS // (_KILLS + 1)
        publish(broker, range(part))
        with closing(Pipeline(broker, tmp_path)) as pipeline:
            for kill, step in enumerate(steps(moments)):
                before = pipeline.seen(step)
                pipeline.wait(f"{step}, before kill {kill}", lambda: not pipeline.seen(step) <= before)  # noqa: B023
                time.sleep(moments.choice((0.0, moments.uniform(0, _MOMENT_MAX_S))))
                pipeline.kill(alone=moments.random() < 0.5)
                # Of these rows comes the next step, whatever was done of the others.
                publish(broker, range(part * (kill + 1), part * (kill + 2) if kill < _KILLS - 1 else _ROWS))
            pipeline.wait("the end", pipeline.is_drained)
            assert pipeline.failures == []
            check(pipeline)
    finally:
        broker.kill()


def steps(moments: random.Random) -> list[str]:
    order = [STEPS[number % len(STEPS)] for number in range(max(_KILLS, len(STEPS)))]
    moments.shuffle(order)
    return order[:_KILLS]


def check(pipeline: Pipeline) -> None:
    out = [int(message.properties["n"]) for message in pipeline.messages(OUT)]
    dead = [int(message.properties["n"]) for message in pipeline.messages(DEAD)]
    check_once("the topics", [*out, *dead], range(_ROWS))
    assert [number for number in out if is_bad(number)] == []
    assert [message.properties["n"] for message in pipeline.messages(OUT) if _has_other_id(message)] == []
    archived = list(pipeline.archived())
    check_once("the archive", [number for number, _ in archived], range(_ROWS))
    assert {number for number, reason in archived if reason is None} == set(out), f"seed {_SEED}"
    retries = pipeline.messages(RETRY)
    attempts = [(int(one.properties["n"]), int(one.properties["RECONSUMETIMES"])) for one in retries]
    assert max(Counter(attempts).values()) == 1, f"seed {_SEED}"
    climbed = {number for number in dead if number % UNREADABLE != 1}
    last = len(DELAYS)
    assert climbed <= {number for number, attempt in attempts if attempt == last}, f"seed {_SEED}"
    # Those of the rule "Later" were bad twice.
    assert {number for number in out if number % 7 == 0} <= {n for n, attempt in attempts if attempt == last}


def is_bad(number: int) -> bool:
    return number % 10 == 0 or number % UNREADABLE == 1


def _has_other_id(message: Message) -> bool:
    return json.loads(message.value or b"")["id"] != int(message.properties["n"])


def check_once(where: str, found: list[int], expected: range) -> None:
    counts = Counter(found)
    twice = sorted(number for number, count in counts.items() if count > 1)
    missing = sorted(set(expected) - set(counts))
    text = f"{where} (seed {_SEED}): {len(twice)} rows more than once {twice[:5]}, {len(missing)} missing {missing[:5]}"
    assert not twice and not missing, text
    assert set(counts) == set(expected)
