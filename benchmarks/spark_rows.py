"""What is measured of topics in Spark, on Magnetar alone: reading, writing, and a query from topic to topic.

Spark and what it is compared with, the official Python client and pulsar-perf, take turns on one broker. Each is a
process of its own. Does not know how the values are judged.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence

from contestant import Contestant, Running
from java import find_java
from measurement import (
    CONSUME_RATE_MIN,
    OUTSTANDING_BATCHED,
    PRODUCE_RATE,
    SUBSCRIPTION,
    Sample,
    rate_between,
    subscribe,
    topic,
)
from perf import Perf, PerfFailed
from process import CpuMeter
from program import Answer, Program, ProgramFailed, outcome_of, started
from scale import Say, Scale, Values

KB, SMALL = 1024, 100
RATE = 20.0  # messages per second through a query
PARTITIONS = 2

_NAMESPACE = "/admin/v2/namespaces/public/default"
_WARM_MESSAGES = 10_000
_WRITE_RATE_MIN = 2_000  # slower is a failure
_LIMIT_S = 180.0  # for what takes no longer the more there is: the start of Spark, the first batch of a query
_LOOK_S = 0.1
_CPU_LOOK_S = 0.5


class SparkFailed(Exception):
    """Rows or messages are missing, or there are too many."""


def spark_read(contestant: Contestant, scale: Scale, say: Say) -> Values:
    """Backlogs of 1 KB and 100 B in batches: by our source, by the Python client, and that of 1 KB by pulsar-perf."""
    sizes = {KB: scale.spark.read_1kb, SMALL: scale.spark.read_100b}
    keys = {KB: "spark-read-1kb", SMALL: "spark-read-100b"}
    topics = {size: topic(f"read-{size}") for size in sizes}
    values: Values = {}
    with contestant.started() as broker:
        side = _Side(contestant, broker)
        warm = topic("read-warm")
        side.make_topic(warm)
        subscribe(broker, warm)
        side.official("send-async", warm, _WARM_MESSAGES, KB, limit_s=_LIMIT_S)
        stored = {size: side.publish(topics[size], count, size) for size, count in sizes.items()}
        for size, count in stored.items():
            say(f"{count:,} messages of {size} B are in {side.entries(topics[size]):,} entries")
        time.sleep(scale.settle_s)  # storage rewrites what just came
        limit_s = _LIMIT_S + sum(stored.values()) / CONSUME_RATE_MIN
        words = ("read", broker.service_url, warm, warm, *topics.values())
        with started("spark_job", *words, folder=side.folder) as job:
            say(f"a job that reads {_WARM_MESSAGES:,} messages takes {job.answer(_LIMIT_S)['seconds']:.2f} s")
            for size, count in stored.items():
                found = job.answer(limit_s)
                if found["messages"] != count:
                    raise SparkFailed(f"Spark read {found['messages']:,} of {count:,} messages of {size} B")
                values[keys[size]] = count / found["seconds"]
            job.end()
        for size, count in stored.items():
            wanted = min(count, scale.spark.client_messages)
            found = side.official("read", topics[size], wanted, limit_s=limit_s)
            values[f"{keys[size]}-client"] = found["messages"] / found["seconds"]
        values[f"{keys[KB]}-perf"] = side.consume(topics[KB], stored[KB])
    _say_all(say, values, "msg/s")
    return values


def spark_write(contestant: Contestant, scale: Scale, say: Say) -> Values:
    """Rows of 1 KB that Spark makes, by our sink; and payloads like them, by `send` and `send_async` of the client."""
    rows, asynchronous = scale.spark.written, scale.spark.sent_async
    target, warm, one_by_one, in_batches = (topic(f"write-{name}") for name in ("spark", "warm", "send", "async"))
    with contestant.started() as broker:
        side = _Side(contestant, broker)
        for name in (target, warm, one_by_one, in_batches):
            side.make_topic(name)
        limit_s = _LIMIT_S + rows / _WRITE_RATE_MIN
        words = ("write", broker.service_url, target, warm, rows, KB)
        with started("spark_job", *words, folder=side.folder) as job:
            took = job.answer(limit_s)
            job.end()
        if (stored := side.stats(target)["msgInCounter"]) != rows:
            raise SparkFailed(f"Spark wrote {rows:,} rows, and {stored:,} messages were stored")
        found = side.official("send", one_by_one, rows, KB, scale.spark.send_s, limit_s=_LIMIT_S + scale.spark.send_s)
        batched = side.official("send-async", in_batches, asynchronous, KB, limit_s=limit_s)
    values = {
        "spark-write": rows / took["writing_s"],
        "spark-write-made": rows / took["making_s"],
        "spark-write-send": found["messages"] / found["seconds"],
        "spark-write-async": batched["messages"] / batched["seconds"],
    }
    _say_all(say, values, "msg/s")
    return values


def spark_latency(contestant: Contestant, scale: Scale, say: Say) -> Values:
    """Through a running query that writes exactly once: with our settings and with Spark's own."""
    values: Values = {}
    skipped = round(RATE * scale.spark.latency_warmup_s)
    count = skipped + round(RATE * scale.spark.latency_s)
    with contestant.started() as broker:
        side = _Side(contestant, broker)
        for settings in ("ours", "spark"):
            key = f"spark-latency-{settings}"
            with side.relay(key, settings) as (source, target, _):
                words = ("time-arrivals", source, target, RATE, count, broker.service_url)
                found = side.official(*words, limit_s=_LIMIT_S + count / RATE)
            latencies = found["latencies_ms"][skipped:]
            values[f"{key}-p50"] = percentile(latencies, 50)
            values[f"{key}-p99"] = percentile(latencies, 99)
    _say_all(say, values, "ms")
    return values


