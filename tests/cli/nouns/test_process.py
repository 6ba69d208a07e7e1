"""`magnetar process`: options, what is refused before Spark starts, and a run to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from magnetar import testing
from magnetar.client import Client
from tests.cli.conftest import CommandLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTIONS = """
def shout(message):
    if message.value == b"b":
        raise ValueError("no b")
    return message.value.upper()
"""


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "give either --function or --sql"),
        (("--function", "a:b", "--sql", "select 1"), 2, "give either --function or --sql"),
        (("--sql", "select * from messages"), 2, "--sql needs --into: the rows of the query are published"),
        (("--function", "nowhere:b"), 1, "function nowhere:b: module nowhere cannot be imported"),
        (("--function", "json:loads", "--retry", "soon"), 1, "retry: 'soon' is not a duration such as"),
        (("--function", "json:loads", "--into", "orders"), 1, "is read by the same process, which would never end"),
        (("--function", "json:loads", "--dead-letters-of", "ValueError"), 2, "is not of the form CLASS=TOPIC"),
        (("--function", "json:loads", "--timeout", "0s"), 1, "timeout: 0s is not between 1ms and 86400s"),
    ],
)
def test_sp2_wrong_options_are_named(cli: CommandLine, words: tuple[str, ...], code: int, text: str) -> None:
    assert text in cli.fails("process", "orders", "-s", "s", *words, code=code)


def test_sp2_a_function_is_run_until_it_has_caught_up(
    spark: SparkSession,
    cli: CommandLine,
    running: testing.TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "shouting.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Client(running.service_url) as client, client.producer("said") as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(value)
    words = ("process", "said", "-s", "loud", "--until-caught-up", "--into", "shouted")
    code, out, err = cli(*words, "--function", "shouting:shout", "--retry", "1h", "--json")
    assert code == 0, err
    assert json.loads(out) == {"messages": 3, "processed": 2, "produced": 2, "retried": 1, "failed": 1}
    code, out, _ = cli(*words, "--function", "shouting:shout")
    assert (code, out.split()[:3]) == (0, ["messages", "0", "messages"])
