"""Code blocks of docs/spark.md, and of the README for Spark, run as they are; tables match the code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from pyspark.sql import SparkSession

from magnetar.client import EARLIEST, Client, Message
from magnetar.spark.client_options import CLIENT_OPTIONS
from magnetar.spark.option import Option
from magnetar.spark.sink.options import SINK_OPTIONS
from magnetar.spark.source.options import SOURCE_OPTIONS
from magnetar.testing import TestBroker, broker
from tools import spark_reference as reference

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "spark.md"
PAGE = PATH.read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- test: spark (\w+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
ORDERS = 60
PAID = [f"order {number}".encode() for number in range(0, ORDERS, 3)]


@pytest.fixture(scope="module")
def running(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A new broker, with the topics that the page creates."""
    with broker(brokerDeduplicationEnabled=True) as running:
        page = Page(spark, running, tmp_path_factory.mktemp("sample"))
        page.block("sample")
        yield running


def stored(running: TestBroker, topic: str) -> list[Message]:
    with Client(running.service_url) as client, client.reader(topic, EARLIEST) as reader:
        found = []
        while reader.has_next():
            found.append(reader.read(timeout_s=10))
        return found


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


class Page:
    """Runs blocks with the names that the page defines, in a temporary folder."""

    def __init__(self, spark: SparkSession, running: TestBroker, folder: Path) -> None:
        self._spark = spark
        self._running = running
        self._folder = folder

    def run(self, code: str) -> dict[str, Any]:
        code = code.replace("pulsar://127.0.0.1:6650", self._running.service_url)
        for folder in ("checkpoints/", "archive/"):
            code = code.replace(f'"{folder}', f'"{self._folder}/{folder}')
        addresses = {"service.url": self._running.service_url, "admin.url": self._running.http_url}
        names = {"spark": self._spark, "broker": addresses}
        exec(code, names)
        return names

    def block(self, name: str) -> dict[str, Any]:
        return self.run(BLOCKS[name])


@pytest.fixture
def page(spark: SparkSession, running: TestBroker, tmp_path: Path) -> Iterator[Page]:
    yield Page(spark, running, tmp_path)
    for query in spark.streams.active:
        query.stop()


# -- the text


def test_sp1_updates(page: Page, running: TestBroker) -> None:
    query = page.block("updates")["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    last = {message.key: message.value for message in stored(running, "orders-per-customer")}
    assert last == {f"customer-{number}": b"%d" % len(range(number, ORDERS, 7)) for number in range(7)}


def test_the_tables_are_up_to_date() -> None:
    assert reference.render(PAGE) == PAGE, "run make docs"


def test_a_missing_table_is_reported() -> None:
    with pytest.raises(ValueError, match="sink options"):
        reference.render(PAGE.replace("<!-- table: sink options -->", ""))


@pytest.mark.parametrize("option", [*CLIENT_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS], ids=lambda option: option.name)
def test_every_option_is_on_the_page_with_a_sentence(option: Option) -> None:
    assert f"\n| `{option.name}` |" in PAGE
    assert option.kind.meaning.endswith(".")


def test_every_block_has_a_test() -> None:
    code = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in BLOCKS if f'page.block("{name}")' not in code] == []
    assert len(BLOCKS) == 16


def test_links_lead_somewhere() -> None:
    headings = {re.sub(r"[^\w -]", "", line).replace(" ", "-").lower() for line in re.findall(r"\n#+ (.*)", PAGE)}
    assert [anchor for anchor in re.findall(r"\]\(#([^)]+)\)", PAGE) if anchor not in headings] == []
    files = re.findall(r"\]\(([^#)]+)(?:#[^)]*)?\)", PAGE)
    assert [file for file in files if not (PATH.parent / file).exists()] == []


# -- reading


