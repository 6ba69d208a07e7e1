"""`magnetar.spark.deadletters` on a broker: letters of every writer, what waits, payloads, and wrong arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

import magnetar.spark
from magnetar.client import Client
from magnetar.client.errors import NotFound
from magnetar.deadletter.stamp import Raised
from magnetar.spark.dead_letters.letters import LETTER_COLUMNS
from magnetar.spark.errors import InvalidOption
from magnetar.testing import TestBroker, broker
from tests.spark.dead_letters.letters_of_clients import (
    CPP,
    FAILED_MS,
    GO,
    JAVA,
    ORIGIN,
    SPRING,
    acknowledge,
    failed,
    publish,
    publish_by_policies,
    rest,
    topic_path,
)
from tests.spark.inline_clients import close_inline_clients

RAISED = Raised(
    "app.NoPrice", "no price for item 5", "Traceback\n  File x\napp.NoPrice: no price for item 5", "abcdef012345"
)


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running
    close_inline_clients()


@pytest.fixture(scope="module")
def client(running: TestBroker) -> Iterator[Client]:
    with Client(running.service_url) as client:
        yield client


@pytest.fixture(scope="module")
def namespace(running: TestBroker, client: Client) -> str:
    """Dead letters of all kinds."""
    rest(running, "PUT", topic_path("parts-s-DLQ", "partitions"), 2)
    publish_by_policies(running)
    publish(client, "java-billing-DLQ", (b'{"id": "j", "amount": 2.5}', JAVA), (b"text", SPRING))
    publish(client, "cpp-s-DLQ", (b"\xff\x00", CPP))
    publish(client, "go-s-DLQ", (b"go", GO), batching=False)
    publish(client, "unknown-DLQ", (b"by hand", {}))
    publish(client, "parts-s-DLQ", *((b"%d" % n, failed("parts", "Expired")) for n in range(10)), batching=False)
    publish(
        client,
        "run-s-QUARANTINE-DLQ",
        (b"{}", failed("run", "ProcessingFailed", raised=RAISED, REDRIVE_GENERATION="5")),
    )
    publish(client, "out-east-REPL-DLQ", (b"{}", failed("out", "Client")))
    return "public/default"


def letters(spark: SparkSession, running: TestBroker, source: object, **arguments: object) -> DataFrame:
    return magnetar.spark.deadletters(spark, source, **{"service.url": running.http_url}, **arguments)  # type: ignore[arg-type]


def by_topic(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.letter_topic.partition("default/")[2], []).append(row)
    return found


def test_sp4_letters_of_every_writer(spark: SparkSession, running: TestBroker, namespace: str) -> None:
    found = letters(spark, running, namespace, payload="json")
    assert found.columns == [column.name for column in LETTER_COLUMNS]
    rows = by_topic(found.collect())
    assert {topic: row[0].kind for topic, row in rows.items() if row[0].kind != "DLQ"} == {
        "run-s-QUARANTINE-DLQ": "QUARANTINE",
        "out-east-REPL-DLQ": "REPL",
        "graveyard": "CUSTOM",
    }
    for name in ("json", "avro"):
        first, second = rows[f"{name}-s-DLQ"]
        assert (first.topic, first.partition, first.subscription) == (f"{ORIGIN}/{name}", None, "s")
        assert (first.reason, first["count"], first.deaths, first.generation, first.key) == (
            "MaxRedeliveries",
            2,
            1,
            0,
            "k0",
        )
        assert first.first_failure <= first.last_failure <= first.published
        assert json.loads(second.payload_json) == {"id": "o1", "amount": 1.5}
        assert (second.payload_error, second["__schemaVersion"], bytes(second["__key"])) == (None, 0, b"k1")
    (python,) = rows["python-s-DLQ"]
    assert (python.reason, python.topic, python.subscription) == ("Client", f"{ORIGIN}/python", "s")
    java, spring = rows["java-billing-DLQ"]
    assert (java.topic, java.partition, java.subscription) == (f"{ORIGIN}/java", 2, "billing")
    assert (java.origin_message_id, java["count"], java.reason, java.exception) == ("12:34:2", 3, "Client", None)
    assert (java.payload_json, java.size, java.message_id[-2:]) == ('{"id": "j", "amount": 2.5}', 26, ":0")
    assert (spring.exception, spring.error) == (
        "java.lang.IllegalStateException",
        "java.lang.IllegalStateException: no price for item 4711",
    )
    (cpp,) = rows["cpp-s-DLQ"]
    assert (cpp.subscription, cpp.origin_message_id, cpp["count"]) == ("s", "12:35:-1:4", None)
    assert (bytes(cpp.value), cpp.payload_json) == (b"\xff\x00", None)
    assert cpp.payload_error == "it has no schema, and the payload is no text"
    (go,) = rows["go-s-DLQ"]
    assert (go.subscription, go.origin_message_id, go["count"], go.payload_json) == ("s", "12:36:-1", 2, "go")
    (unknown,) = rows["unknown-DLQ"]
    assert (unknown.reason, unknown.topic, unknown.subscription, unknown.properties) == ("Unknown", None, None, {})
    assert re.fullmatch("[0-9a-f]{12}", unknown.fingerprint)
    assert sum(len(rows[f"parts-s-DLQ-partition-{n}"]) for n in range(2)) == 10
    (quarantined,) = rows["run-s-QUARANTINE-DLQ"]
    assert (quarantined.generation, quarantined.exception, quarantined.fingerprint) == (
        5,
        "app.NoPrice",
        "abcdef012345",
    )
    assert (quarantined.error, quarantined.stack_trace) == (RAISED.text, RAISED.stack_trace)
    assert int(quarantined.last_failure.timestamp() * 1000) == FAILED_MS + 5000


def test_sp4_only_the_named_columns_are_built(spark: SparkSession, running: TestBroker, namespace: str) -> None:
    found = letters(spark, running, namespace, columns=["reason", "count"])
    assert found.columns == ["reason", "count"]
    counted = {row.reason: row["count(1)"] for row in found.groupBy("reason").agg({"*": "count"}).collect()}
    assert counted == {"MaxRedeliveries": 6, "Client": 6, "Unknown": 1, "Expired": 10, "ProcessingFailed": 1}


def test_sp4_a_payload_of_records_is_a_struct(spark: SparkSession, running: TestBroker, namespace: str) -> None:
    topics = ["avro-s-DLQ", "json-s-DLQ", "python-s-DLQ"]
    found = letters(spark, running, topics, columns=["topic", "payload"]).where("payload.amount > 0.6")
    assert found.columns == ["topic", "payload"]
    assert sorted((row.payload.id, row.payload.amount) for row in found.collect()) == [
        ("o1", 1.5),
        ("o1", 1.5),
        ("p", 1.0),
    ]
    with pytest.raises(AnalysisException, match="payload"):
        letters(spark, running, "go-s-DLQ").select("payload.amount")
    assert letters(spark, running, "go-s-DLQ").select("payload").first() == Row(payload="go")


def test_sp4_patterns_and_several_topics(spark: SparkSession, running: TestBroker, namespace: str) -> None:
    columns = ["letter_topic"]
    assert letters(spark, running, "(go|cpp)-s-DLQ", columns=columns).count() == 2
    assert letters(spark, running, re.compile("public/default/go.*"), columns=columns).count() == 1
    assert letters(spark, running, "parts-s-DLQ-partition-1", columns=columns).count() in range(1, 10)
    assert letters(spark, running, "parts-s-DLQ", columns=columns, minPartitions="4").count() == 10
    assert letters(spark, running, "no-such-.*-DLQ", columns=columns).collect() == []


def test_sp4_handled_letters_are_left_out(spark: SparkSession, running: TestBroker, client: Client) -> None:
    publish(client, "done-s-DLQ", *((b"%d" % n, failed("done", "Expired")) for n in range(20)), batching=False)
    publish(client, "done-s-DLQ", *((b"b%d" % n, failed("done", "Expired")) for n in range(5)))
    everything = letters(spark, running, "done-s-DLQ", columns=["value"])
    assert len(everything.collect()) == 25
    acknowledge(running, "done-s-DLQ", "one", [0, 1, 2, 3, 7, 8, 20])
    acknowledge(running, "done-s-DLQ", "two", [0, 1, 5, 8, 9, 20])
    waiting = letters(spark, running, "done-s-DLQ", columns=["value"])
    assert [row.value.decode() for row in waiting.collect()] == [f"{n}" for n in range(20) if n not in (0, 1, 8)]
    both = letters(spark, running, "done-s-DLQ", handled=True, columns=["value", "handled"])
    done = [row.value.decode() for row in both.collect() if row.handled]
    assert done == ["0", "1", "8", "b0", "b1", "b2", "b3", "b4"]
    assert len(everything.collect()) == 25, "the rows of the moment of the call"


def test_sp4_wrong_arguments(spark: SparkSession, running: TestBroker, namespace: str) -> None:
    for source, arguments, error in (
        ("public/default", {"columns": ["raeson"]}, "unknown column 'raeson': did you mean reason?"),
        ("public/default", {"payload": "xml"}, "payload is 'xml'"),
        ("public/default", {"topic": "x"}, "option topic does not apply to dead letters"),
        ("non-persistent://public/default/x", {}, "is not persistent"),
        ("public/default/(x", {}, "is not a regular expression"),
    ):
        with pytest.raises(InvalidOption, match=re.escape(error)):
            letters(spark, running, source, **arguments)
    with pytest.raises(InvalidOption, match=re.escape("known by REST only: set option admin.url")):
        magnetar.spark.deadletters(spark, "public/default", service_url=running.service_url)
    everything = magnetar.spark.deadletters(
        spark, "go-s-DLQ", handled=True, columns=["handled"], service_url=running.service_url
    )
    assert [row.handled for row in everything.collect()] == [None]
    with pytest.raises(NotFound, match="nothing-DLQ does not exist"):
        letters(spark, running, "nothing-DLQ")
    with pytest.raises(NotFound, match="amespace"):
        letters(spark, running, "public/nowhere")
    rest(running, "PUT", "namespaces/public/empty")
    assert letters(spark, running, "public/empty").collect() == []
