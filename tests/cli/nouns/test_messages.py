"""Messages on the command line: publish, peek and tail, over pulsar:// and over the admin address."""

from __future__ import annotations

import base64
import io
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli.main import main
from magnetar.cli.views.messages import shown_message
from magnetar.testing import TestBroker
from tests.cli.conftest import CommandLine


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_publish_and_peek(cli: CommandLine) -> None:
    ids = cli.ok("messages", "publish", "greetings", "hello", "world", "-k", "k1", "-p", "lang=en").splitlines()
    assert len(ids) == 2
    found = lines(cli.ok("messages", "peek", "greetings", "--json"))
    assert [one["id"] for one in found] == ids
    assert [(one["value"], one["key"], one["properties"]) for one in found] == [
        ("hello", "k1", {"lang": "en"}),
        ("world", "k1", {"lang": "en"}),
    ]
    text = cli.ok("messages", "peek", "greetings", "-n", "1")
    assert text.startswith(f"{ids[0]}  [")
    assert text.endswith("Z, key=k1, lang=en]  hello\n")


def test_peek_acknowledges_nothing(cli: CommandLine) -> None:
    cli.ok("topics", "create", "letters")
    cli.ok("subscriptions", "create", "letters", "reader", "-m", "earliest")
    cli.ok("messages", "publish", "letters", "a", "b", "c")
    for _ in range(2):
        found = lines(cli.ok("messages", "peek", "letters", "-s", "reader", "-n", "2", "--json"))
        assert [one["value"] for one in found] == ["a", "b"]


def test_the_binary_address_may_be_given(cli: CommandLine, running: TestBroker) -> None:
    cli.ok("messages", "publish", "direct", "x", "--service-url", running.service_url)
    assert (
        lines(cli.ok("messages", "peek", "direct", "--json", "--service-url", running.service_url))[0]["value"] == "x"
    )


def test_partitions_are_read_as_one_topic(cli: CommandLine) -> None:
    cli.ok("topics", "create-partitioned-topic", "split", "-p", "3")
    cli.ok("messages", "publish", "split", *"abcdef")
    assert sorted(one["value"] for one in lines(cli.ok("messages", "peek", "split", "--json"))) == list("abcdef")


def test_a_file_is_one_message_and_stdin_one_per_line(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\xff\x00\n\n")
    cli.ok("messages", "publish", "files", "--file", str(file))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\nthree")))
    cli.ok("messages", "publish", "files")
    first, *others = lines(cli.ok("messages", "peek", "files", "--json"))
    assert "value" not in first
    assert base64.b64decode(first["valueBase64"]) == b"\xff\x00\n\n"
    assert [one["value"] for one in others] == ["one", "two", "three"]
    assert "base64:/wAKCg==" in cli.ok("messages", "peek", "files", "-n", "1")
    assert "messages and --file cannot be combined" in cli.fails(
        "messages", "publish", "files", "x", "-f", str(file), code=2
    )
    assert "cannot be read" in cli.fails("messages", "publish", "files", "-f", str(tmp_path / "none"), code=2)


def test_times(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "timed", "x", "--event-time", "2020-01-02T03:04:05Z", "--deliver-after", "1h")
    (found,) = lines(cli.ok("messages", "peek", "timed", "--json"))
    assert found["eventTime"] == "2020-01-02T03:04:05.000Z"
    assert found["deliverAt"] > found["publishTime"]


def test_tail_from_the_start_ends_after_a_count_or_with_the_topic(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "ending", "a", "b")
    assert [
        one["value"] for one in lines(cli.ok("messages", "tail", "ending", "--from-start", "-n", "1", "--json"))
    ] == ["a"]
    cli.ok("topics", "terminate", "ending")
    assert [one["value"] for one in lines(cli.ok("messages", "tail", "ending", "--from-start", "--json"))] == ["a", "b"]


def test_tail_waits_for_new_messages(cli: CommandLine, running: TestBroker) -> None:
    cli.ok("topics", "create", "followed")
    codes: list[int] = []
    tail = threading.Thread(
        target=lambda: codes.append(main(["messages", "tail", "followed", "-n", "1", "--url", running.http_url]))
    )
    tail.start()
    while not cli.json("topics", "stats", "followed")["subscriptions"]:
        pass  # until the reader is connected
    main(["messages", "publish", "followed", "news", "--url", running.http_url])
    tail.join(timeout=30)
    assert codes == [0]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("peek", "nosuch"), 1, "Topic persistent://public/default/nosuch not found"),
        (("tail", "nosuch"), 1, "Topic persistent://public/default/nosuch not found"),
        (("publish", "public/nowhere/x", "hello"), 1, "`magnetar namespaces create public/nowhere`"),
        (("peek", "x", "-n", "none"), 2, "'none' is not an integer from 1 to 2147483647"),
        (
            ("peek", "x", "-s", "s", "--service-url", "pulsar://h"),
            2,
            "--service-url cannot be combined with --subscription",
        ),
        (("publish", "x", "hello", "--service-url", "ftp://h"), 2, "ftp://h"),
    ],
)
def test_mistakes(cli: CommandLine, words: tuple[str, ...], code: int, message: str) -> None:
    assert message in cli.fails("messages", *words, code=code)


