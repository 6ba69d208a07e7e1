"""Processes from end to end: a real broker with a movable clock, real Spark, and functions that fail in every way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pulsar  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from magnetar.client import EARLIEST, Client
from magnetar.deadletter.properties import Reason
from magnetar.errors import MagnetarError
from magnetar.pipelines import Message, Received
from magnetar.pipelines.processing.call.function import InvalidProcess
from magnetar.pipelines.processing.foreground import ForegroundRun
from magnetar.pipelines.run import Progress, RunFailed
from tests.pipelines.processing.conftest import Orders

Later = Callable[[Callable[[], None]], None]

QUIET = {"logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}


def numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def misbehave(message: Received) -> bytes | None:
    number = int(message.value)
    if number == 3:
        raise ValueError("no 3")
    if number == 5:
        os._exit(7)
    if number == 7:
        time.sleep(60)
    if number == 9:
        raise KeyError("nine")
    return b"out " + message.value if number % 2 == 0 else None


def test_sp2_failed_rows_climb_the_whole_ladder_and_the_others_go_on(orders: Orders) -> None:
    orders.keep("invoices")
    orders.publish("orders", numbers(20), key="k", properties={"mine": "x"})
    process = orders.process(
        into="invoices", retry=["10s", "1m"], timeout=0.5, no_retry=[KeyError], dead_letter_topics={LookupError: "lost"}
    )(misbehave)

    first = orders.run(process)
    assert first.done == 20
    assert first.counts == {
        "processed": 16,
        "produced": 10,
        "retried": 3,
        "dead": 1,
        "failed": 2,
        "timed_out": 1,
        "crashed": 1,
    }
    assert orders.values("invoices") == [b"out %d" % number for number in range(0, 20, 2)]
    assert {message.key for message in orders.messages("invoices")} == {"k"}
    [lost] = orders.messages("lost")
    assert (lost.value, lost.properties["DEATH_EXCEPTION"]) == (b"9", "KeyError")
    assert orders.backlog("orders") == 0

    assert orders.run(process).done == 0  # nothing is due yet
    orders.broker.advance(milliseconds=9_000)
    assert orders.run(process).done == 0
    orders.broker.advance(seconds=6)
    second = orders.run(process)
    assert (second.done, second.counts["retried"]) == (3, 3)
    orders.broker.advance(seconds=50)
    assert orders.run(process).done == 0
    orders.broker.advance(seconds=20)
    last = orders.run(process)
    assert (last.done, last.counts["dead"]) == (3, 3)
    assert orders.backlog("orders-s-RETRY") == 0

    letters = {letter.value: letter for letter in orders.messages("orders-s-DLQ")}
    reasons = {value: letter.properties["DEATH_REASON"] for value, letter in letters.items()}
    assert reasons == {b"3": Reason.ProcessingFailed, b"5": Reason.ConsumerCrash, b"7": Reason.TimedOut}
    properties = letters[b"3"].properties
    assert (properties["DEATH_EXCEPTION"], properties["DEATH_ERROR"]) == ("ValueError", "no 3")
    assert 'raise ValueError("no 3")' in properties["DEATH_STACK_TRACE"]
    assert properties["DEATH_HISTORY"].count('"reason"') == 3
    assert (properties["RECONSUMETIMES"], properties["mine"], letters[b"3"].key) == ("2", "x", "k")
    origins = {
        value: int(letter.properties["ORIGIN_MESSAGE_ID"].rpartition(":")[2]) for value, letter in letters.items()
    }
    assert origins == {b"3": 3, b"5": 5, b"7": 7}
    assert orders.values("invoices") == [b"out %d" % number for number in range(0, 20, 2)]


def test_sp2_a_retry_that_succeeds_is_published_once(orders: Orders) -> None:
    orders.keep("invoices")
    orders.publish("orders", numbers(4))

    def function(message: Received) -> bytes:
        if message.attempt == 0 and message.value == b"2":
            raise RuntimeError("not yet")
        return b"%s at %d" % (message.value, message.attempt)

    process = orders.process(into="invoices", retry=["1s"])(function)
    orders.run(process)
    orders.broker.advance(seconds=30)
    assert orders.run(process).counts == {"processed": 1, "produced": 1}
    assert orders.values("invoices") == [b"0 at 0", b"1 at 0", b"3 at 0", b"2 at 1"]
    with pytest.raises(MagnetarError, match="not found"):
        orders.messages("orders-s-DLQ")


def test_sp2_a_message_that_kills_whole_workers_is_found_and_set_aside(orders: Orders) -> None:
    """Only as long as the worker is not the one that the function is kept away from: it is killed by its number."""
    orders.keep("invoices")
    orders.publish("orders", numbers(6))

    def function(message: Received) -> bytes:
        if message.value == b"4":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        return message.value

    found = orders.run(orders.process(into="invoices", retry=["1s"])(function))
    assert found.counts["dead"] == 1
    assert sorted(orders.values("invoices")) == [b"0", b"1", b"2", b"3", b"5"]
    [letter] = orders.messages("orders-s-DLQ")
    assert (letter.value, letter.properties["DEATH_REASON"]) == (b"4", Reason.ConsumerCrash)
    assert letter.properties["DEATH_DESCRIPTION"].startswith("3 workers died while they processed it alone")
    assert orders.backlog("orders") == 0


def test_sp2_order_per_partition_is_kept_and_partitions_run_together(orders: Orders) -> None:
    orders.keep("orders", partitions=3)
    orders.keep("invoices", partitions=2)
    for start in range(0, 60, 20):
        orders.publish("orders", [b"%d" % number for number in range(start, start + 20)], key=f"key {start}")
    process = orders.process(into="invoices", round_messages=7)(lambda message: message.value)
    assert orders.run(process).done == 60
    by_key: dict[str | None, list[int]] = {}
    for message in orders.messages("invoices"):
        by_key.setdefault(message.key, []).append(int(message.value))
    assert by_key == {f"key {start}": list(range(start, start + 20)) for start in range(0, 60, 20)}


def test_sp2_several_messages_made_of_one_are_stored_together(orders: Orders) -> None:
    orders.keep("invoices", partitions=2)
    orders.publish("orders", numbers(4))

    def function(message: Received) -> list[Any]:
        if message.value == b"1":
            return [Message(b"a", key="a"), Message(b"b", key="b"), Message(b"c", key="c")]
        return [message.value + b"-0", Message(message.value + b"-1", properties={"p": "q"})]

    found = orders.run(orders.process(into="invoices")(function))
    assert found.counts == {"processed": 3, "produced": 6, "dead": 1, "failed": 1}
    assert sorted(orders.values("invoices")) == [b"0-0", b"0-1", b"2-0", b"2-1", b"3-0", b"3-1"]
    [letter] = orders.messages("orders-s-DLQ")
    assert (
        "different keys, and persistent://public/default/invoices has 2 partitions"
        in (letter.properties["DEATH_DESCRIPTION"])
    )


def test_sp2_coroutines_and_batches(orders: Orders) -> None:
    orders.keep("invoices")
    orders.publish("orders", numbers(50))

    async def coroutine(message: Received) -> bytes | None:
        return message.value if int(message.value) % 10 == 0 else None

    def batch(given: pa.RecordBatch) -> pa.RecordBatch:
        values = [int(value) for value in given.column("value").to_pylist()]
        if 13 in values:
            raise ValueError("no 13")
        return given.filter(pa.array([value % 10 == 3 for value in values])).select(["value", "__row"])

    assert orders.run(orders.process(into="invoices", subscription="a")(coroutine)).counts["produced"] == 5
    found = orders.run(orders.process(into="invoices", subscription="b", kind="arrow", batch_rows=16)(batch))
    assert found.counts == {"processed": 49, "produced": 4, "dead": 1, "failed": 1}
    assert sorted(orders.values("invoices")) == sorted(b"%d" % n for n in (0, 10, 20, 30, 40, 3, 23, 33, 43))


class Order(pulsar.schema.Record):  # type: ignore[misc]
    id = pulsar.schema.Integer()
    amount = pulsar.schema.Double()
    note = pulsar.schema.String()


class Invoice(pulsar.schema.Record):  # type: ignore[misc]
    order = pulsar.schema.Integer(required=True)
    total = pulsar.schema.Double(required=True)


@pytest.mark.parametrize("kind", [pulsar.schema.JsonSchema, pulsar.schema.AvroSchema])
def test_sp2_input_and_output_are_typed_by_the_schemas_of_the_topics(orders: Orders, kind: type) -> None:
    client = pulsar.Client(orders.broker.service_url, **QUIET)
    consumer = client.subscribe("invoices", "check", schema=kind(Invoice))
    producer = client.create_producer("orders", schema=kind(Order))
    for number in range(7):
        producer.send(Order(id=number, amount=-1.0 if number == 3 else number / 2, note="x"))
    client.create_producer("orders").send(b"\xff broken")

    def charge(message: Received) -> Any:
        order = message.value
        if order["amount"] < 0:
            raise ValueError("negative amount")
        if order["id"] == 4:
            return {"order": "four", "total": 1.0}
        if order["id"] == 5:
            return {"order": 5, "totl": 1.0}
        return {"order": order["id"], "total": order["amount"] * 2}

    found = orders.run(orders.process(into="invoices", retry=["1s"])(charge))
    assert found.counts == {"processed": 4, "produced": 4, "retried": 3, "dead": 1, "failed": 3, "unreadable": 1}
    orders.broker.advance(seconds=30)
    assert orders.run(orders.process(into="invoices", retry=["1s"])(charge)).counts["dead"] == 3
    totals = [(each.order, each.total) for each in (consumer.receive(10_000).value() for _ in range(4))]
    assert totals == [(0, 0.0), (1, 1.0), (2, 2.0), (6, 6.0)]
    client.close()
    letters = {letter.properties["DEATH_DESCRIPTION"]: letter for letter in orders.messages("orders-s-DLQ")}
    assert len(letters) == 4
    assert any("Could not convert 'four'" in text for text in letters)
    assert any("field 'totl' is not in the schema, which has order, total" in text for text in letters)
    assert "the function raised ValueError: negative amount" in letters
    [broken] = [letter for letter in letters.values() if letter.properties["DEATH_REASON"] == Reason.Unreadable]
    assert broken.value == b"\xff broken"
    originals = [letter for letter in letters.values() if letter is not broken]
    assert all(letter.schema_version == (0).to_bytes(8, "big") for letter in originals)


def test_sp2_sql_and_transforms(orders: Orders) -> None:
    client = pulsar.Client(orders.broker.service_url, **QUIET)
    consumer = client.subscribe("invoices", "check", schema=pulsar.schema.AvroSchema(Invoice))
    producer = client.create_producer("orders", schema=pulsar.schema.JsonSchema(Order))
    for number in range(6):
        producer.send(Order(id=number, amount=float(number), note="0" if number == 3 else "2"), partition_key="k")
    query = "select id as `order`, amount / cast(note as int) as total from messages where id % 2 = 1"
    found = orders.run(orders.process(into="invoices").sql(query))
    assert (found.counts["produced"], found.counts["dead"]) == (2, 1)
    received = [consumer.receive(10_000) for _ in range(2)]
    assert [(each.value().order, each.value().total, each.partition_key()) for each in received] == [
        (1, 0.5, "k"),
        (5, 2.5, "k"),
    ]
    [letter] = orders.messages("orders-s-DLQ")
    assert letter.properties["DEATH_EXCEPTION"] == "DIVIDE_BY_ZERO"
    assert "DIVIDE_BY_ZERO" in letter.properties["DEATH_DESCRIPTION"]
    assert orders.backlog("orders") == 0

    orders.keep("notes")
    process = orders.process(into="notes", subscription="t")
    orders.run(process.transform(lambda frame: frame.selectExpr("note as value", "__messageId", "__topic")))
    assert orders.values("notes") == [b"2", b"2", b"2", b"0", b"2", b"2"]
    client.close()

    for wrong, text in {
        "select count(*) as value from messages": "do not come from one message each",
        "selec": "the transform cannot be used: [PARSE_SYNTAX_ERROR]",
        "select note as value from messages limit 2": "has GlobalLimit, which needs more than one message at a time",
        "select nope from messages": "[UNRESOLVED_COLUMN",
        "with a as (select * from messages) select note as value from a": "the result has no column __messageId",
    }.items():
        with pytest.raises(InvalidProcess) as caught:
            orders.run(orders.process(into="notes", subscription="u").sql(wrong))
        assert text in str(caught.value)


def test_sp2_a_run_waits_for_messages_and_for_retries_until_it_is_stopped(orders: Orders, later: Later) -> None:
    orders.keep("invoices")

    def function(message: Received) -> bytes:
        if message.attempt == 0 and message.value == b"1":
            raise RuntimeError("once")
        return message.value

    process = orders.process(into="invoices", retry=["1h"])(function)
    shown: list[Progress] = []

    def publish() -> None:
        _until(lambda: bool(process.is_running))
        orders.publish("orders", numbers(3))
        _until(lambda: len(orders.values("invoices")) == 2)
        orders.broker.advance(hours=2)
        _until(lambda: len(orders.values("invoices")) == 3)
        process.stop()

    later(publish)
    found = process.run(clock=orders.broker.clock, show=shown.append)
    assert (found.done, found.counts["retried"], shown[-1]) == (4, 1, found)
    assert orders.values("invoices") == [b"0", b"2", b"1"]


def test_sp2_a_run_that_is_stopped_in_the_middle_loses_nothing(orders: Orders, later: Later) -> None:
    orders.keep("invoices")
    orders.publish("orders", numbers(5))

    def slow(message: Received) -> bytes:
        time.sleep(0.3)
        return message.value

    process = orders.process(into="invoices")(slow)

    def stop() -> None:
        _until(lambda: bool(process.is_running))
        process.stop()

    later(stop)
    process.run(clock=orders.broker.clock)
    orders.run(process)
    assert sorted(orders.values("invoices")) == numbers(5)


def test_sp2_a_subscription_that_is_in_use_is_refused(orders: Orders) -> None:
    orders.keep("orders")
    in_use = "subscription 's' of persistent://public/default/orders is in use"
    with (
        Client(orders.broker.service_url) as other,
        other.consumer("orders", "s", initial_position=EARLIEST),
        pytest.raises(RunFailed, match=in_use),
    ):
        orders.run(orders.process()(lambda message: None))


def test_sp2_topics_that_cannot_exist_are_named(orders: Orders) -> None:
    orders.ask("POST", "namespaces/public/default/autoTopicCreation", {"allowAutoTopicCreation": False})
    with pytest.raises(RunFailed, match="topic persistent://public/default/orders does not exist, and the broker"):
        orders.run(orders.process()(lambda message: None))
    orders.ask("PUT", "persistent/public/default/orders", {})
    with pytest.raises(RunFailed, match="into: topic persistent://public/default/invoices does not exist"):
        orders.run(orders.process(into="invoices")(lambda message: None))
    assert orders.run(orders.process(retry=["1s"])(lambda message: None)).done == 0


def test_sp2_without_moves_messages_are_written_and_then_acknowledged(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Apache Pulsar, where dead letter topics need a subscription to keep anything."""
    monkeypatch.setattr("magnetar.pipelines.processing.run._OURS", "Another broker")
    orders.keep("invoices")
    orders.publish("orders", numbers(10))
    process = orders.process(into="invoices", retry=["10s"], timeout=0.5)(misbehave)
    assert orders.run(process).counts["retried"] == 4
    orders.broker.advance(seconds=5)
    assert orders.run(process).done == 0
    orders.broker.advance(seconds=10)
    assert orders.run(process).counts["dead"] == 4
    assert orders.values("invoices") == [b"out %d" % number for number in range(0, 10, 2)]
    assert sorted(orders.values("orders-s-DLQ")) == [b"3", b"5", b"7", b"9"]
    assert orders.backlog("orders-s-DLQ", "magnetar.handled") == 4
    assert orders.backlog("orders") == orders.backlog("orders-s-RETRY") == 0