def spark_idle(contestant: Contestant, scale: Scale, say: Say) -> Values:
    """CPU of a query through which messages went and no longer go: driver, JVM, Python processes, and the broker."""
    values: Values = {}
    with contestant.started() as broker:
        side = _Side(contestant, broker)
        for settings in ("ours", "spark"):
            key = f"spark-idle-{settings}"
            with side.relay(key, settings) as (source, target, program):
                messages = round(RATE * scale.spark.idle_used_s)
                words = ("time-arrivals", source, target, RATE, messages, broker.service_url)
                side.official(*words, limit_s=_LIMIT_S + messages / RATE)
                time.sleep(scale.spark.idle_settle_s)
                of_query, of_broker = cpu_percent((program.pid, broker.process.pid), scale.spark.idle_s)
            say(f"{key}: the query {of_query:.2f} %, the broker {of_broker:.2f} % of a core")
            values[key] = of_query + of_broker
    return values


def cpu_percent(pids: Sequence[int], seconds: float) -> list[float]:
    """How much of one core each process used, with all it started, over so many seconds from now."""
    began, meters = time.monotonic(), [CpuMeter(pid) for pid in pids]
    while time.monotonic() - began < seconds:
        time.sleep(_CPU_LOOK_S)
        for meter in meters:
            meter.look()
    took = time.monotonic() - began
    return [100 * meter.used_s / took for meter in meters]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent of them do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _say_all(say: Say, values: Values, unit: str) -> None:
    say(f"{', '.join(f'{key} {value:,.0f}' for key, value in values.items())} {unit}")


class _Side:
    """All that is done with one broker. Logs are beside its folder, which is cleared when the next one starts."""

    def __init__(self, contestant: Contestant, broker: Running) -> None:
        self.folder = contestant.folder.parent / "spark"
        self._checkpoints = contestant.folder / "checkpoints"
        self._broker = broker
        self._perf = Perf(find_java, self.folder / "perf")

    def make_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        path = f"/admin/v2/{_path(name)}"
        if partitions:
            self._broker.put(f"{path}/partitions", partitions)
        else:
            self._broker.put(path, None)

    def publish(self, name: str, count: int, size: int) -> int:
        """A backlog in batches, kept for a subscription. Returns how large it is: pulsar-perf ends a little later."""
        self.make_topic(name)
        subscribe(self._broker, name)
        words = ("-s", str(size), *PRODUCE_RATE, *OUTSTANDING_BATCHED, "-m", str(count))
        self._perf.produce(self._broker, name, *words, limit_s=count / CONSUME_RATE_MIN)
        stored = int(self.stats(name)["msgInCounter"])
        if stored < count:
            raise PerfFailed(f"pulsar-perf was asked for {count:,} messages, and {stored:,} were stored")
        return stored

    def entries(self, name: str) -> int:
        found = self._broker.get(f"/admin/v2/{_path(name)}/partitioned-internalStats")
        return sum(int(each["numberOfEntries"]) for each in found["partitions"].values())

    def stats(self, name: str) -> Answer:
        return self._broker.get(f"/admin/v2/{_path(name)}/partitioned-stats")

    def consume(self, name: str, backlog: int) -> float:
        """Messages per second by pulsar-perf, as in the row `consume`, but looked at more often: it takes seconds."""
        samples = [Sample(time.monotonic(), -1)]

        def all_delivered() -> bool:
            """Looks as long as more come, so that the end is not missed."""
            while (newest := self._delivered(name)).messages > samples[-1].messages:
                samples.append(newest)
                if newest.messages >= backlog:
                    return True
                time.sleep(_LOOK_S)
            return False

        limit_s = backlog / CONSUME_RATE_MIN
        words = ("-ss", SUBSCRIPTION, "-sp", "Earliest")
        figures = self._perf.consume(self._broker, name, *words, limit_s=limit_s, enough=all_delivered)
        if figures.messages < 0.99 * backlog:
            raise PerfFailed(f"pulsar-perf received {figures.messages:,} of {backlog:,} messages that were delivered")
        return rate_between(samples, backlog)

    def _delivered(self, name: str) -> Sample:
        before = time.monotonic()
        count = self.stats(name)["subscriptions"][SUBSCRIPTION]["msgOutCounter"]
        return Sample((before + time.monotonic()) / 2, int(count))

    def official(self, load: str, *words: object, limit_s: float) -> Answer:
        """What a load of the official Python client says."""
        return outcome_of(
            "official_client", load, self._broker.service_url, *words, folder=self.folder, limit_s=limit_s
        )

    @contextlib.contextmanager
    def relay(self, name: str, settings: str) -> Iterator[tuple[str, str, Program]]:
        """A running query between two topics, of which the second deduplicates."""
        source, target = topic(f"{name}-source"), topic(f"{name}-target")
        self._broker.post(f"{_NAMESPACE}/deduplication", True)
        for each in (source, target):
            self.make_topic(each, partitions=0)
        words = ("relay", self._broker.service_url, source, target, self._checkpoints / name)
        words += ("--settings", settings)
        with started("spark_job", *words, folder=self.folder) as program:
            program.answer(_LIMIT_S)
            try:
                yield source, target, program
            except ProgramFailed:
                program.check_runs()  # if the query failed, that is why
                raise
            program.end()


def _path(name: str) -> str:
    return name.replace("://", "/")
