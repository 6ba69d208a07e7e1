"""`magnetar redrive`: run by the command on the tests' Spark, and declared in a broker that runs it itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from magnetar import testing
from magnetar.client import EARLIEST, Client, Message
from magnetar.client.errors import Timeout
from tests.cli.conftest import CommandLine
from tests.crash.killable import KillableBroker

COUNT = 6
_numbers = count()


class Orders:
    """A topic, and the dead letters of its subscription `billing`."""

    def __init__(self, cli: CommandLine, service_url: str) -> None:
        self.name = f"redriven{next(_numbers)}"
        self.letters = f"{self.name}-billing-DLQ"
        self.cli = cli
        self._url = service_url
        cli.ok("topics", "create", self.name)
        cli.ok("subscriptions", "create", self.name, "billing", "-m", "earliest")
        with Client(service_url) as client, client.producer(self.letters) as producer:
            for number in range(COUNT):
                properties = {"REAL_TOPIC": f"persistent://public/default/{self.name}", "ORIGIN_MESSAGE_ID": "7:3:-1"}
                producer.send(json.dumps({"n": number}).encode(), key="k", properties=properties)

    def start(self, *words: str) -> list[str]:
        return ["redrive", "start", "--from", self.letters, *words]

    @property
    def waiting(self) -> int:
        return len(self.cli.json("deadletters", "list", self.letters)["deadLetters"])

    def received(self) -> list[Message]:
        found: list[Message] = []
        with (
            Client(self._url) as client,
            client.consumer(self.name, "billing", initial_position=EARLIEST) as consumer,
        ):
            while True:
                try:
                    found.append(consumer.receive(timeout_s=0.5))
                except Timeout:
                    return found
                consumer.acknowledge(found[-1])


@pytest.fixture
def orders(cli: CommandLine, running: testing.TestBroker) -> Orders:
    return Orders(cli, running.service_url)


def shown(cli: CommandLine, *words: str) -> str:
    """What is printed to stdout; stderr has the progress."""
    code, out, err = cli(*words)
    assert code == 0, err
    return " ".join(out.split())


def test_sp3_a_dry_run_shows_counts_and_samples_and_sends_nothing(orders: Orders, spark: SparkSession) -> None:
    words = orders.start("--where", "payload.n >= 2", "--set", "payload.n = payload.n + 10", "--dry-run")
    text = shown(orders.cli, *words)
    target = f"persistent://public/default/{orders.name}"
    for part in ("dry run, nothing was sent", "letters 4", "sent 4", f"{target} 4", '{"n": 2}', '{"n": 12}'):
        assert part in text, text
    code, out, err = orders.cli(*words, "--samples", "1", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["total"], found["sent"], found["targets"], found["kept"]) == (4, 4, {target: 4}, {})
    [sample] = found["samples"]
    assert (sample["topic"], sample["target"]) == (target, target)
    assert (sample["before"]["value"], sample["after"]["value"]) == ('{"n": 2}', '{"n": 12}')
    assert sample["after"]["properties"]["REDRIVE_GENERATION"] == "1"
    assert orders.waiting == COUNT and orders.received() == []


def test_sp3_a_local_redrive_sends(orders: Orders, spark: SparkSession) -> None:
    code, out, err = orders.cli(*orders.start("--local", "--where", "payload.n < 4", "--json"))
    assert code == 0, err
    found = json.loads(out)
    assert (found["state"], found["total"], found["sent"], found["quarantined"]) == ("done", 4, 4, 0)
    assert "redrive: done, 4 of 4" in err
    assert "redrive mine state done letters 2 sent 2" in shown(orders.cli, *orders.start("--local", "--name", "mine"))
    messages = orders.received()
    assert [json.loads(one.value or b"")["n"] for one in messages] == list(range(COUNT))
    assert {one.properties["REDRIVE_SUBSCRIPTION"] for one in messages} == {"billing"}
    assert orders.waiting == 0
    assert "letters 0" in shown(orders.cli, *orders.start("--local"))


def test_sp3_letters_that_stay_are_counted_by_reason(orders: Orders, spark: SparkSession) -> None:
    orders.cli.ok("subscriptions", "delete", orders.name, "billing")
    text = shown(orders.cli, *orders.start("--local"))
    reason = f"the origin persistent://public/default/{orders.name} has no subscription 'billing' any more"
    assert f"STAYS WHERE IT IS, BECAUSE LETTERS {reason} {COUNT}" in text
    assert orders.waiting == COUNT


def test_sp3_a_declared_redrive_is_listed_shown_paused_and_cancelled(cli: CommandLine, orders: Orders) -> None:
    """This broker starts no pipelines process: what is declared waits."""
    assert cli("redrive", "list") == (0, "", "no redrives in public/default\n")
    started = cli.ok(*orders.start("--where", "reason = 'Client'", "--name", "fix", "--detach"))
    assert started == "started public/default/fix: `magnetar redrive show fix` shows its progress\n"
    [one] = cli.json("redrive", "list")
    assert (one["name"], one["verb"], one["wanted"]) == ("fix", "redrive", "running")
    full = f"persistent://public/default/{orders.letters}"
    assert one["spec"] == {"sources": [full], "where": "reason = 'Client'"}
    page = cli.ok("redrive", "show", "fix")
    assert "public/default/fix" in page and "reason = 'Client'" in page
    assert "is over" not in cli.ok("redrive", "list")
    assert cli.ok("redrive", "pause", "fix") == "pausing public/default/fix\n"
    assert cli.json("redrive", "show", "fix")["state"] == "paused"
    assert cli.ok("redrive", "resume", "fix") == "resumed public/default/fix\n"
    claimed = cli.fails(*orders.start("--name", "other", "--detach"))
    assert "fix" in claimed and orders.letters in claimed
    assert cli.ok("redrive", "cancel", "fix") == "cancelling public/default/fix\n"
    cli.ok("pipelines", "delete", "public/default", "fix", "--force")
    assert "fix" in cli.fails("redrive", "show", "fix")
    assert orders.waiting == COUNT


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (("--set", "topic = 'x'"), "'topic' cannot be assigned, but key, ordering_key, event_time, value, payload", 2),
        (("--set", "key"), "is not of the form COLUMN = EXPRESSION", 2),
        (("--set", "key = '1'", "--set", "key = '2'"), "overwrites", 2),
        (("--local", "--detach"), "--detach needs a Magnetar broker that runs the redrive", 2),
        (("--master", "local[2]"), "--master needs --local: the broker runs this redrive", 2),
        (("--at-least-once",), "--at-least-once needs --local: the broker runs this redrive", 2),
        (("--rate", "0"), "Invalid value for '--rate'", 2),
        (("--max-generations", "0"), "'0' is not an integer from 1 to 1000", 2),
        (("--samples", "101", "--dry-run"), "'101' is not an integer from 0 to 100", 2),
        (("--where", "amount <", "--detach"), "amount <", 1),
    ],
)
def test_sp3_wrong_options_have_one_line(orders: Orders, words: tuple[str, ...], text: str, code: int) -> None:
    assert text in orders.cli.fails(*orders.start(*words), code=code)
    assert orders.waiting == COUNT


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--where", "amount <"), "where 'amount <' is wrong"),
        (("--where", "amuont = 1"), "amuont"),
        (("--set", "payload.n = nothing(1)"), "nothing"),
        (("--function", "no_such_module:fix"), "function no_such_module:fix: no_such_module cannot be imported"),
        (("--from", "nowhere-billing-DLQ"), "nowhere-billing-DLQ does not exist"),
    ],
)
@pytest.mark.parametrize("how", ["--local", "--dry-run"])
def test_sp3_mistakes_that_spark_finds_have_one_line(
    orders: Orders, spark: SparkSession, words: tuple[str, ...], text: str, how: str
) -> None:
    code, out, err = orders.cli(*orders.start(*words, how))
    assert code != 0 and out == ""
    assert text in err.splitlines()[-1]
    assert orders.waiting == COUNT


def test_sp3_a_topic_that_has_no_dead_letters_is_named(orders: Orders, spark: SparkSession) -> None:
    code, out, err = orders.cli("redrive", "start", "--from", orders.name, "--local")
    assert (code, out) == (2, "")
    assert f"{orders.name} is not a dead letter topic: its dead letter topics are" in err and orders.letters in err


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[KillableBroker]:
    broker = KillableBroker(tmp_path / "data", ("pipelinesMaster=local[2]", "pipelinesLingerSeconds=0"))
    broker.start()
    yield broker
    broker.kill()


@pytest.mark.timeout(300)
def test_sp3_sp7_the_command_follows_a_redrive_that_the_broker_runs(
    standalone: KillableBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(standalone.http_url, capsys)
    orders = Orders(cli, standalone.service_url)
    code, out, err = cli(*orders.start("--name", "fix", "--set", "properties.fixed = 'yes'", "--json"))
    assert code == 0, err
    found = json.loads(out)
    assert (found["state"], found["progress"]["done"], found["progress"]["total"]) == ("done", COUNT, COUNT)
    assert [one.properties["fixed"] for one in orders.received()] == ["yes"] * COUNT
    assert "done" in cli.ok("redrive", "list")
    code, out, err = cli(*orders.start("--name", "wrong", "--where", "missing = 1"))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("magnetar: wrong failed: where 'missing = 1' is wrong")
