"""The loop that a redrive is compared with, on a broker of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from redrive_loop import BATCHING, dead_letter_topic, main

from magnetar.client import EARLIEST, Client, Message
from magnetar.client.errors import Timeout
from magnetar.testing import TestBroker, broker

LETTERS = 30


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as each:
        yield each


@pytest.mark.parametrize("batching", BATCHING)
def test_every_letter_goes_back_and_is_acknowledged(
    running: TestBroker, capsys: pytest.CaptureFixture[str], batching: str
) -> None:
    origin = f"persistent://public/default/{batching}"
    for words in (
        ("letters", running.service_url, origin, LETTERS, 100),
        ("loop", running.service_url, origin, LETTERS, batching),
    ):
        main([str(word) for word in words])
        assert json.loads(capsys.readouterr().out)["messages"] == LETTERS
    found = received(running, origin)
    assert sorted(int(one.properties["number"]) for one in found) == list(range(LETTERS))
    assert {one.properties["REDRIVE_GENERATION"] for one in found} == {"1"}
    assert not any("REAL_TOPIC" in one.properties for one in found)
    assert {one.key for one in found} == {f"k{number}" for number in range(LETTERS)}
    path = dead_letter_topic(origin).replace("://", "/")
    stats = httpx.get(f"{running.http_url}/admin/v2/{path}/stats", trust_env=False).json()
    assert stats["subscriptions"]["loop"]["msgBacklog"] == 0


def received(running: TestBroker, topic: str) -> list[Message]:
    found: list[Message] = []
    with Client(running.service_url) as client, client.reader(topic, EARLIEST) as reader:
        try:
            while True:
                found.append(reader.read(1))
        except Timeout:
            return found
