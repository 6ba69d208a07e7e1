"""The programs of examples/ run unchanged, in the tests' one session."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from pulsar.schema import Double, JsonSchema, Long, Record, String
from pyspark.sql import SparkSession

from magnetar.client import EARLIEST, Client
from magnetar.testing import TestBroker, broker

EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(brokerDeduplicationEnabled=True) as running:
        yield running


@pytest.fixture
def run(
    spark: SparkSession,
    running: TestBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a program with arguments and returns its output."""

    def run(name: str, *arguments: str) -> str:
        url = running.http_url if name == "orders_pipeline.py" else running.service_url
        monkeypatch.setattr(sys, "argv", [name, "--url", url, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def stored(running: TestBroker, topic: str) -> list[bytes | None]:
    with Client(running.service_url) as client, client.reader(topic, EARLIEST) as reader:
        found = []
        while reader.has_next():
            found.append(reader.read(timeout_s=10).value)
        return found


def test_every_program_is_run() -> None:
    code = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'run("{path.name}"' not in code] == []


def test_first_query(run: Run) -> None:
    printed = run("first_query.py", "--topic", "first")
    assert re.search(r"customer-0\|143 *\|48 ", printed), printed


def test_stream_copy(run: Run, running: TestBroker, tmp_path: Path) -> None:
    with Client(running.service_url) as client, client.producer("source") as producer:
        for number in range(100):
            producer.send_async(b"%d" % number, key=f"key-{number % 2}")
    arguments = ("source", "target", "--once", "--where", "__key = 'key-0'", "--checkpoint", str(tmp_path / "copy"))
    arguments += ("--admin-url", running.http_url)
    assert "read 100 messages of source" in run("stream_copy.py", *arguments)
    assert "read 0 messages of source" in run("stream_copy.py", *arguments)
    assert stored(running, "target") == [b"%d" % number for number in range(0, 100, 2)]


class Order(Record):
    id = Long()
    customer = String()
    amount = Double()


def publish_orders(running: TestBroker, bad: dict[int, bytes]) -> None:
    """Two of three with the schema, the others without; 40 have no positive amount, 50 an unknown customer."""
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    typed, plain = client.create_producer("orders", schema=JsonSchema(Order)), client.create_producer("orders")
    for number in range(2000):
        customer = "unheard-of" if number % 40 == 3 else f"c{number % 9}"
        order = {"id": number, "customer": customer, "amount": -1.0 if number % 50 == 0 else 1.5}
        if number % 3 and number not in bad:
            typed.send_async(Order(**order), None, partition_key=f"k{number}")
        else:
            plain.send_async(bad.get(number, json.dumps(order).encode()), None, partition_key=f"k{number}")
    typed.flush()
    plain.flush()
    client.close()


def test_sp2_sp8_orders_pipeline(run: Run, spark: SparkSession, running: TestBroker, tmp_path: Path) -> None:
    """2,000 orders, with a schema and without: 1,908 enriched, 92 dead letters that the broker's tools understand, all
    of them in the archive."""
    httpx.put(f"{running.http_url}/admin/v2/persistent/public/default/orders/partitions", json=3).raise_for_status()
    code = (EXAMPLES / "orders_pipeline.py").read_text(encoding="utf-8")
    parts = re.findall(r"(?s)RULES = {.*?\n}|    spark = .*?run_available_now", code)
    assert 10 <= sum(len(part.splitlines()) for part in parts) <= 20, "shorter than by hand"
    bad = {7: b"not json", 11: b'{"id": 11, "customer": "c1", "amount": "much"}'}
    publish_orders(running, bad)
    lines = [json.dumps({"customer": f"c{n}", "name": f"name {n}", "country": "CH"}) for n in range(9)]
    (tmp_path / "customers.json").write_text("\n".join(lines))

    for _ in range(2):  # the second run has nothing to do
        folders = ("--checkpoint", str(tmp_path / "checkpoint"), "--archive", str(tmp_path / "archive"))
        run("orders_pipeline.py", str(tmp_path / "customers.json"), *folders)

    enriched = [json.loads(value or b"") for value in stored(running, "orders-enriched")]
    assert len({order["id"] for order in enriched}) == len(enriched) == 1908
    assert {order["country"] for order in enriched} == {"CH"}
    letters = stored(running, "orders-etl-DLQ")
    assert len(letters) == 92
    assert set(bad.values()) <= set(letters), "with the bytes they came with"
    archived = spark.read.parquet(str(tmp_path / "archive"))
    assert archived.count() == archived.select("__topic", "__messageId").distinct().count() == 2000
    printed = run("dead_letter_report.py")
    assert re.search(r"orders *\|etl +\|UnknownCustomer *\|\d+ ", printed), printed
    assert "field amount: Expected `float | null`" in printed


def test_dead_letter_report(run: Run, running: TestBroker) -> None:
    letter = {"REAL_TOPIC": "persistent://public/default/jobs", "REAL_SUBSCRIPTION": "workers"}
    with Client(running.service_url) as client, client.producer("jobs-workers-DLQ") as producer:
        for number in range(3):
            producer.send(b"job", properties=letter | {"DEATH_REASON": "Expired", "DEATH_DESCRIPTION": f"no. {number}"})
        producer.send(b"job", properties=letter)
    printed = run("dead_letter_report.py")
    assert re.search(r"default/jobs *\|workers +\|Expired *\|3 .*\|no. 2", printed), printed
    assert re.search(r"default/jobs *\|workers +\|Client +\|1 ", printed), printed
    assert "Expired" not in run("dead_letter_report.py", "--since", "2100-01-01T00:00:00Z")
