"""Two clusters replicate into each other under load while brokers, drivers and workers are killed.

Afterwards both contain every published message, once and in order (GR6). `MAGNETAR_CHAOS_KILLS=60` and
`MAGNETAR_CHAOS_SECONDS=300` extend the run, as `make simulate` does; `MAGNETAR_CHAOS_SEED` repeats an order of kills.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from magnetar.cli.main import main
from tests.spark.killable_driver import LOOK_AGAIN_S, wait_until

from .moving import MovingConsumer
from .publishing import Publisher, parsed
from .replicating import Site, full, partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KILLS = int(os.environ.get("MAGNETAR_CHAOS_KILLS", "8"))
_SECONDS = float(os.environ.get("MAGNETAR_CHAOS_SECONDS", "0"))
_SEED = int(os.environ.get("MAGNETAR_CHAOS_SEED", random.randrange(1_000_000)))

TOPICS = {"orders": 3, "bills": 2, "events": 0, "rare": 0}
"""Topics with their partitions. `rare` has few messages."""
STEADY = "events"
CONSUMED = "orders"
GROWN = "bills"
NEW = "appeared"

_DURING_COPYING = 0.7
_MOMENT_MAX_S = 0.5
_PAUSE_MAX_S = 2.0
_PATIENCE_S = 120.0


class Kind(StrEnum):
    """Something to kill, in either cluster."""

    WORKER = "worker"
    BROKER = "broker"
    DRIVER = "driver"
    JAVA = "JVM"
    STALL = "stalled driver"


_OFTEN = (
    *(Kind.WORKER, Kind.BROKER, Kind.DRIVER, Kind.WORKER, Kind.BROKER, Kind.WORKER, Kind.BROKER, Kind.WORKER),
    *(Kind.JAVA, Kind.DRIVER, Kind.BROKER, Kind.STALL),
)


def kills(moments: random.Random) -> list[Kind]:
    order = [_OFTEN[index % len(_OFTEN)] for index in range(_KILLS)]
    moments.shuffle(order)
    return order


class World:
    """Both clusters, and their publishers."""

    def __init__(self, folder: Path, scratch: Path, moments: random.Random, stack: contextlib.ExitStack) -> None:
        self.moments = moments
        self.killed: Counter[Kind] = Counter()
        self.sites: list[Site] = []
        for name, starts_pipelines in (("a", True), ("b", False)):
            site = Site(name, folder, scratch, starts_pipelines=starts_pipelines)
            stack.callback(site.close)
            self.sites.append(site)
        a, b = self.sites
        a.replicate_to(b)
        b.replicate_to(a)
        self.partitions = dict(TOPICS)
        for topic, partitions in TOPICS.items():
            a.create(topic, partitions)
            wait_until(f"{topic} exists in b", lambda topic=topic: full_names(topic, self.partitions)[0] in b.status())  # type: ignore[misc]
        b.start_pipelines()
        self._log = folder / "client.log"
        clients = [stack.enter_context(self.connected(site)) for site in self.sites]
        self.publishers = [self._publisher(*pair, stack) for pair in zip(self.sites, clients, strict=True)]
        self.consumer = MovingConsumer(clients, full(CONSUMED), random.Random(moments.random()))
        stack.callback(self.consumer.abandon)
        self.consumer.start()

    def _publisher(self, site: Site, client: pulsar.Client, stack: contextlib.ExitStack) -> Publisher:
        publisher = Publisher(site.name, client, random.Random(self.moments.random()))
        stack.callback(publisher.abandon)
        for topic, partitions in TOPICS.items():
            # The official client finds a new partition after a minute and would lose messages: it numbers its first
            # messages twice, before and after opening the producer.
            names = [partition(topic, index) for index in range(partitions)] if topic == GROWN else [topic]
            for name in names:
                publisher.add(name, full(name), seldom=topic == "rare")
        publisher.start()
        return publisher

    @contextlib.contextmanager
    def connected(self, site: Site) -> Iterator[pulsar.Client]:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log))
        client = pulsar.Client(site.broker.service_url, logger=logger)
        with closing(client):
            yield client

    @property
    def topics(self) -> list[str]:
        """Topics and partitions, by the names clients use."""
        return [name for topic in self.partitions for name in full_names(topic, self.partitions)]

    # -- the run

    def copy_and_kill(self, order: list[Kind]) -> None:
        for site in self.sites:
            self._wait_for_copying(site)
        began_s = time.monotonic()
        while (done := self.killed.total()) < len(order) or time.monotonic() - began_s < _SECONDS:
            if done == len(order) // 2:
                self._change_topics()
            if self.moments.random() < _DURING_COPYING:
                self._wait_for_copying(*self.sites)
                time.sleep(self.moments.uniform(0, _MOMENT_MAX_S))
            else:
                time.sleep(self.moments.uniform(0, _PAUSE_MAX_S))
            self._kill(order[done % len(order)])

    def _kill(self, kind: Kind) -> None:
        sites = [site for site in self.sites if kind is not Kind.WORKER or site.has_workers] or self.sites
        site = self.moments.choice(sites)
        act = {
            Kind.WORKER: site.kill_worker,
            Kind.BROKER: site.kill_broker,
            Kind.DRIVER: site.kill_driver,
            Kind.JAVA: site.kill_java,
            Kind.STALL: lambda moments: site.stall_driver(moments, lambda: self._take_over(site)),
        }[kind]
        print(f"{time.strftime('%H:%M:%S')} {kind} of {site.name}", flush=True)
        act(self.moments)
        self.killed[kind] += 1

    def _take_over(self, site: Site) -> None:
        """Waits until both brokers have dropped the connections of a suspended driver, so that another may copy."""
        for each in self.sites:
            each.kill_broker(self.moments)
        self._wait_for_copying(site)

    def _wait_for_copying(self, *sites: Site) -> None:
        """Waits until one of the topics makes progress."""
        before = [self._copied(site) for site in sites]
        names = " or ".join(site.name for site in sites)
        wait_until(f"one of {names} makes progress", lambda: [self._copied(site) for site in sites] != before)

    def _copied(self, site: Site) -> str:
        return site.copied(STEADY, next(other for other in self.sites if other is not site))

    def _change_topics(self) -> None:
        """Adds a partition to a topic, and creates a topic."""
        grower, other = self.moments.sample([0, 1], 2)
        count = TOPICS[GROWN] + 1
        self.sites[grower].grow(GROWN, count)
        self.partitions[GROWN] = count
        added = partition(GROWN, count - 1)
        self.publishers[grower].add(added, full(added))
        self.publishers[other].add(NEW, full(NEW))
        self.partitions[NEW] = 0

    # -- the end

    def wait_until_all_is_copied(self) -> None:
        """Waits as long as there is progress."""
        expected = set(self.topics)
        least, deadline_s = -1, 0.0
        while True:
            rows = [row for site in self.sites for row in self._rows(site, expected)]
            left = len(self.sites) * len(expected) - len(rows) + sum(row["backlog"] for row in rows)
            is_over = left == 0 and all(row["state"] == "running" for row in rows)
            if is_over:
                return
            if least < 0 or left < least:
                least, deadline_s = left, time.monotonic() + _PATIENCE_S
            if time.monotonic() > deadline_s:
                stuck = [row for row in rows if row["backlog"] or row["state"] != "running"]
                missing = [sorted(expected - site.status().keys()) for site in self.sites]
                pytest.fail(f"{left} messages were not copied (seed {_SEED}); not replicated {missing}; {stuck}")
            time.sleep(LOOK_AGAIN_S)

    def _rows(self, site: Site, expected: set[str]) -> list[dict[str, Any]]:
        return [row for topic, row in site.status().items() if topic in expected]


def full_names(topic: str, partitions: dict[str, int]) -> list[str]:
    count = partitions[topic]
    return [full(partition(topic, index)) for index in range(count)] if count else [full(topic)]


# -- afterwards


Stored = dict[str, dict[str, list[int]]]
"""Message numbers by topic or partition and by producer, in the order of the topic."""


def read_all(client: pulsar.Client, topics: list[str]) -> Stored:
    stored: Stored = {}
    for topic in topics:
        found = stored[topic] = {}
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
        while reader.has_message_available():
            name, number = parsed(reader.read_next(30_000).data())
            found.setdefault(name, []).append(number)
        reader.close()
    return stored


def check(cluster: str, stored: Stored, sent: dict[str, int]) -> None:
    """Every message exists once, in order for each producer of a partition."""
    for topic, by_producer in stored.items():
        for name, numbers in by_producer.items():
            twice = [number for number, count in Counter(numbers).items() if count > 1]
            assert not twice, f"{topic} in {cluster} has duplicate messages of {name}: {twice[:10]} (seed {_SEED})"
            late = [one for one, other in pairwise(numbers) if one > other]
            assert not late, f"{topic} in {cluster} has messages of {name} out of order: {late[:10]} (seed {_SEED})"
    for name, count in sent.items():
        numbers = sorted(number for by_producer in stored.values() for number in by_producer.get(name, []))
        if numbers != list(range(count)):
            lost = sorted(set(range(count)) - set(numbers))
            strange = sorted(set(numbers) - set(range(count)))
            pytest.fail(f"{cluster} lost {len(lost)} of {name}: {lost[:10]}, strange {strange[:10]} (seed {_SEED})")


def check_consumed(consumer: MovingConsumer, sent: dict[str, int]) -> int:
    """The consumer received everything, in whichever cluster (GR9); returns the number of duplicates."""
    received = {parsed(content) for content in consumer.received}
    published = {(name, number) for name, count in sent.items() if f" {CONSUMED} " in name for number in range(count)}
    missed = sorted(published - received)
    assert not missed, f"the moving consumer missed {len(missed)} messages: {missed[:10]} (seed {_SEED})"
    return consumer.received.total() - len(received)


def remarkable(compared: dict[str, Any]) -> dict[str, Any]:
    """Everything reported for a topic except sizes, if a problem is reported."""
    said = {kind: value for kind, value in compared.items() if value and value != {"entries": 0, "ranges": []}}
    is_well = said.keys() <= {"topic", "target", "originals", "copies"} and compared["originals"] == compared["copies"]
    return {} if is_well else said


def verify(source: Site, remote: Site) -> int:
    """Runs verify and returns the number of compared entries."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["replication", "verify", source.broker.http_url, remote.broker.http_url, "--json"])
    found = json.loads(out.getvalue())
    remarks = {one["topic"]: said for one in found["topics"] if (said := remarkable(one))}
    assert (code, remarks) == (0, {}), f"{source.name} and its copies in {remote.name} (seed {_SEED})"
    return sum(one["originals"] for one in found["topics"])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.timeout(400 + 60 * _KILLS + _SECONDS)
