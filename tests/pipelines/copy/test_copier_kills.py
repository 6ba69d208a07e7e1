"""Exactly once, in order, through kills of the copier, the source's broker or the remote one (GR6)."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from magnetar.client import Client
from tests.crash.killable import KillableBroker
from tests.pipelines import copier_job
from tests.pipelines.two_clusters import batch, message, payloads, positions, source_positions, store, stored

TOPIC = "persistent://public/default/kills"
ENTRIES = 6000
KILLS = 9
SEED = 1


@contextlib.contextmanager
def running(data: Path) -> Iterator[KillableBroker]:
    killable = KillableBroker(data)
    killable.start()
    try:
        yield killable
    finally:
        killable.kill()


class Copier:
    def __init__(self, a: KillableBroker, b: KillableBroker) -> None:
        command = [sys.executable, copier_job.__file__, a.service_url, b.service_url, TOPIC]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._said() == "copying"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def finish(self) -> None:
        assert self._said() == "copied"
        self._end()

    def _end(self) -> None:
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_gr6_exactly_once_through_any_kill(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with running(tmp_path / "a") as a, running(tmp_path / "b") as b:
        with Client(b.service_url) as client:
            client.producer(TOPIC).close()
        numbers = range(0, ENTRIES * 10, 10)
        store(
            a.service_url,
            TOPIC,
            [
                batch(n, 10) if chance.random() < 0.3 else message(n, b"%d," % n * chance.randint(1, 300))
                for n in numbers
            ],
        )
        copier = Copier(a, b)
        killed_while_copying = 0
        for _ in range(KILLS):
            time.sleep(chance.uniform(0, 0.12))
            killed_while_copying += not copier.has_ended
            victim = chance.choice(("copier", "a", "b", "copier"))
            if victim == "copier" or copier.has_ended:
                copier.kill()
                copier = Copier(a, b)
            else:
                broker = a if victim == "a" else b
                broker.kill()
                broker.start()
        copier.finish()
        originals, copies = stored(a.service_url, TOPIC), stored(b.service_url, TOPIC)
    assert killed_while_copying >= 2
    assert source_positions(copies) == positions(originals)
    assert payloads(copies) == payloads(originals)
