"""Kill -9 while dead letters are redriven: the origin has each exactly once, in order per key (SP3).

`MAGNETAR_REDRIVE_LETTERS=100000 MAGNETAR_REDRIVE_KILLS=40` sets the size. `MAGNETAR_REDRIVE_SEED` repeats an order of
kills.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pulsar
import pytest

from magnetar.client import EARLIEST, Client
from magnetar.client.errors import Timeout
from tests.crash.killable import KillableBroker
from tests.spark.killable_driver import environment_without_spark, processes_of

_LETTERS = int(os.environ.get("MAGNETAR_REDRIVE_LETTERS", "10000"))
_KILLS = int(os.environ.get("MAGNETAR_REDRIVE_KILLS", "5"))
_SEED = int(os.environ.get("MAGNETAR_REDRIVE_SEED", random.randrange(1_000_000)))

_KEYS = 97
_RATE = 600
_PATIENCE_S = 150
_MOMENT_MAX_S = 1.0
_KINDS = ("worker", "broker", "driver", "broker", "worker")

ORIGIN, SUBSCRIPTION, OTHER = "orders", "billing", "shipping"
LETTERS = f"{ORIGIN}-{SUBSCRIPTION}-DLQ"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    started = KillableBroker(tmp_path / "data", ("pipelinesEnabled=false",))
    started.start()
    yield started
    started.kill()


class LocalRedrive:
    """`magnetar redrive start --local`, with its JVM and workers in one session."""

    def __init__(self, broker: KillableBroker, log: Path) -> None:
        command = [sys.executable, "-m", "magnetar", "redrive", "start", "--from", LETTERS, "--local"]
        command += ["--rate", str(_RATE), "--url", broker.http_url, "--service-url", broker.service_url]
        with log.open("a") as output:
            self._process = subprocess.Popen(
                command, start_new_session=True, env=environment_without_spark(), stdout=output, stderr=output
            )

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        while left := list(processes_of(self._process.pid)):
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self) -> bool:
        """A busy one, if there is one; whether there was any."""
        found = sorted((not each.is_busy, each.pid) for each in processes_of(self._process.pid) if each.is_worker)
        for _, pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)


def prepare(broker: KillableBroker) -> None:
    with httpx.Client(base_url=f"{broker.http_url}/admin/v2/persistent/public/default/", trust_env=False) as http:
        http.put(ORIGIN).raise_for_status()
        for name in (SUBSCRIPTION, OTHER):
            start = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
            http.put(f"{ORIGIN}/subscription/{name}", json=start).raise_for_status()
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(LETTERS, block_if_queue_full=True, batching_enabled=False)
    for number in range(_LETTERS):
        properties = {"REAL_TOPIC": f"persistent://public/default/{ORIGIN}", "ORIGIN_MESSAGE_ID": f"7:{number}:-1"}
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % _KEYS}", properties=properties)
    producer.flush()
    client.close()


def waiting(broker: KillableBroker) -> int | None:
    """None while the broker is away."""
    with httpx.Client(trust_env=False) as http, suppress(httpx.HTTPError):
        found = http.get(f"{broker.http_url}/admin/v2/namespaces/public/default/deadLetters").json()
        return sum(int(one["waiting"]) for one in found["topics"])
    return None


def received(broker: KillableBroker, subscription: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    with (
        Client(broker.service_url) as client,
        client.consumer(ORIGIN, subscription, initial_position=EARLIEST) as consumer,
    ):
        while True:
            try:
                message = consumer.receive(timeout_s=2)
            except Timeout:
                return found
            found.append((str(message.key), int(message.value or b"")))
            consumer.acknowledge(message)


@pytest.mark.timeout(600)
def test_sp3_kills_in_the_middle_of_a_redrive_lose_and_repeat_nothing(broker: KillableBroker, tmp_path: Path) -> None:
    print(f"MAGNETAR_REDRIVE_SEED={_SEED}")
    moments, log = random.Random(_SEED), tmp_path / "redrive.log"
    prepare(broker)
    kinds = [_KINDS[number % len(_KINDS)] for number in range(_KILLS)]
    redrive, left, deadline_s = LocalRedrive(broker, log), _LETTERS, time.monotonic() + _PATIENCE_S
    try:
        while redrive.code is None or kinds or redrive.code != 0:
            assert time.monotonic() < deadline_s, f"seed {_SEED}: not over, {left} letters wait: {log.read_text()}"
            if redrive.code is not None and waiting(broker):
                redrive = LocalRedrive(broker, log)  # a run that gave up is repeated
            elif redrive.code is not None:
                break
            now = waiting(broker)
            if now is not None and now < left:
                left, deadline_s = now, time.monotonic() + _PATIENCE_S
            if kinds and left < _LETTERS * len(kinds) // (_KILLS + 1):  # at about equal distances
                time.sleep(moments.uniform(0, _MOMENT_MAX_S))
                kind = kinds[0]
                if kind == "worker" and not redrive.kill_worker():
                    continue
                if kind == "broker":
                    broker.kill()
                    broker.start()
                if kind == "driver":
                    redrive.kill()
                    redrive = LocalRedrive(broker, log)
                kinds.pop(0)
            time.sleep(0.02)
    finally:
        redrive.kill()
    assert kinds == [], "the redrive was over before the last kill"
    found = received(broker, SUBSCRIPTION)
    assert sorted(number for _, number in found) == list(range(_LETTERS)), f"seed {_SEED}"
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, number in found:
        by_key[key].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values()), f"seed {_SEED}"
    assert received(broker, OTHER) == []
    assert waiting(broker) == 0