def test_an_empty_stdin_publishes_nothing(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert cli("messages", "publish", "x") == (0, "", "nothing to publish\n")


def test_control_characters_of_a_message_are_escaped() -> None:
    shown = shown_message({"id": "1:2:-1", "topic": "t", "key": "\x1b[2J", "value": "a\nb\x07ü"})
    assert shown == "1:2:-1  [key=\\x1b[2J]  a\\nb\\x07ü"
    assert shown_message({"id": "1:2:-1", "topic": "t", "value": None}) == "1:2:-1  []  (no value)"
    assert "(it is broken)" in shown_message({"id": "1:2:-1", "topic": "t", "value": None, "error": "it is broken"})


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for where in (["--url", f"http://{address}"], ["--service-url", f"pulsar://{address}"]):
            assert main(["messages", "publish", "x", "hello", *where]) == 1
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert address in err
            assert "start a broker with `magnetar standalone`" in err


# -- consume


def test_consume_prints_and_acknowledges(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "queue", "a", "b", "c", "-k", "k")
    words = ("messages", "consume", "queue", "-s", "work", "-p", "earliest")
    first = lines(cli.ok(*words, "-n", "2", "--json"))
    assert [(one["value"], one["key"]) for one in first] == [("a", "k"), ("b", "k")]
    assert cli.json("subscriptions", "list", "queue")[0]["msgBacklog"] == 1
    assert cli.ok(*words, "-t", "Exclusive").endswith("]  c\n")
    assert cli.json("subscriptions", "list", "queue")[0]["msgBacklog"] == 0
    assert cli(*words, "--timeout", "1s").err == "subscription work has no messages to read\n"


def test_consume_without_acknowledging(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "again", "a", "b")
    words = ("messages", "consume", "again", "-s", "work", "-p", "earliest", "-n", "0", "--timeout", "1s", "--json")
    for _ in range(2):
        assert [one["value"] for one in lines(cli.ok(*words, "--no-ack"))] == ["a", "b"]
    assert [one["value"] for one in lines(cli.ok(*words))] == ["a", "b"]
    assert cli(*words).out == ""


def test_consume_starts_at_the_end_unless_told_otherwise(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "latest", "old")
    assert cli("messages", "consume", "latest", "-s", "work", "--timeout", "1s").out == ""
    cli.ok("messages", "publish", "latest", "new")
    assert cli.ok("messages", "consume", "latest", "-s", "work").endswith("]  new\n")


@pytest.mark.parametrize(
    ("option", "value"), [("-t", "Sideways"), ("-p", "middle"), ("-n", "-1"), ("--timeout", "soon")]
)
def test_consume_refuses_bad_options(cli: CommandLine, option: str, value: str) -> None:
    assert value in cli.fails("messages", "consume", "t", "-s", "work", option, value, code=2)
