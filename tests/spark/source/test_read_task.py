"""Read task of a worker, without Spark: rows, and data loss when entries of the range were deleted."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from pyspark.sql.types import StructType

from magnetar.client import Client
from magnetar.client.message import EARLIEST, MessageId
from magnetar.spark.codec.columns import RAW_VALUE, named_columns, select_columns
from magnetar.spark.errors import DataLoss
from magnetar.spark.source.entry_range import EntryRange, split_ranges
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.read_task import read_range
from magnetar.testing import TestBroker, broker
from tests.spark.inline_clients import close_inline_clients


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"persistent://public/default/{request.node.name.partition('[')[0]}"


class Stage:
    """A topic with entries of one message each, m0, m1 and so on, and reads of its ranges."""

    def __init__(self, running: TestBroker, topic: str) -> None:
        self.running = running
        self.topic = topic
        self.ids: list[MessageId] = []
        self._client = Client(running.service_url)

    def publish(self, count: int) -> None:
        with self._client.producer(self.topic, batching=False) as producer:
            first = len(self.ids)
            sent = [producer.send_async(b"m%d" % number) for number in range(first, first + count)]
            self.ids.extend(each.result() for each in sent)

    def admin(self, method: str, path: str = "", **params: str) -> None:
        url = f"{self.running.http_url}/admin/v2/{self.topic.replace('://', '/')}{path}"
        httpx.request(method, url, params=params).raise_for_status()

    def options(self, **more: str) -> SourceOptions:
        return SourceOptions.of({"service.url": self.running.service_url, "topic": self.topic} | more)

    def read(self, span: EntryRange, **more: str) -> list[bytes]:
        options = self.options(**more)
        columns = select_columns(StructType(named_columns(["value"], [RAW_VALUE.field])), [RAW_VALUE.field])
        batches = list(read_range(options, columns, None, span))
        return [value for batch in batches for value in batch.column(0).to_pylist()]

    def close(self) -> None:
        close_inline_clients()
        self._client.close()


@pytest.fixture
def stage(running: TestBroker, topic: str) -> Iterator[Stage]:
    stage = Stage(running, topic)
    yield stage
    stage.close()


def numbers(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last)]


def test_a_range_excludes_its_start_and_includes_its_end(stage: Stage) -> None:
    stage.publish(10)

    assert stage.read(EntryRange(stage.topic, stage.ids[2], stage.ids[6])) == numbers(3, 7)
    assert stage.read(EntryRange(stage.topic, EARLIEST, stage.ids[9])) == numbers(0, 10)


def test_parts_of_a_range_are_the_range(stage: Stage) -> None:
    stage.publish(2500)
    whole = EntryRange(stage.topic, MessageId(stage.ids[0].ledger_id, -1), stage.ids[-1])

    pieces = split_ranges([whole], 4)

    assert len(pieces) == 4
    assert [value for piece in pieces for value in stage.read(piece)] == numbers(0, 2500)


def test_messages_deleted_after_planning(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.publish(5)
    stage.admin("DELETE", "/truncate")
    stage.publish(3)
    span = EntryRange(stage.topic, stage.ids[1], stage.ids[7])

    with pytest.raises(DataLoss, match=f"{stage.topic} was read up to {stage.ids[1]}, but the messages up to"):
        stage.read(span)
    assert stage.read(span, failOnDataLoss="false") == numbers(5, 8)
    assert "were deleted before they were read" in caplog.text


def test_a_range_deleted_completely(stage: Stage) -> None:
    stage.publish(5)
    stage.admin("DELETE", "/truncate")
    span = EntryRange(stage.topic, stage.ids[1], stage.ids[4])

    with pytest.raises(DataLoss, match="were deleted before they were read"):
        stage.read(span)
    assert stage.read(span, failOnDataLoss="false") == []


def test_a_topic_deleted_after_planning(stage: Stage) -> None:
    stage.publish(5)
    stage.admin("DELETE", force="true")
    span = EntryRange(stage.topic, stage.ids[1], stage.ids[4])

    with pytest.raises(DataLoss, match="no longer exists"):
        stage.read(span)
    assert stage.read(span, failOnDataLoss="false") == []


def test_messages_already_read_may_be_deleted(stage: Stage) -> None:
    stage.publish(5)
    stage.admin("DELETE", "/truncate")
    stage.publish(3)

    assert stage.read(EntryRange(stage.topic, stage.ids[4], stage.ids[7])) == numbers(5, 8)
