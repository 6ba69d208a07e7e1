"""Kill -9 under dead letter load: each message is acknowledged, or a dead letter, exactly once (DL4).

`MAGNETAR_KILLS=200` sets the number of kills; `make simulate` uses it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest

from .failing import DEAD_LETTERS, LIMIT, PRODUCERS, SUBSCRIPTION, TOPIC, always_fails, subscribe, work
from .killable import KillableBroker
from .running import load_on

_KILLS = int(os.environ.get("MAGNETAR_KILLS", "5"))
_DRAIN_MAX_S = 90


@dataclass(frozen=True)
class DeadLetter:
    name: str
    origin: str
    reason: str
    count: int


def backlog(broker: KillableBroker) -> int:
    url = f"{broker.http_url}/admin/v2/persistent/public/default/{TOPIC}/stats"
    with urllib.request.urlopen(url, timeout=10) as response:
        found: int = json.load(response)["subscriptions"][SUBSCRIPTION]["msgBacklog"]
    return found


def work_until_nothing_is_left(client: pulsar.Client, broker: KillableBroker) -> set[str]:
    acked: set[str] = set()
    deadline = time.monotonic() + _DRAIN_MAX_S
    consumer = subscribe(client)
    while backlog(broker) and time.monotonic() < deadline:
        work_for(0.5, consumer, acked)
    left = backlog(broker)
    assert left == 0, f"{left} entries are neither acknowledged nor dead-lettered after {_DRAIN_MAX_S} s"
    consumer.close()
    return acked


def work_for(seconds: float, consumer: pulsar.Consumer, acked: set[str]) -> None:
    end = time.monotonic() + seconds
    work(consumer, lambda: time.monotonic() > end, acked)


def all_dead_letters(client: pulsar.Client) -> list[DeadLetter]:
    reader = client.create_reader(DEAD_LETTERS, pulsar.MessageId.earliest)
    dead_letters = []
    while reader.has_message_available():
        message = reader.read_next(5000)
        properties = message.properties()
        death = json.loads(properties["DEATH_HISTORY"])[-1]
        assert (properties["REAL_SUBSCRIPTION"], death["subscription"]) == (SUBSCRIPTION, SUBSCRIPTION)
        dead_letters.append(
            DeadLetter(
                message.data().decode(), properties["ORIGIN_MESSAGE_ID"], properties["DEATH_REASON"], death["count"]
            )
        )
    reader.close()
    return dead_letters


def check(result: dict[str, Any], acked: set[str], dead_letters: list[DeadLetter]) -> None:
    assert result["failures"] == []
    sent = {f"{producer}:{number}" for producer in PRODUCERS for number in range(result["sent"][producer])}
    dead = Counter(letter.name for letter in dead_letters)
    twice = [name for name, copies in dead.items() if copies > 1]
    assert not twice, f"{len(twice)} dead letters are duplicated: {sorted(twice)[:10]}"
    assert len({letter.origin for letter in dead_letters}) == len(dead_letters)
    lost = sent - acked - dead.keys()
    assert not lost, (
        f"{len(lost)} of {len(sent)} messages are neither acknowledged nor dead-lettered: {sorted(lost)[:10]}"
    )
    assert dead.keys() <= sent
    failed = {name for name in sent if always_fails(name)}
    assert failed and failed <= dead.keys(), f"always nacked but not dead-lettered: {sorted(failed - dead.keys())[:10]}"
    # The client nacks whole batches: messages of one that it acknowledged just before may be dead-lettered with the
    # others.
    innocent = {name for name in dead if name.startswith("single:")} - failed
    assert not innocent, f"dead-lettered without enough nacks: {sorted(innocent)[:10]}"
    assert {(letter.reason, letter.count) for letter in dead_letters} == {("MaxRedeliveries", LIMIT + 1)}


@pytest.mark.timeout(120 + 10 * _KILLS)
def test_dl4_kill_during_dead_lettering(tmp_path: Path) -> None:
    moments = random.Random()
    broker = KillableBroker(tmp_path / "data", ("brokerDeduplicationEnabled=true",))
    broker.start()
    try:
        with load_on("failing", broker, tmp_path) as result:
            for _ in range(_KILLS):
                time.sleep(moments.uniform(0.3, 1.0))
                broker.kill()
                broker.start()
            time.sleep(0.5)
        broker.kill()
        broker.start()
        client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with contextlib.closing(client):
            acked = work_until_nothing_is_left(client, broker)
            dead_letters = all_dead_letters(client)
        check(result, acked | set(result["acked"]), dead_letters)
        print(
            f"{_KILLS + 1} kills, {sum(result['sent'].values())} messages, {len(dead_letters)} dead letters, each once"
        )
    finally:
        broker.kill()
