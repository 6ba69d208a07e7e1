"""Rows for geo-replication between two brokers of the same kind: throughput, latency, and cost while idle.

A measurement takes two running brokers, the first of which replicates a namespace to the second, with all processes
they start for it. Does not know which brokers they are.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pulsar  # type: ignore[import-untyped]
from contestant import Contestant, RequestFailed, Running
from measurement import (
    OUTSTANDING_BATCHED,
    OUTSTANDING_UNBATCHED,
    PRODUCE,
    Effort,
    Sample,
    Values,
    rate_between,
    subscribe,
)
from perf import Perf, PerfFailed
from process import starts
from program import ProgramFailed, outcome_of
from spark_rows import cpu_percent, percentile

TENANT, NAMESPACE = "public", "public/geo"
SOURCE, TARGET = "here", "there"
RATE = 1000.0

_LOOK_S = 0.1
_SOON_S = 0.01
_PATIENCE_S = 180.0
_RATE_MIN = 2000  # messages per second; slower counts as a failure
_WARM_MESSAGES = 20_000
_REQUESTS_AT_A_TIME = 8


class ReplicationFailed(Exception):
    """A message did not arrive."""


@dataclass(frozen=True, slots=True)
class Pair:
    source: Running
    target: Running
    folder: Path
    enabled_s: float  # when replication was enabled, by the clock since boot

    def topic(self, name: str) -> str:
        return f"persistent://{NAMESPACE}/bench-{name}"

    def make(self, topic: str) -> None:
        self.source.put(_path(topic), None)

    def arrived(self, topic: str) -> int:
        """Number of messages of a topic stored by the remote broker."""
        try:
            return int(self.target.get(f"{_path(topic)}/stats")["msgInCounter"])
        except RequestFailed:
            return 0  # the topic does not exist yet

    def wait_for(self, topic: str, messages: int, look_s: float = _LOOK_S) -> list[Sample]:
        """Waits for `messages` arrivals and returns all samples."""
        samples: list[Sample] = []
        until = time.monotonic() + _PATIENCE_S + messages / _RATE_MIN
        while not samples or samples[-1].messages < messages:
            if time.monotonic() > until:
                raise ReplicationFailed(f"{samples[-1].messages:,} of {messages:,} messages of {topic} arrived in time")
            before = time.monotonic()
            count = self.arrived(topic)
            samples.append(Sample((before + time.monotonic()) / 2, count))
            time.sleep(look_s)
        return samples


@contextlib.contextmanager
def linked(contestant: Contestant) -> Iterator[Pair]:
    """Two brokers, the first replicating a namespace to the second."""
    here, there = contestant.twin(SOURCE), contestant.twin(TARGET)
    with here.started() as source, there.started() as target:
        clusters = {SOURCE: source, TARGET: target}
        for own, other in ((SOURCE, TARGET), (TARGET, SOURCE)):
            broker, remote = clusters[own], clusters[other]
            urls = {"serviceUrl": remote.http_url, "brokerServiceUrl": remote.service_url}
            broker.put(f"/admin/v2/clusters/{other}", urls)
            broker.post(f"/admin/v2/tenants/{TENANT}", {"adminRoles": [], "allowedClusters": [SOURCE, TARGET]})
            broker.put(f"/admin/v2/namespaces/{NAMESPACE}", {"replication_clusters": [own]})
        enabled_s = _since_boot_s()
        source.post(f"/admin/v2/namespaces/{NAMESPACE}/replication", [SOURCE, TARGET])
        yield Pair(source, target, contestant.folder.parent / "replication", enabled_s)
    here.discard_data()
    there.discard_data()


def cold(pair: Pair, perf: Perf, effort: Effort) -> Values:
    """The first message of two new clusters, from the moment when replication is enabled; then the memory of the
    replicating one. It has to be the first row."""
    client = pulsar.Client(pair.source.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with contextlib.closing(client):
        _first_arrival_s(pair, client, pair.topic("cold"))
        took_s = _since_boot_s() - pair.enabled_s
    print(f"  {_parts(pair, took_s)}", flush=True)
    time.sleep(effort.settle_s)
    return {
        "geo-cold": took_s,
        "geo-memory": pair.source.memory_mb(),
        "geo-memory-rss": pair.source.memory_mb("Rss"),
    }


def _parts(pair: Pair, took_s: float) -> str:
    """When the processes of a pipeline started. Their order is that of the start: a worker is started for the first
    job, once Spark is up."""
    words = {"pipelines process": "-m magnetar.pipelines ", "JVM": "SparkSubmit", "first worker": "worker_daemon"}
    started = starts(pair.source.process.pid)
    parts = {
        name: min(
            at_s for command, at_s in started.items() if word in command and (name == "JVM" or "java" not in command)
        )
        for name, word in words.items()
        if any(word in command for command in started)
    }
    shown = [f"{name} after {at_s - pair.enabled_s:.2f} s" for name, at_s in parts.items()]
    return ", ".join([*shown, f"first message after {took_s:.2f} s"])


def _since_boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def throughput(pair: Pair, perf: Perf, effort: Effort) -> Values:
    """pulsar-perf publishes as fast as it can; the rate is that of arrivals after the first quarter."""
    kinds: dict[str, tuple[int, tuple[str, ...]]] = {
        "geo-batched": (effort.geo_batched, OUTSTANDING_BATCHED),
        "geo-unbatched": (effort.geo_unbatched, (*OUTSTANDING_UNBATCHED, "-db")),
    }
    return {key: _rate(pair, perf, key, messages, words) for key, (messages, words) in kinds.items()}


def _rate(pair: Pair, perf: Perf, key: str, messages: int, words: Sequence[str]) -> float:
    topic = pair.topic(key)
    pair.make(topic)
    perf.produce(pair.source, topic, *PRODUCE, *words, "-m", str(_WARM_MESSAGES), limit_s=_PATIENCE_S)
    warm = _published(pair, topic)
    pair.wait_for(topic, warm)
    subscribe(pair.target, topic)  # retains what arrives
    with ThreadPoolExecutor(1) as threads:
        limit_s = messages / _RATE_MIN
        publishing = threads.submit(
            perf.produce, pair.source, topic, *PRODUCE, *words, "-m", str(messages), limit_s=limit_s
        )
        samples = pair.wait_for(topic, warm + messages)
        publishing.result()
    return rate_between([Sample(each.at_s, each.messages - warm) for each in samples], messages)


def _published(pair: Pair, topic: str) -> int:
    return int(pair.source.get(f"{_path(topic)}/stats")["msgInCounter"])


def latency(pair: Pair, perf: Perf, effort: Effort) -> Values:
    """Latency from before the send to the arrival at a consumer of the other broker."""
    topic = pair.topic("latency")
    pair.make(topic)
    messages, skipped = round(RATE * effort.latency_s), round(RATE * effort.latency_warmup_s)
    words = ("time-arrivals", pair.source.service_url, topic, topic, RATE, messages, pair.target.service_url)
    found = outcome_of("official_client", *words, folder=pair.folder, limit_s=_PATIENCE_S + messages / RATE)
    latencies = found["latencies_ms"][skipped:]
    return {"geo-latency-p50": percentile(latencies, 50), "geo-latency-p99": percentile(latencies, 99)}


def new_topics(pair: Pair, perf: Perf, effort: Effort) -> Values:
    """Creates a topic, sends a message and times its arrival in the other cluster."""
    client = pulsar.Client(pair.source.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with contextlib.closing(client):
        times_s = [_first_arrival_s(pair, client, pair.topic(f"new-{number}")) for number in range(effort.geo_new)]
    return {"geo-new-topic": median(times_s), "geo-new-topic-longest": max(times_s)}


def _first_arrival_s(pair: Pair, client: pulsar.Client, topic: str) -> float:
    began = time.monotonic()
    pair.make(topic)
    producer = client.create_producer(topic)
    producer.send(b"first")
    took_s = pair.wait_for(topic, 1, _SOON_S)[-1].at_s - began
    producer.close()
    return took_s


def idle(pair: Pair, perf: Perf, effort: Effort) -> Values:
    """Cost of many idle topics: both brokers, and every process they started to replicate."""
    topics = [pair.topic(f"idle-{number}") for number in range(effort.geo_topics)]
    with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as threads:
        list(threads.map(pair.make, topics))
    client = pulsar.Client(pair.source.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with contextlib.closing(client):
        for topic in topics:  # each topic is used once, so that its replicator is running
            producer = client.create_producer(topic)
            producer.send(b"once")
            producer.close()
    for topic in topics:
        pair.wait_for(topic, 1)
    time.sleep(effort.settle_s)
    pids = [broker.process.pid for broker in (pair.source, pair.target)]
    used = sum(cpu_percent(pids, effort.geo_idle_s))
    return {"geo-idle-cpu": used, "geo-idle-memory": pair.source.memory_mb() + pair.target.memory_mb()}


Measure = Callable[[Pair, Perf, Effort], Values]

BETWEEN_TWO: dict[str, Measure] = {
    "geo-cold": cold,
    "geo-latency": latency,
    "geo-new-topic": new_topics,
    "geo-throughput": throughput,
    "geo-idle": idle,
}

WITH_PERF = frozenset(("geo-throughput",))

FAILURES = (ReplicationFailed, PerfFailed, RequestFailed, ProgramFailed, pulsar.PulsarException)


def measure_pair(
    contestant: Contestant,
    perf: Perf,
    effort: Effort,
    rows: Iterable[str],
    log: Callable[[str], None],
    fail: Callable[[str], None],
) -> Values:
    """Runs the selected rows on two freshly started brokers. A failed row is reported and left out."""
    values: Values = {}
    with linked(contestant) as pair:
        for row in rows:
            try:
                found = BETWEEN_TWO[row](pair, perf, effort)
            except FAILURES as error:
                fail(f"{contestant.name}, {row}: {error or type(error).__name__}")
                continue
            values |= found
            log(f"{contestant.name}: {', '.join(f'{key} {value:,.2f}' for key, value in found.items())}")
    return values


def _path(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"
