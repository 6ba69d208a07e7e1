"""The code of docs/dead-letters.md runs: Python and commands here, the same Java and Go text in `make compat`."""

from __future__ import annotations

import contextlib
import re
import shlex
import textwrap
from pathlib import Path

import pulsar
import pytest

from magnetar.cli.main import main
from magnetar.deadletter.properties import Reason
from magnetar.testing import broker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dead-letters.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"<!-- test: python -->\n```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = (
    "b'cannot be billed'",
    "MaxRedeliveries It failed 3 times",
    "'count': 2",
    "ValueError('no such customer') Pulsar-CPP",
)
OTHERS = {
    (language, name): block
    for language, name, block in re.findall(r"<!-- test: (java|go) (\w+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
}
SHELL = dict(re.findall(r"<!-- test: sh (\w+) -->\n```sh\n(.*?)```", PAGE, re.DOTALL))
IN_COMPAT = {
    "go": ROOT / "compat" / "go" / "dead_letters_page_test.go",
    "java": ROOT / "compat" / "java" / "src" / "test" / "java" / "magnetar" / "compat" / "DeadLetterPageTest.java",
}


def test_there_are_blocks_to_run() -> None:
    assert len(PYTHON) == 4 and sorted(SHELL) == ["see", "set"]
    assert PAGE.count("\n```") == 2 * (len(PYTHON) + len(SHELL) + len(OTHERS)), "a block that no test runs"
    names = ("broker", "client", "report", "retry")
    assert sorted(OTHERS) == [(language, name) for language in ("go", "java") for name in names]


@pytest.mark.parametrize(
    ("block", "printed"),
    list(zip(PYTHON, PRINTED, strict=True)),
    ids=["client", "broker", "rest", "report"],
)
def test_python(block: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with broker() as running:
        block = block.replace("pulsar://127.0.0.1:6650", running.service_url)
        exec(block.replace("http://127.0.0.1:8080", running.http_url), {})
    assert printed in capsys.readouterr().out


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as running, contextlib.closing(pulsar.Client(running.service_url)) as client:
        monkeypatch.setenv("MAGNETAR_URL", running.http_url)
        consumer = client.subscribe("orders", "billing", negative_ack_redelivery_delay_ms=10)
        assert "persistent://public/default/orders-billing-DLQ" in run(SHELL["set"], capsys)
        client.create_producer("orders").send(b"cannot be billed")
        for _ in range(2):
            consumer.negative_acknowledge(consumer.receive(10_000))
        letters = client.subscribe("orders-billing-DLQ", "inspection", initial_position=pulsar.InitialPosition.Earliest)
        letter = letters.receive(10_000).message_id()
        said = run(SHELL["see"].replace("5:0:-1", f"{letter.ledger_id()}:{letter.entry_id()}:-1"), capsys)
        assert "MaxRedeliveries" in said and "cannot be billed" in said


def run(block: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of the command line, line by line of a block."""
    for line in block.splitlines():
        program, *words = shlex.split(line)
        assert (program, main(words)) == ("magnetar", 0), line
    printed = capsys.readouterr()
    return printed.out


@pytest.mark.parametrize(("language", "name"), sorted(OTHERS))
def test_blocks_of_other_languages_are_in_their_tests(language: str, name: str) -> None:
    text = IN_COMPAT[language].read_text(encoding="utf-8")
    (region,) = re.findall(rf"// page: {name}\n(.*?)[ \t]*// end\n", text, re.DOTALL)
    assert textwrap.dedent(region) == OTHERS[language, name]


def test_every_reason_is_explained() -> None:
    assert [reason for reason in Reason if f"| `{reason}` |" not in PAGE] == []


def test_the_named_tests_exist() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "compat").rglob("*_test.go"), *(ROOT / "compat").rglob("*.java")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files if file != Path(__file__))
    table = PAGE[PAGE.index("## Tests") :]
    named = re.findall(r"`(test_\w+|Test\w+|dl\d+\w+)…?`", table)
    assert len(named) > 20
    assert [name for name in named if name not in code] == []
    assert [f"DL{row}" for row in range(1, 14) if f"| DL{row} |" not in table] == []
