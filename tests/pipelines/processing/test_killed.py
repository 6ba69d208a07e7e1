"""Exactly once, whatever is killed: the driver with everything below it, any worker, or the broker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.killable import KillableBroker
from tests.pipelines.processing.conftest import Orders
from tests.pipelines.processing.process_job import DROPPED, FAILED
from tests.spark.killable_driver import environment_without_spark, processes_of

MESSAGES = 8_000
DRIVERS_KILLED = 2
WORKERS_KILLED = 3
BROKERS_KILLED = 2


class Job:
    """The program with its JVM and its Python processes, in its own session."""

    def __init__(self, broker: KillableBroker, log: Path) -> None:
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("process_job.py"), broker.service_url, broker.http_url],
            start_new_session=True,
            env=environment_without_spark(),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill_worker(self, moments: random.Random) -> None:
        """A worker of Spark, or the process of the function below it."""
        found = [each.pid for each in processes_of(self.process.pid) if each.is_worker]
        if found:
            with suppress(ProcessLookupError):
                os.kill(moments.choice(found), signal.SIGKILL)

    def kill(self) -> None:
        while left := list(processes_of(self.process.pid)):
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@pytest.mark.timeout(300)
def test_sp2_each_message_has_one_fate_whatever_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    broker = KillableBroker(tmp_path / "data")
    broker.start()
    try:
        orders = Orders(broker)
        orders.keep("orders", partitions=2)
        orders.keep("doubles")
        for start in range(0, MESSAGES, 50):
            orders.publish("orders", [b"%d" % number for number in range(start, start + 50)])
        for _ in range(DRIVERS_KILLED):
            _run_and_kill(Job(broker, tmp_path / "log"), moments)
        last = Job(broker, tmp_path / "log")
        kills = [*["worker"] * WORKERS_KILLED, *["broker"] * BROKERS_KILLED]
        moments.shuffle(kills)
        while (line := last.line()).startswith("done"):
            kind = kills.pop() if kills else ""
            if kind == "worker":
                last.kill_worker(moments)
            elif kind == "broker":
                broker.kill()
                broker.start()
        assert kills == [], "the process was over before the last kill"
        assert line.startswith("over"), f"{last.process.wait(60)}\n{(tmp_path / 'log').read_text()[-5000:]}"
        assert last.process.wait(60) == 0
        last.close()
        _check(orders)
        orders.close()
    finally:
        broker.kill()


def _run_and_kill(job: Job, moments: random.Random) -> None:
    for _ in range(moments.randrange(1, 4)):
        assert job.line().startswith("done")
    time.sleep(moments.random() * 0.3)
    job.kill()


def _check(orders: Orders) -> None:
    doubled = Counter(int(value) // 2 for value in orders.values("doubles"))
    letters = orders.messages("orders-s-DLQ")
    dead = Counter(int(letter.value) for letter in letters)
    assert max((doubled + dead).values()) == 1
    crashed = {int(letter.value) for letter in letters if letter.properties["DEATH_REASON"] == "ConsumerCrash"}
    assert len(crashed) <= WORKERS_KILLED  # the process of a function was killed during their calls
    failed = {number for number in range(MESSAGES) if number % 100 == FAILED}
    dropped = {number for number in range(MESSAGES) if number % 100 == DROPPED}
    assert set(dead) == failed | crashed
    assert set(doubled) == set(range(MESSAGES)) - failed - dropped - crashed
    found = orders.ask("GET", "persistent/public/default/orders/partitioned-stats")
    assert found["subscriptions"]["s"]["msgBacklog"] == 0
