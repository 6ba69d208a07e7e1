"""`magnetar deadletters sql`, `report` and `purge` against a broker, and against one without our REST paths."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from magnetar import testing
from magnetar.cli.rest import Refused, Rest
from magnetar.client import Client
from magnetar.client.errors import of_status
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from tests.cli.conftest import CommandLine
from tests.spark.dead_letters.letters_of_clients import JAVA, acknowledge, failed, publish, rest, topic_path
from tests.spark.inline_clients import close_inline_clients

NUMBERS = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[testing.TestBroker]:
    with testing.broker() as running:
        yield running
    close_inline_clients()


@pytest.fixture(scope="module")
def letters(running: testing.TestBroker) -> str:
    """A namespace with two dead letter topics: ten letters, half of them with an error."""
    rest(running, "PUT", "namespaces/public/queried")
    with Client(running.service_url) as client:
        for topic in ("public/queried/orders", "public/queried/payments"):
            made = [failed("orders", "Expired", error="ValueError: no price" if n % 2 else "") for n in range(5)]
            payloads = [json.dumps({"id": n, "amount": n / 2}).encode() for n in range(5)]
            publish(client, f"{topic}-s-DLQ", *zip(payloads, made, strict=True))
        publish(client, "public/queried/java-s-DLQ", (b"<script>alert('x')</script>", JAVA))
    return "public/queried"


@pytest.fixture
def topic(running: testing.TestBroker) -> str:
    """A new dead letter topic with ten letters outside batches, and six in a batch."""
    name = f"purged{next(NUMBERS)}-s-DLQ"
    reasons = ["Expired", "MaxRedeliveries"]
    with Client(running.service_url) as client:
        publish(client, name, *((b"%d" % n, failed("purged", reasons[n % 2])) for n in range(10)), batching=False)
        publish(client, name, *((b"b%d" % n, failed("purged", reasons[n % 2])) for n in range(6)))
    return name


@pytest.fixture
def like_apache_pulsar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the paths that only our broker has."""
    original, original_rest = CursorAdmin._request, Rest.request

    def request(self: CursorAdmin, method: str, path: str, what: str, **more: Any) -> bytes:
        if path.rpartition("/")[2] in ("unacknowledged", "acknowledge", "deadLetters"):
            raise of_status(404, f"{what}: HTTP 404 Not Found")
        return original(self, method, path, what, **more)

    def rest_request(self: Rest, method: str, segments: tuple[str, ...], **more: Any) -> Any:
        if "deadLetters" in segments:
            raise Refused(405, "no such path")
        return original_rest(self, method, segments, **more)

    monkeypatch.setattr(CursorAdmin, "_request", request)
    monkeypatch.setattr(Rest, "request", rest_request)


def values(cli: CommandLine, topic: str) -> list[str]:
    found = cli.json("deadletters", "sql", "select value order by __messageId", "--topic", topic)
    return [row["value"] for row in found]


# -- sql


def test_sp4_sql_over_a_namespace(spark: SparkSession, cli: CommandLine, letters: str) -> None:
    out = cli.ok("deadletters", "sql", "select reason, count(*) as n group by reason order by n desc", "-n", letters)
    assert [line.split() for line in out.splitlines()] == [["reason", "n"], ["Expired", "10"], ["Client", "1"]]
    query = "select payload.amount as amount, key, exception from letters where payload.id = 3 order by letter_topic"
    assert (
        cli.json("deadletters", "sql", query, "-n", letters)
        == [{"amount": 1.5, "key": "k3", "exception": "ValueError"}] * 2
    )
    printed = cli.ok(
        "deadletters",
        "sql",
        "select key, payload_json, value from letters where reason = 'Client'",
        "-n",
        letters,
        "--csv",
    )
    script = "<script>alert('x')</script>"
    assert list(csv.reader(io.StringIO(printed))) == [["key", "payload_json", "value"], ["k0", script, script]]
    cut = cli.ok("deadletters", "sql", "select count from letters", "-n", letters, "--limit", "2")
    assert cut.splitlines()[-1] == "more than 2 rows: --limit shows more"
    assert cli.json("deadletters", "sql", "select count(*) as n", "-t", "public/queried/(orders|java).*") == [{"n": 6}]


