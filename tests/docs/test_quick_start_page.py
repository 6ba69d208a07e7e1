"""docs/quick-start.md and docs/testing.md run: every command, and every program."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from magnetar.cli.app import command_for
from magnetar.cli.main import main
from magnetar.testing import broker

command_for([])  # imported here: pytest rewrites modules, and in two threads at once Python 3.11 cannot

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
QUICK_START = (DOCS / "quick-start.md").read_text(encoding="utf-8")
TESTING = (DOCS / "testing.md").read_text(encoding="utf-8")
SESSION = "".join(re.findall(r"<!-- test: quick-start -->\n```console\n(.*?)```", QUICK_START, re.DOTALL))
PROGRAMS = re.findall(r"<!-- test: testing -->\n```python\n(.*?)```", TESTING, re.DOTALL)


def files(page: str) -> dict[str, str]:
    return dict(re.findall(r"<!-- test: file (\S+) -->\n```python\n(.*?)```", page, re.DOTALL))


def test_there_is_nothing_that_does_not_run() -> None:
    assert len(re.findall(r"^\$ ", SESSION, re.MULTILINE)) == 19
    assert QUICK_START.count("\n```") == 2 * (QUICK_START.count("<!-- test:") + 1), "the installation is not run"
    assert TESTING.count("\n```") == 2 * TESTING.count("<!-- test:")


def test_quick_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command prints the text below it, where … matches anything and runs of spaces match any."""
    monkeypatch.chdir(tmp_path)
    for name, text in files(QUICK_START).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with broker() as running:
        monkeypatch.setenv("MAGNETAR_URL", running.http_url)
        monkeypatch.setenv("SERVICE_URL", running.service_url)
        for step in SESSION.removeprefix("$ ").split("\n$ "):
            line, _, expected = step.partition("\n")
            program, *words = shlex.split(line)
            if program == "python":
                runpy.run_path(str(tmp_path / words[0]))
            else:
                if words[:2] == ["redrive", "start"] and "--dry-run" not in words:
                    words.append("--local")  # the broker of a test has no pipelines process
                assert (program, main(words)) == ("magnetar", 0), line
            printed = capsys.readouterr().out.rstrip("\n")
            pattern = re.sub(r"(\\ )+", " +", re.escape(expected.rstrip("\n")))
            pattern = re.sub(r"\\\n…$", r"(\n.*)?", pattern).replace("…", ".*")
            assert re.fullmatch(pattern, printed, re.DOTALL), f"{line}\n{printed}"


@pytest.mark.parametrize(
    ("program", "printed"),
    list(zip(PROGRAMS, ("b'order 1' False", "b'not an order' MaxRedeliveries"), strict=True)),
    ids=["deduplication", "dead-letters"],
)
def test_a_broker_in_a_program(program: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(program, {})
    assert printed in capsys.readouterr().out


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    for name, text in files(TESTING).items():
        pytester.makepyfile(**{name.removesuffix(".py"): text})
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)
