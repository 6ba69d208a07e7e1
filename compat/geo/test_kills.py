"""Exactly once, in order and complete while either broker is killed.

Covers our pipeline in both directions, and Apache Pulsar's replicator.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from clusters import Apache, Cluster, Ours, new_namespace, partition, until
from routes import Routes

MESSAGES_A_SECOND = 200


class Stream:
    """Publishes numbers to a topic until stopped, through failures of the broker."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, *, batched: bool) -> None:
        self.source, self.target, self.topic = source, target, topic
        self._batched = batched
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._publish, name=topic, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        with self.source.producer(self.topic, batching_enabled=self._batched) as producer:
            number = 0
            while not self._is_over.wait(10 / MESSAGES_A_SECOND):
                for _ in range(10):
                    producer.send_async(b"%d" % number, None)
                    number += 1

    def wait_for_more(self) -> None:
        before = self.target.entries(self.topic)
        until(lambda: self.target.entries(self.topic) > before + 20, f"{self.topic} is copied to {self.target.name}")

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def check(self) -> None:
        """Checks that target equals source: the client may have published some numbers twice."""
        originals = self.source.values(self.topic)
        assert [int(value) for value in dict.fromkeys(originals)] == list(range(len(set(originals))))
        self.target.has(self.topic, originals)


@contextmanager
def streams(ours: Ours, apache: Apache, routes: Routes) -> Iterator[list[Stream]]:
    """One stream per kind of replication, each in its own namespace."""
    to_apache, listed, theirs = (new_namespace(ours, apache) for _ in range(3))
    ours.replicate(to_apache, apache)
    apache.replicate(theirs, ours)
    ours.create(f"persistent://{to_apache}/plain")
    ours.create(f"persistent://{to_apache}/parts", 1)
    apache.create(f"persistent://{listed}/plain")
    apache.create(f"persistent://{theirs}/plain")
    routes.declared_by(ours)
    pipeline = routes.listed(apache, ours, listed)
    running = [
        Stream(ours, apache, f"persistent://{to_apache}/plain", batched=False),
        Stream(ours, apache, partition(f"persistent://{to_apache}/parts", 0), batched=True),
        Stream(apache, ours, f"persistent://{listed}/plain", batched=False),
        Stream(apache, ours, f"persistent://{theirs}/plain", batched=False),
    ]
    try:
        for stream in running:
            stream.wait_for_more()
        yield running
        for stream in running:
            stream.end()
        for stream in running:
            stream.check()
    finally:
        for stream in running:
            stream.end()
        pipeline.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("killed", ["apache", "ours"])
def test_gr6_gr7_nothing_is_lost_or_duplicated(ours: Ours, apache: Apache, routes: Routes, killed: str) -> None:
    with streams(ours, apache, routes) as running:
        victim = apache if killed == "apache" else ours
        victim.kill()
        victim.start()
        for stream in running:
            stream.wait_for_more()
