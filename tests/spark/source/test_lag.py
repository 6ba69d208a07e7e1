"""Lag of a stream, from its last progress and the topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import magnetar.spark
from magnetar.client import Client
from magnetar.testing import broker


@dataclass
class Query:
    lastProgress: Any


def progress(topic: str, offset: str) -> Query:
    return Query({"sources": [{"endOffset": {topic: offset}}, {"endOffset": {"kafka": {"0": 3}}}]})


def test_lag_in_messages_bytes_and_seconds() -> None:
    with broker() as running, Client(running.service_url) as client:
        with client.producer("t", batch_messages_max=10) as producer:
            ids = [sent.result() for sent in [producer.send_async(b"x" * 100) for _ in range(1000)]]
        options = {"service.url": running.service_url, "topic": "t"}
        name = "persistent://public/default/t"
        entries = len({each.position for each in ids})
        assert entries > 16, "more than are looked at"
        ledger = ids[0].ledger_id

        (everything,) = magnetar.spark.lag(progress(name, f"{ledger}:-1:-1"), options).values()
        assert everything.messages is not None and 900 <= everything.messages <= 1100
        assert everything.bytes is not None and 100_000 <= everything.bytes <= 150_000
        assert 0 <= everything.seconds < 600
        last = f"{ledger}:{ids[-1].entry_id}:-1"
        assert magnetar.spark.lag(progress(name, last), options) == {name: (0, 0, 0.0)}
        one_left = f"{ledger}:{ids[-1].entry_id - 1}:-1"
        (lag,) = magnetar.spark.lag(progress(name, one_left), options).values()
        assert lag.messages == sum(each.entry_id == ids[-1].entry_id for each in ids)
        assert magnetar.spark.lag(Query(None), options) == {}
