"""Commands in pages that no test runs as a whole exist, with their options; those of docs/moving-up.md run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from magnetar.cli.app import command_for
from magnetar.cli.main import main
from magnetar.testing import broker

command_for([])  # imported here: pytest rewrites modules, and in two threads at once Python 3.11 cannot

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("monitoring.md", "moving-up.md", "operations.md", "replication.md", "reliability.md", "security.md")
BLOCKS = re.compile(r"^( *)```(?:sh|console)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
NOT_COMMANDS = {"standalone", "backup", "restore"}  # they have parsers of their own


def commands(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = "\n".join(block for _, block in BLOCKS.findall(text)).replace("\\\n", " ").splitlines()
    found = [line.strip().removeprefix("$ ").removesuffix("&").strip() for line in lines]
    return [line for line in found if line.startswith("magnetar ")]


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in commands(page)])
def test_a_command_of_a_page_exists(
    page: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is parsed and not invoked."""
    words = [word for word in shlex.split(line.partition("  #")[0])[1:] if word != "…"]
    if words[0] in NOT_COMMANDS:
        return
    monkeypatch.setattr("typer.core.TyperCommand.invoke", lambda self, context: None)
    assert main(words) == 0, capsys.readouterr().err


def test_topics_move(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands of docs/moving-up.md, with a second broker in the place of Apache Pulsar, up to those on Spark."""
    text = (DOCS / "moving-up.md").read_text(encoding="utf-8").partition("## Move the topics")[2]
    text = text.partition("\n## ")[0]
    lines = [line.strip() for _, block in BLOCKS.findall(text) for line in block.splitlines()]
    with broker(replicationStartAt="earliest") as here, broker(clusterName="apache") as there:
        monkeypatch.setenv("MAGNETAR_URL", here.http_url)
        assert main(["messages", "publish", "orders", "order 1"]) == 0
        for line in lines:
            line = line.replace("http://pulsar.example.com:8080", there.http_url)
            line = line.replace("pulsar://pulsar.example.com:6650", there.service_url)
            line = line.replace("http://127.0.0.1:8080", here.http_url)
            program, *words = shlex.split(line)
            if words[:2] != ["replication", "verify"]:
                differs = int(words[:2] == ["replication", "diff"])  # its topics are not created without Spark
                assert (program, main(words)) == ("magnetar", differs), line
            if words[:2] == ["replication", "status"]:
                assert re.search(r"orders +apache +\S+", capsys.readouterr().out)
    assert len(lines) == 9
