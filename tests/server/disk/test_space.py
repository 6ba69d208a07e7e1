"""Disk space of deleted messages comes back on an idle broker, and does not wait for new writes or a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

import magnetar.testing
from magnetar.testing import TestBroker

MB = 1 << 20
SIZE = 80 * MB  # of the messages; more than a memtable, so that files exist
TOPIC = "/admin/v2/persistent/public/default/t"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with magnetar.testing.broker(tmp_path / "data", managedLedgerMinLedgerRolloverTimeMinutes=0) as running:
        yield running


def publish(broker: TestBroker, topic: str, size: int) -> None:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, block_if_queue_full=True)
    payload = os.urandom(MB // 2)
    for _ in range(size // len(payload)):
        producer.send_async(payload, lambda result, _: None)
    producer.flush()
    client.close()


def table_bytes(broker: TestBroker) -> int:
    """Bytes in tables: the log is reused, not deleted."""
    folder = Path(httpx.get(f"{broker.http_url}/admin/v2/brokers/disk").json()["path"])
    return sum(file.stat().st_size for file in folder.glob("*.sst"))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def delete(broker: TestBroker) -> httpx.Response:
    return httpx.delete(f"{broker.http_url}{TOPIC}", params={"force": "true"})


def truncate(broker: TestBroker) -> httpx.Response:
    return httpx.delete(f"{broker.http_url}{TOPIC}/truncate")


@pytest.mark.parametrize("act", [delete, truncate])
def test_space_of_a_deleted_topic_comes_back_while_the_broker_is_idle(
    broker: TestBroker, act: Callable[[TestBroker], httpx.Response]
) -> None:
    publish(broker, "t", SIZE)
    publish(broker, "kept", 4 * MB)
    used = httpx.get(f"{broker.http_url}/admin/v2/brokers/disk").json()["usedBytes"]
    assert used > SIZE
    assert act(broker).is_success
    wait_for(lambda: table_bytes(broker) < 8 * MB)
    disk = httpx.get(f"{broker.http_url}/admin/v2/brokers/disk").json()
    assert disk["usedBytes"] < used and disk["deletedBytes"] == 0
    assert 0 < disk["freeBytes"] < disk["totalBytes"]
    stats = httpx.get(f"{broker.http_url}/admin/v2/persistent/public/default/kept/stats").json()
    assert stats["storageSize"] > 4 * MB


def test_space_of_trimmed_messages_comes_back(broker: TestBroker) -> None:
    publish(broker, "t", SIZE)
    broker.advance(hours=1)  # nothing retains them
    wait_for(lambda: table_bytes(broker) < 8 * MB)


def test_few_deleted_bytes_are_freed_with_the_next_retention_check(broker: TestBroker) -> None:
    publish(broker, "t", 2 * MB)
    assert delete(broker).is_success
    assert broker.run(lambda: broker.server.broker.deleted_space.size) > 2 * MB
    broker.advance(minutes=2)
    wait_for(lambda: broker.run(lambda: broker.server.broker.deleted_space.size) == 0)


def test_disk_space_is_a_metric(broker: TestBroker) -> None:
    publish(broker, "t", 2 * MB)
    lines = dict(
        line.rsplit(" ", 1)
        for line in httpx.get(f"{broker.http_url}/metrics/").text.splitlines()
        if line.startswith("magnetar_storage")
    )
    assert int(lines['magnetar_storage_disk_bytes{cluster="standalone"}']) > 2 * MB
    assert int(lines['magnetar_storage_disk_free_bytes{cluster="standalone"}']) > 0
    assert lines['magnetar_storage_deleted_bytes{cluster="standalone"}'] == "0"


def test_a_broker_in_memory_has_no_disk() -> None:
    with magnetar.testing.broker() as running:
        assert "magnetar_storage_disk" not in httpx.get(f"{running.http_url}/metrics/").text
        reply = httpx.get(f"{running.http_url}/admin/v2/brokers/disk")
        assert (reply.status_code, "memory" in reply.json()["reason"]) == (405, True)
