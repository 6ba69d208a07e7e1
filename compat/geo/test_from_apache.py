"""Replication from Apache Pulsar to our broker by our pipeline, configured by its options."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import Apache, Ours, partition, until
from kinds import MESSAGES, check_copies, check_orders, publish_all_kinds, publish_orders
from pulsar.schema import AvroSchema
from routes import Routes

SUBSCRIPTION = "magnetar.repl.ours"


def backlog(apache: Apache, topic: str) -> int | None:
    """None until replication has started."""
    found = apache.stats(topic)["subscriptions"].get(SUBSCRIPTION)
    return None if found is None else int(found["msgBacklog"])


def test_gr7_messages_of_all_kinds_arrive_unchanged(ours: Ours, apache: Apache, routes: Routes, namespace: str) -> None:
    kinds, orders, parts = (f"persistent://{namespace}/{name}" for name in ("kinds", "orders", "parts"))
    apache.create(kinds)
    publish_all_kinds(apache, kinds)  # before replication starts, and across several ledgers
    pipeline = routes.listed(apache, ours, namespace)
    until(lambda: ours.partitions(kinds) == 0, "the topic appears")
    until(lambda: backlog(apache, kinds) == 0, "all messages are copied")
    assert len(ours.read(kinds)) == MESSAGES
    check_copies(apache, ours, kinds)

    apache.create(orders)
    publish_orders(apache, orders, AvroSchema)
    until(lambda: backlog(apache, orders) == 0, "orders are copied")
    check_orders(apache, ours, orders, AvroSchema)

    apache.create(parts, 2)
    apache.publish(partition(parts, 1), [b"1", b"2"])
    ours.has(partition(parts, 1), [b"1", b"2"])
    assert ours.partitions(parts) == 2
    apache.ask("POST", f"persistent/{namespace}/parts/partitions", 3)
    apache.publish(partition(parts, 2), [b"3"])
    until(lambda: ours.partitions(parts) == 3, "our topic gets the partition too")
    ours.has(partition(parts, 2), [b"3"])
    pipeline.stop()


def test_gr6_internal_topics_of_brokers_and_pipelines_are_not_replicated(
    ours: Ours, apache: Apache, routes: Routes, namespace: str
) -> None:
    topic = f"persistent://{namespace}/mine"
    apache.create(topic)
    apache.ask("POST", f"persistent/{namespace}/mine/maxConsumers", 7)  # writes to an internal topic of the broker
    apache.publish(f"{topic}-sub-DLQ", [b"dead"])
    apache.publish(topic, [b"alive"])
    with apache.producer(topic) as producer:
        producer.send(b"for nobody", disable_replication=True)
        producer.send(b"last")
    pipeline = routes.listed(apache, ours, namespace)
    ours.has(topic, [b"alive", b"last"])
    until(lambda: backlog(apache, topic) == 0, "skipped messages are acknowledged too")
    pipeline.stop()
    assert ours.ask("GET", f"persistent/{namespace}") == [topic]


@contextmanager
def pipelines_process(apache: Apache, ours: Ours, namespace: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = str(Path(sys.executable).parent / "magnetar")
    command = [program, "pipelines", "--from", apache.service_url, "--admin-from", apache.http_url]
    command += ["--cluster", apache.name, "--to", f"{ours.name}={ours.service_url},{ours.http_url}"]
    command += ["--topics", namespace, "--master", "local[1]", "--retry-max", "2"]
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.timeout(400)
def test_gr6_the_command_copies_exactly_once_even_when_killed(
    ours: Ours, apache: Apache, namespace: str, tmp_path: Path
) -> None:
    topic = f"persistent://{namespace}/killed"
    apache.create(topic)
    values = [b"%d" % number for number in range(3000)]
    apache.publish(topic, values[:1000])
    with pipelines_process(apache, ours, namespace, tmp_path / "first") as process:
        until(lambda: ours.partitions(topic) == 0 and bool(ours.values(topic)), "it copies")
        apache.publish(topic, values[1000:2000])
        process.kill()
        assert process.wait() == -signal.SIGKILL
    apache.publish(topic, values[2000:])
    with pipelines_process(apache, ours, namespace, tmp_path / "second") as process:
        ours.has(topic, values)
        until(lambda: backlog(apache, topic) == 0, "all messages are acknowledged")
        process.terminate()
        assert process.wait(30) == 0, (tmp_path / "second").read_text()
    assert ours.values(topic) == values
