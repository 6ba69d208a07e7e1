"""Kill -9 under load, several times on the same folder, then a count of the messages."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest

from .killable import KillableBroker
from .load import EXCLUSIVE, PRODUCERS, SHARED, TOPIC, never_acknowledged
from .running import load_on

_ROUNDS = 4
_SILENCE_MS = 700  # after which a subscription counts as drained


@dataclass(frozen=True)
class Stored:
    producer: str
    number: int
    position: tuple[int, int, int]

    @property
    def name(self) -> str:
        return f"{self.producer}:{self.number}"


def everything_stored(client: pulsar.Client) -> list[Stored]:
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    stored = []
    while reader.has_message_available():
        message = reader.read_next(5000)
        producer, number = message.data().decode().split(":")
        message_id = message.message_id()
        position = (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
        stored.append(Stored(producer, int(number), position))
    reader.close()
    return stored


def everything_delivered(client: pulsar.Client, subscription: str, type: pulsar.ConsumerType) -> list[str]:
    consumer = client.subscribe(TOPIC, subscription, consumer_type=type)
    delivered = []
    with contextlib.suppress(pulsar.Timeout):
        while True:
            delivered.append(consumer.receive(_SILENCE_MS).data().decode())
    consumer.close()
    return delivered


def check_messages(stored: list[Stored], result: dict[str, Any], *, deduplicated: bool) -> None:
    positions = [message.position for message in stored]
    assert positions == sorted(set(positions)), "positions are not unique or out of order"
    by_position = {message.position: message for message in stored}
    for producer in PRODUCERS:
        numbers = [message.number for message in stored if message.producer == producer]
        first_times = sorted(set(numbers), key=numbers.index)
        assert first_times == sorted(first_times), f"messages of {producer} are out of order"
        if deduplicated:
            assert len(numbers) == len(set(numbers)), f"duplicate messages of {producer}"
        receipts = result["receipts"][producer]
        assert len(receipts) == result["sent"][producer] > 0
        there = set(numbers)
        for number, *position in receipts:
            assert number in there, f"{producer}:{number} has a receipt and is lost"
            if position[1] >= 0:  # a duplicate gets a receipt without a position
                found = by_position[position[0], position[1], position[2]]
                assert (found.producer, found.number) == (producer, number)


def check_shared(stored: list[Stored], result: dict[str, Any], delivered: list[str]) -> None:
    """Every message that was never acknowledged is redelivered."""
    unacked = {message.name for message in stored} - set(result["shared_acked"])
    assert any(never_acknowledged(name.encode()) for name in unacked)
    assert unacked <= set(delivered), f"never acknowledged, never delivered: {sorted(unacked - set(delivered))[:10]}"


def check_exclusive(stored: list[Stored], result: dict[str, Any], delivered: list[str]) -> None:
    """Nothing was skipped, and the cursor is not past the last cumulative acknowledgement."""
    highest = dict.fromkeys(PRODUCERS, -1)
    for name in result["exclusive_received"]:
        producer, number = name.split(":")
        assert int(number) <= highest[producer] + 1, f"{name} was received after {highest[producer]}"
        highest[producer] = max(highest[producer], int(number))
    names = [message.name for message in stored]
    last = max(index for index, name in enumerate(names) if name == result["exclusive_acked"])
    rest = names[last + 1 :]
    assert delivered[len(delivered) - len(rest) :] == rest, (
        "messages after the last acknowledgement were not redelivered in order"
    )


@pytest.mark.parametrize("deduplicated", [True, False], ids=["deduplicated", "plain"])
def test_kill_under_load(tmp_path: Path, deduplicated: bool) -> None:
    moments = random.Random()
    broker = KillableBroker(tmp_path / "data", (f"brokerDeduplicationEnabled={str(deduplicated).lower()}",))
    broker.start()
    try:
        with load_on("load", broker, tmp_path) as result:
            for _ in range(_ROUNDS):
                time.sleep(moments.uniform(0.5, 1.5))
                broker.kill()
                broker.start()
            time.sleep(0.5)
        broker.kill()
        broker.start()
        assert result["failures"] == []
        client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with contextlib.closing(client):
            stored = everything_stored(client)
            check_messages(stored, result, deduplicated=deduplicated)
            check_shared(stored, result, everything_delivered(client, SHARED, pulsar.ConsumerType.Shared))
            check_exclusive(stored, result, everything_delivered(client, EXCLUSIVE, pulsar.ConsumerType.Exclusive))
    finally:
        broker.kill()