def test_sp4_wrong_sql_is_one_clear_sentence(spark: SparkSession, cli: CommandLine, letters: str) -> None:
    def error(query: str) -> str:
        return cli.fails("deadletters", "sql", query, "-n", letters)

    assert error("select raeson from letters").startswith(
        "SQL: A column, variable, or function parameter with name `raeson`"
    )
    assert "Did you mean one of the following? [`reason`" in error("select raeson from letters")
    assert error("select reason frm letters wher") == "SQL: syntax error at or near 'letters' (line 1, position 19)"
    assert "`amuont`" in error("select payload.amuont from letters")
    assert error("select 1 / count(if(reason = 'x', 1, null)) from letters").startswith("SQL: division by zero")
    assert "is no query" in cli.fails("deadletters", "sql", "drop view letters", code=2)
    assert "unknown" not in cli.ok("deadletters", "sql", "describe letters", "-n", letters)


def test_sp4_namespaces_without_dead_letters(
    spark: SparkSession, cli: CommandLine, running: testing.TestBroker
) -> None:
    rest(running, "PUT", "namespaces/public/quiet")
    code, out, err = cli("deadletters", "sql", "select * from letters", "-n", "public/quiet")
    assert (code, out, err) == (0, "", "no dead letters\n")
    assert cli.json("deadletters", "sql", "select count(*) as n from letters", "-n", "public/quiet") == [{"n": 0}]
    assert cli.ok("deadletters", "report", "-n", "public/quiet") == "no dead letters in public/quiet\n"
    assert "`magnetar namespaces create public/no`" in cli.fails("deadletters", "report", "-n", "public/no")


# -- report


