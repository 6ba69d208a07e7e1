"""The disk fills up: producers are held before it is full, everything that frees space goes on, then they go on too."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

import magnetar.testing
from magnetar.server.disk import watch
from magnetar.server.disk.watch import DiskLimits, DiskSpace
from magnetar.settings.settings import Settings
from magnetar.storage.ballast import Ballast
from magnetar.testing import TestBroker

MB, GB = 1 << 20, 1 << 30
FULL, ROOMY = DiskSpace(100 * MB, 100 * GB), DiskSpace(50 * GB, 100 * GB)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    # No checks but those of the test.
    with magnetar.testing.broker(tmp_path / "data", diskCheckInterval=86_400_000) as running:
        yield running


@pytest.fixture
def client(broker: TestBroker) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with contextlib.closing(pulsar.Client(broker.service_url, operation_timeout_seconds=30, logger=logger)) as client:
        yield client


def find(broker: TestBroker, space: DiskSpace) -> None:
    """The next check finds this much space."""
    disk = broker.server.disk
    disk.probe = lambda folder: space
    asyncio.run_coroutine_threadsafe(disk.check(), broker.server.loop).result(60)


def until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


# -- limits


@pytest.mark.parametrize(
    ("total", "hold", "release"),
    [
        (1000 * GB, 2 * GB, 4 * GB),  # five percent would be more than enough
        (20 * GB, 1 * GB, 2 * GB),
        (2 * GB, 2 * GB // 10, 2 * (2 * GB // 10)),  # a tenth is less than the least
        (4 * GB, 256 * MB, 512 * MB),
    ],
)
def test_limits_are_a_share_between_the_least_and_enough(total: int, hold: int, release: int) -> None:
    limits = DiskLimits.of(Settings(), total)
    assert (limits.hold, limits.release) == (pytest.approx(hold, abs=MB), pytest.approx(release, abs=MB))
    assert limits.hold <= limits.warn


def test_a_low_mark_above_the_threshold_does_not_release_what_is_held_again_at_once() -> None:
    limits = DiskLimits.of(Settings(diskUsageThreshold=0.5, diskUsageLwmThreshold=0.99), 2 * GB)
    assert limits.release >= limits.hold


# -- a running broker


def test_bound_disk_space_holds_producers_and_releases_them(broker: TestBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t", send_timeout_millis=0)
    producer.send(b"before")
    find(broker, FULL)
    assert broker.server.disk.state == "held"
    assert "has 100 of 102400 MB left: producers are held until it has 4096 MB" in broker.server.disk.held
    receipts: list[pulsar.Result] = []
    producer.send_async(b"held", lambda result, _: receipts.append(result))
    topic = broker.server.broker.topics["persistent://public/default/t"]
    assert not len(topic.producers)
    find(broker, DiskSpace(3 * GB, 100 * GB))  # above the limit, and below the low mark
    assert broker.server.disk.state == "held" and not receipts
    find(broker, ROOMY)
    assert (broker.server.disk.state, broker.server.disk.held) == ("ok", "")
    until(lambda: receipts == [pulsar.Result.Ok])  # the client retries by itself


def test_fault_full_disk_lets_through_what_frees_space(broker: TestBroker, client: pulsar.Client) -> None:
    consumer = client.subscribe(
        "t",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=1,
        properties={"deadLetterPolicy.maxRedeliverCount": "1"},
    )
    dead = client.subscribe("t-s-DLQ", "d", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("t")
    for number in range(2):
        producer.send(b"%d" % number)
    find(broker, FULL)
    consumer.acknowledge(consumer.receive(30_000))
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(30_000))
    assert dead.receive(60_000).data() == b"1"
    until(lambda: broker.server.broker.commits.idle)
    deleted = httpx.delete(f"{broker.http_url}/admin/v2/persistent/public/default/t?force=true", timeout=30)
    assert deleted.status_code == 204
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("another")


def test_a_broker_that_starts_on_a_full_disk_holds_producers_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "space_of", lambda folder: FULL)
    with magnetar.testing.broker(tmp_path / "data") as broker:
        assert broker.server.disk.state == "held"
        assert broker.server.vitals.facts().disk_held == broker.server.disk.held != ""


def test_a_disk_that_fills_up_is_a_warning_first(broker: TestBroker) -> None:
    find(broker, DiskSpace(3 * GB, 100 * GB))
    assert broker.server.disk.state == "low"
    assert broker.server.vitals.facts().disk_low == broker.server.disk.low != ""
    assert not broker.server.broker.held
    find(broker, ROOMY)
    assert broker.server.disk.state == "ok"


def test_a_disk_that_cannot_be_checked_changes_nothing(broker: TestBroker) -> None:
    def fails(folder: str) -> DiskSpace:
        raise OSError(5, "Input/output error")

    find(broker, FULL)
    broker.server.disk.probe = fails
    asyncio.run_coroutine_threadsafe(broker.server.disk.check(), broker.server.loop).result(60)
    assert broker.server.disk.state == "held"


def test_switching_the_check_off_releases_producers(broker: TestBroker) -> None:
    find(broker, FULL)
    broker.run(lambda: broker.server.broker.set_dynamic_setting("diskCheckInterval", "0"))
    find(broker, FULL)
    assert (broker.server.disk.state, broker.server.broker.held) == ("none", "")


def test_a_broker_in_memory_has_no_disk() -> None:
    with magnetar.testing.broker() as broker:
        assert broker.server.disk.state == "none"


# -- ballast


def test_a_ballast_is_made_when_the_broker_has_run_for_a_while_and_there_is_room(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast = Ballast(tmp_path / "data", MB)
    broker.server.disk.ballast = ballast
    find(broker, ROOMY)
    assert not ballast.exists
    monkeypatch.setattr(watch, "BALLAST_AFTER_S", 0)
    find(broker, FULL)
    assert not ballast.exists
    find(broker, ROOMY)
    assert ballast.path.stat().st_size == MB
    assert ballast.give_up() and not ballast.exists and not ballast.give_up()


def test_a_ballast_of_no_size_is_not_made(broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BALLAST_AFTER_S", 0)
    broker.server.disk.ballast = Ballast(tmp_path / "data", 0)
    find(broker, ROOMY)
    assert not broker.server.disk.ballast.exists
