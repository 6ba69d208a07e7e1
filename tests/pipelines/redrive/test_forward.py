"""Forwarded letters are the same as those that go by columns; letters that are not plain keep their place."""

from __future__ import annotations

import json
from typing import Any

import pulsar
import pytest

from magnetar.client import Message
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob
from tests.pipelines.redrive.conftest import Site

HISTORY = '[{"topic":"t","subscription":"s","reason":"MaxRedeliveries","count":2,"first":1,"last":2}]'


def publish_all_kinds(site: Site) -> int:
    """Plain letters with batches and compressed ones between them; returns their number."""
    client = pulsar.Client(site.running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    plain = client.create_producer(site.letters, batching_enabled=False)
    zipped = client.create_producer(site.letters, batching_enabled=False, compression_type=pulsar.CompressionType.ZSTD)
    batched = client.create_producer(site.letters, batching_max_publish_delay_ms=1000)
    kinds: list[dict[str, Any]] = [
        {},
        {"DEATH_HISTORY": HISTORY, "DEATH_REASON": "MaxRedeliveries", "DEATH_ERROR": "why"},
        {"REDRIVE_GENERATION": "1", "RECONSUMETIMES": "3", "own": "ü"},
        {"DEATH_ERROR": 'a "quoted" text'},
    ]
    number = 0
    for producer in (plain, batched, plain, zipped, plain, batched):
        for kind in kinds * 2:
            origin = {"REAL_TOPIC": f"persistent://public/default/{site.orders}", "ORIGIN_MESSAGE_ID": "7:3:-1"}
            options: dict[str, Any] = {"partition_key": f"k{number % 3}"} if number % 5 else {}
            if number % 4 == 1:
                options |= {"event_timestamp": 1_700_000_000_000 + number, "ordering_key": "o"}
            producer.send_async(f"v{number}".encode(), None, properties=origin | kind | {"n": str(number)}, **options)
            number += 1
        producer.flush()
    client.close()
    return number


def shown(messages: list[Message]) -> list[tuple[object, ...]]:
    return sorted(
        (
            int(one.properties["n"]),
            one.value,
            one.key,
            one.event_time_ms,
            one.ordering_key,
            {
                name: json.loads(text) if name == "DEATH_HISTORY" else text
                for name, text in one.properties.items()
                if name != "DEATH_HISTORY" or json.loads(text)[0]["topic"] == "t"
            },
        )
        for one in messages
    )


def test_sp3_forwarded_letters_are_those_that_go_by_columns(site: Site) -> None:
    site.create(site.orders, "billing")
    count = publish_all_kinds(site)
    outcome = site.redrive()
    assert (outcome.total, outcome.sent) == (count, count) and site.waiting() == 0
    forwarded = site.received(site.orders, "billing")
    assert publish_all_kinds(site) == count
    assert site.redrive(where="true").sent == count
    by_columns = site.received(site.orders, "billing")
    assert shown(forwarded) == shown(by_columns)
    for messages in (forwarded, by_columns):
        for key in ("k0", "k1", "k2"):
            numbers = [int(one.properties["n"]) for one in messages if one.key == key]
            assert numbers == sorted(numbers)
    deaths = [json.loads(one.properties["DEATH_HISTORY"])[0] for one in forwarded]
    assert {one.get("error") for one in deaths} >= {None, 'a "quoted" text'}


@pytest.mark.parametrize("spec", [{}, {"where": "true"}], ids=["forwarded", "by columns"])
def test_sp3_letters_that_cannot_be_opened_stay(site: Site, spec: dict[str, Any]) -> None:
    """Without its value an encrypted message would become another one."""
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}])
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.add(key="REAL_TOPIC", value=f"persistent://public/default/{site.orders}")
    metadata.encryption_keys.add(key="k", value=b"v")
    send_entry(site, build_blob(metadata, b"secret"))
    site.publish_letters([{"n": 2}])
    outcome = site.redrive(**spec)
    assert outcome.sent == 2 and outcome.kept.total() == 1
    [reason] = outcome.kept
    assert "cannot be opened" in reason and "encrypted" in reason
    assert sorted(json.loads(one.value)["n"] for one in site.received(site.orders, "billing")) == [1, 2]
    assert site.waiting() == 1


def test_sp3_where_no_letter_can_be_opened_the_redrive_ends(site: Site) -> None:
    site.create(site.orders, "billing")
    site.create(site.letters, "inspection")
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    send_entry(site, build_blob(metadata, b"secret"))
    for spec in ({}, {"where": "true"}):
        outcome = site.redrive(**spec)
        assert (outcome.sent, outcome.kept.total()) == (0, 1), spec
    assert site.waiting() == 1


def test_sp3_a_topic_without_a_chosen_letter_stays_as_it_is(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}])
    assert site.redrive(where="payload.n > 1").total == 0
    assert site.ask("GET", f"persistent/public/default/{site.letters}/subscriptions") == []


def send_entry(site: Site, blob: bytes) -> None:
    from magnetar.client.inline import InlineClient

    with InlineClient(site.running.service_url) as client:
        producer = client.run(client.client.entry_producer(f"persistent://public/default/{site.letters}"))
        client.run(producer.send(blob, sequence_id=1, highest_sequence_id=1, messages=1))
        client.run(producer.flush())