def test_sp2_without_moves_what_was_acknowledged_far_ahead_is_not_processed(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the first round too."""
    monkeypatch.setattr("magnetar.pipelines.processing.run._OURS", "Another broker")
    orders.keep("invoices")
    with orders.client.consumer("orders", "s", subscription_type="Shared", initial_position=EARLIEST) as consumer:
        for value in numbers(20):
            orders.publish("orders", [value])
        for _ in range(20):
            message = consumer.receive(10)
            if int(message.value) % 5 == 4:
                consumer.acknowledge(message)
    found = orders.run(orders.process(into="invoices", round_messages=3)(lambda message: message.value))
    assert orders.values("invoices") == [value for value in numbers(20) if int(value) % 5 != 4]
    assert (found.done, orders.backlog("orders")) == (16, 0)


def test_sp2_a_run_without_an_admin_address_is_refused(orders: Orders) -> None:
    orders.keep("orders")
    with pytest.raises(RunFailed, match="the admin address of the cluster is needed too: give admin_url"):
        orders.run(orders.process(admin_url=None)(lambda message: None))


def test_sp2_signals_end_a_run_and_are_given_back() -> None:
    from magnetar.pipelines.processing.foreground import stopped_by_signals
    from magnetar.replication.cluster import ClusterEndpoint

    before = signal.getsignal(signal.SIGTERM)
    run = ForegroundRun(None, ClusterEndpoint("c", "pulsar://c"), lambda progress: None)  # type: ignore[arg-type]
    with stopped_by_signals(run):
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.wait(10)
        assert signal.getsignal(signal.SIGTERM) is before
    assert run.is_stopping


def _until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