def test_sp4_report(spark: SparkSession, cli: CommandLine, letters: str, tmp_path: Path) -> None:
    found = cli.json("deadletters", "report", "-n", letters)
    assert (found["totals"]["letters"], found["totals"]["today"], found["totals"]["causes"]) == (11, 11, 3)
    assert [(row["reason"], row["exception"], row["letters"]) for row in found["causes"]] == [
        ("Expired", None, 6),
        ("Expired", "ValueError", 4),
        ("Client", None, 1),
    ]
    assert {row["is_new"] for row in found["changes"]} == {True}
    assert sum(sum(each["reasons"].values()) for each in found["overTime"]) == 11
    assert sorted((row["topic"], row["letters"]) for row in found["origins"])[1] == (
        "persistent://public/default/orders",
        10,
    )
    assert [one["payload"] for one in found["samples"] if one["reason"] == "Client"] == ["<script>alert('x')</script>"]
    assert "Expired: ValueError" in cli.ok("deadletters", "report", "-n", letters)
    file = tmp_path / "report.html"
    assert (
        cli.ok("deadletters", "report", "-n", letters, "--html", str(file)) == f"11 dead letters reported in {file}\n"
    )
    text = file.read_text(encoding="utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text and "http:" not in text and "https:" not in text
    later = cli.json("deadletters", "report", "-n", letters, "--since", "2100-01-01T00:00:00Z")
    assert later["totals"]["letters"] == 0
    assert "does not exist" in cli.fails("deadletters", "report", "--html", str(tmp_path / "a" / "b.html"), code=2)


# -- purge


def test_sp4_purge_acknowledges_what_matches(
    spark: SparkSession, cli: CommandLine, running: testing.TestBroker, topic: str
) -> None:
    acknowledge(running, topic, "one", [0])
    acknowledge(running, topic, "two", [])
    error = cli.fails("deadletters", "purge", topic, "--where", "reason = 'Expired'", "--yes", "7")
    assert error == "8 dead letters match, not 7: nothing was changed"
    assert len(values(cli, topic)) == 16
    done = cli.json("deadletters", "purge", topic, "--where", "reason = 'Expired'", "--yes", "8")
    assert (done["matching"], done["acknowledged"], done["inBatches"]) == (8, 8, 0)
    assert values(cli, topic) == ["1", "3", "5", "7", "9", "b1", "b3", "b5"]
    assert cli.ok("deadletters", "purge", topic, "--where", "reason = 'Expired'") == "no dead letters match\n"
    assert "8 dead letters acknowledged" in cli.ok("deadletters", "purge", topic, "--all", "--yes", "8")
    assert cli.ok("deadletters", "purge", topic, "--all") == "no dead letters wait\n"


def test_sp4_purge_creates_a_subscription_where_there_is_none(
    spark: SparkSession, cli: CommandLine, topic: str
) -> None:
    out = cli.ok("deadletters", "purge", topic, "--where", "payload_json = '4'", "--yes", "1")
    assert "created subscription magnetar.handled on persistent://public/default/" in out
    assert "4" not in values(cli, topic) and len(values(cli, topic)) == 15


def test_sp4_purge_asks_for_the_number(
    spark: SparkSession, cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("deadletters", "purge", topic, "--where", "reason = 'Expired'")
    monkeypatch.setattr("builtins.input", lambda: "7")
    code, out, err = cli(*words)
    assert (code, out) == (2, "") and "not confirmed: type 8, or give --yes 8; nothing was changed" in err
    assert "… and 3 more" in err and "8 dead letters will be acknowledged for all subscriptions" in err
    monkeypatch.setattr("builtins.input", lambda: "8")
    assert cli(*words).out.startswith("8 dead letters acknowledged")
    assert len(values(cli, topic)) == 8


def test_sp4_purge_on_apache_pulsar(
    spark: SparkSession, cli: CommandLine, running: testing.TestBroker, topic: str, like_apache_pulsar: None
) -> None:
    """Whole entries by the protocol; of a batch in which others do not match, none."""
    acknowledge(running, topic, "one", [1])
    acknowledge(running, topic, "two", [])
    code, out, _ = cli("deadletters", "purge", topic, "--where", "reason = 'Expired'", "--yes", "8", "--json")
    done = json.loads(out)
    assert (code, done["acknowledged"], done["inBatches"]) == (1, 5, 3)
    left = ["1", "3", "5", "7", "9", *(f"b{n}" for n in range(6))]
    assert values(cli, topic) == left
    assert "11 dead letters acknowledged" in cli.ok("deadletters", "purge", topic, "--all", "--yes", "11")
    assert values(cli, topic) == []


def test_sp4_purge_refuses(spark: SparkSession, cli: CommandLine, running: testing.TestBroker, topic: str) -> None:
    origin = topic.removesuffix("-s-DLQ")
    rest(running, "PUT", topic_path(origin))
    error = cli.fails("deadletters", "purge", origin, "--all")
    assert "is not a dead letter topic: its dead letter topics are persistent://public/default/" + topic in error
    assert "does not exist" in cli.fails("deadletters", "purge", "nothing-DLQ", "--all").replace(
        "not found", "does not exist"
    )
    assert "either --where SQL or --all" in cli.fails("deadletters", "purge", topic, code=2)
    assert "either a dead letter TOPIC or --namespace" in cli.fails("deadletters", "purge", "--all", code=2)
    error = cli.fails("deadletters", "purge", topic, "--where", "raeson = 'x'")
    assert error.startswith("--where: A column, variable, or function parameter with name `raeson`")


def test_sp4_purge_refuses_on_apache_pulsar(
    spark: SparkSession, cli: CommandLine, running: testing.TestBroker, topic: str, like_apache_pulsar: None
) -> None:
    origin = topic.removesuffix("-s-DLQ")
    rest(running, "PUT", topic_path(origin))
    error = cli.fails("deadletters", "purge", origin, "--all")
    assert "is not a dead letter topic: its dead letter topics are persistent://public/default/" + topic in error
