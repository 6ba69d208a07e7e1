"""Help: placeholders instead of Python types, -h everywhere, commands under headings, completion, marks."""

from __future__ import annotations

import re

import pytest

from magnetar.admin.http.unsupported import gap_at
from magnetar.cli.app import GROUPS, group_of
from magnetar.cli.help import PULSAR_ONLY
from magnetar.cli.main import main
from magnetar.cli.policies.table import POLICIES

NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
COMMANDS = [(group, command.name) for group in GROUPS for command in group_of(group).commands]


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_no_page_shows_a_type_of_python(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    for words in [[], ["standalone"], ["pipelines"], *([group] for group in GROUPS), *map(list, COMMANDS)]:
        page = help_of(capsys, *words, "-h")
        assert re.findall(r"<\w+[^>]*>|\{[A-Z/]+\}", page) == [], words


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_arguments_and_options_have_placeholders(capsys: pytest.CaptureFixture[str], word: str) -> None:
    page = help_of(capsys, "messages", "publish", word)
    assert "publish [OPTIONS] TOPIC [MESSAGE]…" in page
    assert re.search(r"--deliver-after +DURATION", page) and re.search(r"--file +-f +FILE", page)
    assert re.search(r"--json +Print JSON", page)


def test_commands_are_under_headings_and_those_of_pulsar_alone_last(capsys: pytest.CaptureFixture[str]) -> None:
    page = help_of(capsys, "topics", "--help")
    headings = re.findall(r"╭─ (.*?) ─+╮", page)
    assert headings[1:3] == ["Topics", "Statistics and metadata"] and "Policies: failed messages" not in headings
    assert headings[-1].startswith("Apache Pulsar only")
    assert "Policies: failed messages" in help_of(capsys, "namespaces", "--help")


def test_the_mark_is_on_what_this_broker_rejects_and_on_nothing_else() -> None:
    for policy in POLICIES:
        paths = [(NAMESPACE, policy.namespace), (TOPIC, policy.topic)]
        gaps = {gap_at(f"{prefix}/{part}") is not None for prefix, part in paths if part}
        if gaps:
            assert gaps == {policy.is_pulsar_only}, policy.name
    marked = {(group, one.name) for group in GROUPS for one in group_of(group).commands if one.is_pulsar_only}
    assert {
        ("topics", "compact"),
        ("topics", "compaction-status"),
        ("topics", "set-inactive-topic-policies"),
    } <= marked
    assert gap_at(f"{TOPIC}/compaction") is not None
    assert all(PULSAR_ONLY in one.help for one in group_of("topics").commands if one.is_pulsar_only)


@pytest.mark.parametrize(
    ("line", "expected"),
    [("magnetar sub", ["subscriptions"]), ("magnetar topics create-p", ["create-partitioned-topic"])],
)
def test_completion(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]
) -> None:
    monkeypatch.setenv("_MAGNETAR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    assert (ended.value.code, capsys.readouterr().out.split()) == (0, expected)


def test_commands_on_two_clusters_do_not_advise_an_option_that_they_have_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["replication", "diff", "http://127.0.0.1:1", "http://127.0.0.1:2"]) == 2
    message = capsys.readouterr().err
    assert "--url" not in message and "cluster A" in message and "first argument" in message


def test_a_noun_alone_shows_its_help_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics"]) == 2
    out, err = capsys.readouterr()
    assert "Usage: magnetar topics" in out + err
    assert "magnetar: " not in err