def test_first(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.block("first")
    assert re.search(r"order 0\|customer-0\|2", capsys.readouterr().out)


def test_sp1_readme(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"<!-- test: spark -->\n```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in block.splitlines() if line]) <= 5
    page.run(block)
    assert re.search(r"customer-6 *\| *8\|", capsys.readouterr().out)


def test_batch(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.block("batch")
    out = capsys.readouterr().out
    assert "default/orders |60" in out
    assert "default/refunds|5" in out


def test_stream(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    query = page.block("stream")["query"]
    query.processAllAvailable()
    assert "7 messages" in capsys.readouterr().out
    (source,) = query.lastProgress["sources"]
    assert source["endOffset"] == source["latestOffset"]


def test_columns(page: Page) -> None:
    names = page.block("columns")
    assert names["one"].columns == ["__key", "__partition"]
    assert names["one"].collect() == names["same"].collect()


def test_filter(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.block("filter")
    assert "60 orders in the last hour" in capsys.readouterr().out


def test_typed(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.block("typed")
    assert re.search(r"ann\| +50.0\|", capsys.readouterr().out)


def test_unreadable(page: Page, running: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(running.service_url) as client, client.producer("sales") as producer:
        producer.send(b"warm")
    page.block("unreadable")
    out = capsys.readouterr().out
    assert (out.count("|20"), out.count("field ")) == (1, 1), out


# -- writing


def test_write(page: Page, running: TestBroker) -> None:
    page.block("write")
    assert {(message.value, message.key) for message in stored(running, "numbers")} == {
        (b"%d" % number, f"customer-{number % 10}") for number in range(1000)
    }


def test_schema(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.block("schema")
    out = capsys.readouterr().out
    assert re.search(r"ann\| *41\|", out)
    assert re.search(r"bob\| *29\|", out)


def test_once(page: Page, running: TestBroker) -> None:
    page.block("once")["query"].processAllAvailable()
    assert values(stored(running, "paid-orders")) == PAID


# -- recipes


def test_dead_letters_by_reason(page: Page, running: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    dead_letter_messages(running, "payments", 3)
    page.block("letters")
    assert re.search(r"default/payments\|MaxRedeliveries\|3 ", capsys.readouterr().out)


def dead_letter_messages(running: TestBroker, topic: str, count: int) -> None:
    with closing(pulsar.Client(running.service_url)) as client:
        consumer = client.subscribe(
            topic,
            "billing",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            properties={"deadLetterPolicy.maxRedeliverCount": "1"},
        )
        producer = client.create_producer(topic)
        for number in range(count):
            producer.send(b"payment %d" % number)
        for _ in range(2 * count):
            consumer.negative_acknowledge(consumer.receive(10_000))
        letters = client.subscribe(f"{topic}-billing-DLQ", "look", initial_position=pulsar.InitialPosition.Earliest)
        for _ in range(count):
            letters.receive(10_000)


def test_sp2_pipeline(page: Page, spark: SparkSession, running: TestBroker) -> None:
    names = page.block("pipeline")
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    bills = spark.read.format("pulsar").options(**names["broker"], topic="bills").load()
    assert [(row.pieces, round(row.total, 2)) for row in bills.collect()] == [(1, 10.8)]
    (waiting,) = stored(running, "sales-billing-RETRY")
    assert waiting.properties["DELAY_TIME"] == "10000"


def test_copy(page: Page, running: TestBroker) -> None:
    page.block("copy")
    source, copy = stored(running, "orders"), stored(running, "orders-copy")
    assert values(copy) == values(source)
    for one, other in zip(source, copy, strict=True):
        assert (one.key, one.properties, one.publish_time_ms) == (other.key, other.properties, other.publish_time_ms)
    assert [message.id.batch_index for message in copy] == [message.id.batch_index for message in source]


def test_archive(page: Page, running: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        page.block("archive")
        assert "count=60" in capsys.readouterr().out
    stats = httpx.get(f"{running.http_url}/admin/v2/persistent/public/default/orders/stats").json()
    assert stats["subscriptions"]["archive"]["msgBacklog"] == 0
