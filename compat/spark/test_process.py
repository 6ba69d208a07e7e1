"""SP2 on Apache Pulsar: processes write, then acknowledge: at least once, with the same ladder and dead letters."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import official
import pulsar
import pytest
from pulsar.schema import AvroSchema, Double, Integer, JsonSchema, Record, String
from pyspark.sql import SparkSession
from small_ledgers import ENTRIES_PER_LEDGER, KEEPS, ONCE, Pulsar

from magnetar.cli.main import main
from magnetar.clock import ManualClock
from magnetar.deadletter.properties import read_history
from magnetar.pipelines import process
from magnetar.pipelines.processing.api import Processor
from magnetar.pipelines.processing.partitions import Primary
from magnetar.pipelines.run import Progress, RunFailed
from tests.pipelines.processing.process_job import DROPPED, FAILED
from tests.pipelines.processing.test_killed import Job

SUBSCRIPTION = "billing"
HANDLED = "magnetar.handled"
COUNT = 4 * ENTRIES_PER_LEDGER + 40
KEYS = 10


class Orders:
    """A topic with two partitions, its process, and a clock that decides what is due."""

    def __init__(self, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.into = f"{topic}-out"
        self.retries = f"{topic}-{SUBSCRIPTION}-RETRY"
        self.letters = f"{topic}-{SUBSCRIPTION}-DLQ"
        self.partitions = broker.create(topic, 2)
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        self._client = client
        broker.topic("PUT", self.into)

    def publish(self, numbers: range, *, batching: bool = False) -> None:
        options = {"batching_enabled": batching, "batching_max_publish_delay_ms": 50}
        with official.producer(self._client, self.topic, **options) as producer:
            for number in numbers:
                value, key = str(number).encode(), f"k{number % KEYS}"
                producer.send_async(value, None, partition_key=key, properties={"own": str(number)})

    def process(self, function: Callable[[Any], Any], **options: Any) -> Processor:
        given = {"subscription": SUBSCRIPTION, "into": self.into}
        given |= {"service_url": self.broker.service_url, "admin_url": self.broker.http_url}
        return process(self.topic, **{**given, **options})(function)

    def run(self, processor: Processor, **options: Any) -> Progress:
        return processor.run(until="caught-up", clock=self.clock, **options)

    def produced(self) -> list[int]:
        return [int(value) for value in official.values(self._client, self.into)]

    def in_order(self) -> bool:
        """For each key."""
        found: dict[int, list[int]] = {}
        for number in self.produced():
            found.setdefault(number % KEYS, []).append(number)
        return all(one == sorted(one) for one in found.values())

    def dead(self) -> list[pulsar.Message]:
        return official.read(self._client, self.letters)

    def backlog(self) -> int:
        return sum(self.broker.backlog(partition, SUBSCRIPTION) for partition in self.partitions)

    def ids(self) -> dict[int, str]:
        """The message ids of the topic by number, as dead letters name them."""
        found = {}
        for index, partition in enumerate(self.partitions):
            for message in official.read(self._client, partition):
                one = message.message_id()
                batch = f":{one.batch_index()}" if one.batch_index() >= 0 else ""
                found[int(message.data())] = f"{one.ledger_id()}:{one.entry_id()}:{index}{batch}"
        return found

    @property
    def words(self) -> tuple[str, ...]:
        """For commands."""
        return ("--url", self.broker.http_url, "--service-url", self.broker.service_url)


@pytest.fixture
def orders(spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str) -> Orders:
    return Orders(broker, client, f"persistent://{KEEPS}/{name}")


@pytest.fixture
def once(spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str) -> Orders:
    """In a namespace with deduplication."""
    return Orders(broker, client, f"persistent://{ONCE}/{name}")


def same(message: Any) -> bytes:
    return bytes(message.value)


same.__module__ = "__main__"  # shipped by value: workers cannot import this file


def test_sp2_failed_rows_climb_the_whole_ladder_and_the_others_go_on(orders: Orders) -> None:
    def function(message: Any) -> bytes:
        if int(message.value) % 10 == 3:
            raise ValueError(f"no {int(message.value)}")
        return bytes(message.value)

    orders.publish(range(COUNT // 2))
    orders.publish(range(COUNT // 2, COUNT), batching=True)
    assert len(orders.broker.ledgers(orders.partitions[0])) > 1
    ids = orders.ids()
    failing = [number for number in range(COUNT) if number % 10 == 3]
    others = [number for number in range(COUNT) if number % 10 != 3]
    process = orders.process(function, retry=["10s", "1m"])

    first = orders.run(process)
    failed = len(failing)
    assert (first.done, first.note) == (COUNT, f"{failed} waiting for a retry")
    assert first.counts == {"processed": len(others), "produced": len(others), "retried": failed, "failed": failed}
    assert sorted(orders.produced()) == others and orders.in_order()
    assert orders.backlog() == 0
    assert orders.run(process).done == 0  # nothing is due yet
    orders.clock.advance_ms(12_000)
    assert orders.run(process).counts["retried"] == failed
    orders.clock.advance_ms(40_000)
    assert orders.run(process).done == 0
    orders.clock.advance_ms(30_000)
    last = orders.run(process)
    assert (last.done, last.counts["dead"]) == (failed, failed)
    assert orders.backlog() == orders.broker.backlog(orders.retries, SUBSCRIPTION) == 0
    assert sorted(orders.produced()) == others

    assert orders.broker.subscriptions(orders.letters) == [HANDLED]
    assert orders.broker.backlog(orders.letters, HANDLED) == failed
    letters = orders.dead()
    assert sorted(int(letter.data()) for letter in letters) == failing
    for letter in letters:
        number, properties = int(letter.data()), letter.properties()
        assert (properties["DEATH_REASON"], properties["DEATH_EXCEPTION"]) == ("ProcessingFailed", "ValueError")
        assert properties["DEATH_ERROR"] == f"no {number}"
        assert "raise ValueError(f" in properties["DEATH_STACK_TRACE"]
        assert (properties["RECONSUMETIMES"], properties["own"]) == ("2", str(number))
        assert properties["REAL_TOPIC"].startswith(orders.topic) and properties["REAL_SUBSCRIPTION"] == SUBSCRIPTION
        assert properties["ORIGIN_MESSAGE_ID"] == ids[number]
        assert [failure.count for failure in read_history(properties)] == [1, 2, 3]
        assert letter.partition_key() == f"k{number % KEYS}"
    assert len({letter.properties()["DEATH_FINGERPRINT"] for letter in letters}) == 1


def test_sp2_a_run_that_is_stopped_loses_nothing(orders: Orders) -> None:
    orders.publish(range(COUNT))
    process = orders.process(same, round_messages=30)
    first = orders.run(process, show=lambda _: process.stop())
    assert 0 < first.done < COUNT
    assert orders.backlog() == COUNT - first.done
    assert first.done + orders.run(process).done == COUNT
    assert sorted(orders.produced()) == list(range(COUNT)) and orders.in_order()
    assert orders.backlog() == 0


def test_sp2_rows_that_were_written_and_not_acknowledged_are_written_again(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the run had been killed between the two."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    orders.publish(range(COUNT))
    process = orders.process(same, round_messages=30)
    with monkeypatch.context() as patch:
        patch.setattr(Primary, "settle", killed)
        with pytest.raises(KeyboardInterrupt):
            orders.run(process)
    written = len(orders.produced())
    assert 0 < written < COUNT and orders.backlog() == COUNT
    assert orders.run(process).done == COUNT
    found = Counter(orders.produced())
    assert sorted(found) == list(range(COUNT)) and found.total() == COUNT + written
    assert orders.backlog() == 0


def test_sp2_what_consumers_have_acknowledged_is_not_processed(orders: Orders, client: pulsar.Client) -> None:
    orders.publish(range(COUNT))
    consumer = client.subscribe(
        orders.topic,
        SUBSCRIPTION,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    acknowledged = set()
    for _ in range(COUNT):
        message = consumer.receive(official.SEND_S * 1000)
        if (number := int(message.data())) % 3 == 0:
            consumer.acknowledge(message)
            acknowledged.add(number)
    consumer.close()
    assert orders.backlog() == COUNT - len(acknowledged)
    found = orders.run(orders.process(same, round_messages=30))
    assert sorted(orders.produced()) == [number for number in range(COUNT) if number not in acknowledged]
    assert found.done == COUNT - len(acknowledged) and orders.backlog() == 0


def test_sp2_one_process_or_consumers_at_a_time(orders: Orders, client: pulsar.Client) -> None:
    orders.publish(range(20))
    consumer = client.subscribe(orders.topic, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(RunFailed, match=rf"subscription '{SUBSCRIPTION}' of {orders.topic}-partition-\d is in use"):
        orders.run(orders.process(same))
    consumer.close()
    refused = []

    def subscribe(_: Progress) -> None:
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(orders.topic, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
        refused.append(True)

    assert orders.run(orders.process(same), show=subscribe).done == 20
    assert refused and orders.backlog() == 0


def test_sp2_a_process_that_is_killed_loses_nothing(broker: Pulsar, client: pulsar.Client, tmp_path: Path) -> None:
    """The driver with everything below it, in the middle of a round: its subscription is the only state."""
    topic, doubles = (f"persistent://{KEEPS}/{name}" for name in ("orders", "doubles"))  # names of the program
    partitions = broker.create(topic, 2)
    broker.topic("PUT", doubles)
    count = 4_000
    official.publish(client, topic, [str(number) for number in range(count)], batching_enabled=True)
    killed = Job(broker, tmp_path / "log")
    assert killed.line().startswith("done")
    time.sleep(0.2)
    killed.kill()
    again = Job(broker, tmp_path / "log")
    while (line := again.line()).startswith("done"):
        continue
    assert line.startswith("over"), (tmp_path / "log").read_text()[-5000:]
    assert again.process.wait(60) == 0
    again.close()
    made = Counter(int(value) // 2 for value in official.values(client, doubles))
    letters = Counter(int(value) for value in official.values(client, f"{topic}-s-DLQ"))
    failed = {number for number in range(count) if number % 100 == FAILED}
    assert set(letters) == failed
    assert set(made) == {number for number in range(count) if number % 100 != DROPPED} - failed
    assert max((made | letters).values()) <= 2
    assert sum(broker.backlog(partition, "s") for partition in partitions) == 0


class Order(Record):  # type: ignore[misc]
    id = Integer()
    amount = Double()
    note = String()


class Invoice(Record):  # type: ignore[misc]
    order = Integer(required=True)
    total = Double(required=True)


@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_sp2_input_and_output_are_typed_by_the_schemas_of_the_topics(
    orders: Orders, client: pulsar.Client, kind: type
) -> None:
    def charge(message: Any) -> Any:
        order = message.value
        if order["amount"] < 0:
            raise ValueError("negative amount")
        if order["id"] == 4:
            return {"order": "four", "total": 1.0}
        return {"order": order["id"], "total": order["amount"] * 2}

    consumer = client.subscribe(orders.into, "check", schema=kind(Invoice))
    with official.producer(client, orders.topic, schema=kind(Order)) as producer:
        for number in range(7):
            producer.send(Order(id=number, amount=-1.0 if number == 3 else number / 2, note="x"))
    official.publish(client, orders.topic, ["\u00ff broken"])
    process = orders.process(charge, retry=["10s"])
    counts = {"processed": 5, "produced": 5, "retried": 2, "dead": 1, "failed": 2, "unreadable": 1}
    assert orders.run(process).counts == counts
    orders.clock.advance_ms(12_000)
    assert orders.run(process).counts["dead"] == 2
    found = [consumer.receive(official.SEND_S * 1000).value() for _ in range(5)]
    assert sorted((one.order, one.total) for one in found) == [(0, 0.0), (1, 1.0), (2, 2.0), (5, 5.0), (6, 6.0)]
    consumer.close()
    letters = {letter.properties()["DEATH_REASON"]: letter for letter in orders.dead()}
    assert letters["Unreadable"].data() == "\u00ff broken".encode()
    texts = [letter.properties()["DEATH_DESCRIPTION"] for letter in orders.dead()]
    assert "the function raised ValueError: negative amount" in texts
    assert any("Could not convert 'four'" in text for text in texts)
    assert orders.backlog() == orders.broker.backlog(orders.retries, SUBSCRIPTION) == 0


CHARGING = """
from pathlib import Path


