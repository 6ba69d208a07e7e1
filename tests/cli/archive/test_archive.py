"""`magnetar archive`: the commands against a real broker, with one Spark session."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from magnetar import testing
from magnetar.cli.main import main
from magnetar.client import EARLIEST, Client
from tests.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def archived(running: testing.TestBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a topic with three messages, which the topic keeps."""
    with Client(running.service_url) as client, client.producer("archived", batching=False) as producer:
        client.cursor("archived", "keep", initial_position=EARLIEST).position()
        for text in ("a", "b", "c"):
            producer.send(text.encode(), key=text)
    path = tmp_path_factory.mktemp("archived") / "archive"
    assert main(["archive", "run", str(path), "archived", "--url", running.http_url]) == 0
    return path


def ok(cli: CommandLine, *words: str) -> str:
    """What is printed to stdout; stderr has the progress."""
    code, out, err = cli("archive", *words)
    assert code == 0, err
    return out


def test_sp5_run_list_check_and_replay(cli: CommandLine, archived: Path, running: testing.TestBroker) -> None:
    path = str(archived)
    [listed] = json.loads(ok(cli, "list", path, "--json"))
    assert (listed["topic"], listed["subscription"]) == ("public/default/archived", "magnetar.archive")
    assert listed["from"] == listed["to"] and (listed["files"], listed["messages"]) == (1, 3)
    assert "ARCHIVED UP TO" in ok(cli, "list", path)
    [checked] = json.loads(ok(cli, "check", path, "--json"))
    assert checked["agrees"] and checked["compared"] == 3
    assert "1 topic compared, no difference" in ok(cli, "check", path, "archived")
    assert "0 messages archived in 0 files" in ok(cli, "run", path, "archived")
    with Client(running.service_url) as client:
        client.producer("replayed")
    words = ("replay", path, "--to", "replayed", "--where", "__key = 'b'")
    preview = json.loads(ok(cli, *words, "--dry-run", "--samples", "1", "--json"))
    assert [sample["value"] for sample in preview["samples"]] == ["b"]
    assert "1 message would be sent" in ok(cli, *words, "--dry-run")
    sent = json.loads(ok(cli, *words, "--json"))
    assert (sent["sent"], sent["exactlyOnce"]) == (1, False)
    assert "sends messages again" in sent["notes"][0]


def test_sp5_differences_are_exit_code_1(cli: CommandLine, archived: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(archived, copy)
    next(copy.glob("topic=*/date=*/part-*.parquet")).unlink()
    code, out, _ = cli("archive", "check", str(copy))
    assert code == 1
    assert "missing file" in out and "missing row" in out and "1 with differences" in out
    assert json.loads(cli("archive", "check", str(copy), "--json").out)[0]["differences"]["missing file"]["count"] == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("replay", "{path}", "--where", "__kee = 1", "--to", "archived"), "where '__kee = 1' is wrong"),
        (("replay", "{path}", "--since", "yesterday"), "'yesterday' is not a time such as"),
        (("replay", "{path}", "--since", "2026-02-01", "--until", "2026-01-01"), "is not before until"),
        (("replay", "{path}", "--rate", "0"), "is not a number of messages per second above 0"),
        (("replay", "{path}", "--exactly-once", "required"), "does not deduplicate"),
        (("replay", "{path}", "--to", "nowhere"), "nowhere does not exist"),
        (("run", "{path}", "a/b/c/d"), "is not a persistent topic, a pattern or a namespace"),
        (("run", "{path}", "archived", "--round-size", "1"), "--round-size 1 is not from 1K to 1T"),
        (("run", "{path}", "archived", "--format", "iceberg"), "'iceberg' is not one of"),
        (("run", "{path}-other", "archived", "--format", "delta"), "this Spark has no data source delta"),
        (("run", "{path}", "archived", "--format", "delta"), "has no data source delta: add Delta Lake to it"),
        (("run", "{path}", "archived", "--format", "orc"), "is an archive of format parquet, not orc"),
        (("check", "{path}-other"), "is not an archive"),
        (("list", "{path}-other"), "is not an archive"),
    ],
)
def test_sp5_mistakes_have_one_line(cli: CommandLine, archived: Path, words: tuple[str, ...], text: str) -> None:
    result = cli("archive", *(word.replace("{path}", str(archived)) for word in words))
    assert result.code != 0 and result.out == ""
    assert text in result.err
