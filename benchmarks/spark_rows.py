"""Rows for topics in Spark, on Magnetar alone: reading, writing, and a query from topic to topic.

Spark and its baselines, the official Python client and pulsar-perf, take turns on one broker, each in its own process.
Does not know how the values are judged.
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
from scale import Log, Scale, Values

KB, SMALL = 1024, 100
RATE = 20.0  # messages per second through a query
PARTITIONS = 2

_NAMESPACE = "/admin/v2/namespaces/public/default"
_WARM_MESSAGES = 10_000
_WRITE_RATE_MIN = 2_000  # slower counts as a failure
_LIMIT_S = 180.0  # for constant costs: the start of Spark, the first batch of a query
_LOOK_S = 0.1
_CPU_LOOK_S = 0.5


class SparkFailed(Exception):
    """Rows or messages are missing or duplicated."""


def spark_read(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Reads backlogs of 1 KB and 100 B in batches: with our source, the Python client, and for 1 KB pulsar-perf."""
    sizes = {KB: scale.spark.read_1kb, SMALL: scale.spark.read_100b}
    keys = {KB: "spark-read-1kb", SMALL: "spark-read-100b"}
    topics = {size: topic(f"read-{size}") for size in sizes}
    values: Values = {}
    with contestant.started() as broker:
        side = _BrokerRows(contestant, broker)
        warm = topic("read-warm")
        side.make_topic(warm)
        subscribe(broker, warm)
        side.official("send-async", warm, _WARM_MESSAGES, KB, limit_s=_LIMIT_S)
        stored = {size: side.publish(topics[size], count, size) for size, count in sizes.items()}
        for size, count in stored.items():
            log(f"{count:,} messages of {size} B are in {side.entries(topics[size]):,} entries")
        time.sleep(scale.settle_s)  # storage compacts new data
        limit_s = _LIMIT_S + sum(stored.values()) / CONSUME_RATE_MIN
        words = ("read", broker.service_url, warm, warm, *topics.values())
        with started("spark_job", *words, folder=side.folder) as job:
            log(f"a job that reads {_WARM_MESSAGES:,} messages takes {job.answer(_LIMIT_S)['seconds']:.2f} s")
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
    _log_all(log, values, "msg/s")
    return values


def spark_write(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Writes 1 KB rows with our sink, and equal payloads with the client's `send` and `send_async`."""
    rows, asynchronous = scale.spark.written, scale.spark.sent_async
    target, warm, one_by_one, in_batches = (topic(f"write-{name}") for name in ("spark", "warm", "send", "async"))
    with contestant.started() as broker:
        side = _BrokerRows(contestant, broker)
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
    _log_all(log, values, "msg/s")
    return values


def spark_latency(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Latency through a running exactly-once query: with our settings and with Spark's."""
    values: Values = {}
    skipped = round(RATE * scale.spark.latency_warmup_s)
    count = skipped + round(RATE * scale.spark.latency_s)
    with contestant.started() as broker:
        side = _BrokerRows(contestant, broker)
        for settings in ("ours", "spark"):
            key = f"spark-latency-{settings}"
            with side.relay(key, settings) as (source, target, _):
                words = ("time-arrivals", source, target, RATE, count, broker.service_url)
                found = side.official(*words, limit_s=_LIMIT_S + count / RATE)
            latencies = found["latencies_ms"][skipped:]
            values[f"{key}-p50"] = percentile(latencies, 50)
            values[f"{key}-p99"] = percentile(latencies, 99)
    _log_all(log, values, "ms")
    return values


def spark_idle(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """CPU of an idle query after a load: driver, JVM, Python processes, and the broker."""
    values: Values = {}
    with contestant.started() as broker:
        side = _BrokerRows(contestant, broker)
        for settings in ("ours", "spark"):
            key = f"spark-idle-{settings}"
            with side.relay(key, settings) as (source, target, program):
                messages = round(RATE * scale.spark.idle_used_s)
                words = ("time-arrivals", source, target, RATE, messages, broker.service_url)
                side.official(*words, limit_s=_LIMIT_S + messages / RATE)
                time.sleep(scale.spark.idle_settle_s)
                of_query, of_broker = cpu_percent((program.pid, broker.process.pid), scale.spark.idle_s)
            log(f"{key}: the query {of_query:.2f} %, the broker {of_broker:.2f} % of a core")
            values[key] = of_query + of_broker
    return values


def cpu_percent(pids: Sequence[int], seconds: float) -> list[float]:
    """Percentage of one core that each process used, with its descendants, over the next `seconds`."""
    began, meters = time.monotonic(), [CpuMeter(pid) for pid in pids]
    while time.monotonic() - began < seconds:
        time.sleep(_CPU_LOOK_S)
        for meter in meters:
            meter.look()
    took = time.monotonic() - began
    return [100 * meter.used_s / took for meter in meters]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _log_all(log: Log, values: Values, unit: str) -> None:
    log(f"{', '.join(f'{key} {value:,.0f}' for key, value in values.items())} {unit}")


class _BrokerRows:
    """Operations on one broker. Logs are next to its folder, which is cleared when the next broker starts."""

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
        """Publishes a backlog in batches, kept by a subscription. Returns its size: pulsar-perf stops a little late."""
        self.make_topic(name)
        subscribe(self._broker, name)
        words = ("-s", str(size), *PRODUCE_RATE, *OUTSTANDING_BATCHED, "-m", str(count))
        self._perf.produce(self._broker, name, *words, limit_s=count / CONSUME_RATE_MIN)
        stored = int(self.stats(name)["msgInCounter"])
        if stored < count:
            raise PerfFailed(f"pulsar-perf should publish {count:,} messages, and {stored:,} were stored")
        return stored

    def entries(self, name: str) -> int:
        found = self._broker.get(f"/admin/v2/{_path(name)}/partitioned-internalStats")
        return sum(int(each["numberOfEntries"]) for each in found["partitions"].values())

    def stats(self, name: str) -> Answer:
        return self._broker.get(f"/admin/v2/{_path(name)}/partitioned-stats")

    def consume(self, name: str, backlog: int) -> float:
        """Messages per second by pulsar-perf, sampled more often than in the row `consume`: it takes seconds."""
        samples = [Sample(time.monotonic(), -1)]

        def all_delivered() -> bool:
            """Samples while messages arrive, so that the end is not missed."""
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
        """Result of a load with the official Python client."""
        return outcome_of(
            "official_client", load, self._broker.service_url, *words, folder=self.folder, limit_s=limit_s
        )

    @contextlib.contextmanager
    def relay(self, name: str, settings: str) -> Iterator[tuple[str, str, Program]]:
        """A running query between two topics; the second has deduplication enabled."""
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
                program.check_runs()  # if the query failed, this raises its error
                raise
            program.end()


def _path(name: str) -> str:
    return name.replace("://", "/")