def charge(message):
    if int(message.value) % 10 == 3 and not Path({flag!r}).exists():
        raise ValueError("the deploy broke it")
    return message.value
"""


def test_sp2_a_deploy_that_broke_messages_is_repaired_by_commands(
    once: Orders, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = tmp_path / "fixed"
    (tmp_path / "charging.py").write_text(CHARGING.format(flag=str(fixed)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    once.publish(range(COUNT))

    def run(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main([*words, *once.words, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    processing = ("process", once.topic, "-s", SUBSCRIPTION, "--into", once.into, "--function", "charging:charge")
    redriving = ("redrive", "start", "--from", once.letters)
    failed = COUNT // 10
    broken = run(*processing, "--until-caught-up")
    assert (broken["messages"], broken["processed"], broken["dead"]) == (COUNT, COUNT - failed, failed)
    assert once.broker.backlog(once.letters, HANDLED) == failed

    # Too early: one of them fails again, and is a dead letter with its history.
    assert run(*redriving, "--where", "cast(value as string) = '13'")["sent"] == 1
    assert run(*processing, "--until-caught-up")["dead"] == 1
    again = once.dead()[-1].properties()
    assert (again["own"], again["REDRIVE_GENERATION"], again["REDRIVE_SUBSCRIPTION"]) == ("13", "1", SUBSCRIPTION)
    assert len(read_history(again)) == 2

    fixed.touch()
    assert run(*redriving)["sent"] == failed
    assert run(*processing, "--until-caught-up")["processed"] == failed
    assert sorted(once.produced()) == list(range(COUNT))
    assert once.backlog() == once.broker.backlog(once.letters, HANDLED) == 0