def test_gr6_both_clusters_have_everything_once_after_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    moments = random.Random(_SEED)
    order = kills(moments)
    print(f"seed {_SEED}")
    # A short name, since it becomes part of socket paths.
    scratch = tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True)
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(scratch)
        world = World(tmp_path, Path(scratch.name), moments, stack)
        world.copy_and_kill(order)
        world.consumer.end()  # before the load ends, so that messages are left for the other cluster
        sent = {name: count for publisher in world.publishers for name, count in publisher.end().items()}
        world.wait_until_all_is_copied()
        quiet_s = time.monotonic()
        a, b = world.sites
        spark: SparkSession = request.getfixturevalue("spark")
        assert spark is not None, "verify runs in it"
        entries = verify(a, b) + verify(b, a)
        everywhere = []
        for site in world.sites:
            with world.connected(site) as client:
                everywhere.append(read_all(client, world.topics))
            check(site.name, everywhere[-1], sent)
        assert everywhere[0] == everywhere[1], f"partitions differ (seed {_SEED})"
        world.consumer.drain()
        twice = check_consumed(world.consumer, sent)
        for site in world.sites:
            faults = re.findall(r'please report.*|File "[^"]*/magnetar/[^"]*", line .*', site.log)
            assert faults == [], f"{site.log} (seed {_SEED})"
    killed = ", ".join(f"{count} x {kind}" for kind, count in sorted(world.killed.items()))
    consumer, took_s = world.consumer, time.monotonic() - began_s
    print(
        f"{world.killed.total()} kills ({killed}; seed {_SEED}) in {quiet_s - began_s:.0f} s; {sum(sent.values())}"
        f" messages in {entries} entries, each once and in order in both clusters; a consumer that moved"
        f" {consumer.moves} times received all, {twice} of {consumer.received.total()} again; {took_s:.0f} s in all"
    )
