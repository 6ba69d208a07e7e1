"""The README's code blocks run unchanged."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from magnetar.cli.main import main
from magnetar.testing import broker

README = Path(__file__).parents[2] / "README.md"
SESSIONS = re.findall(r"<!-- test: readme -->\n```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
BLOCKS = re.findall(r"<!-- test: readme -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["client", "testing"])
def test_block(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    with broker() as running:
        exec(block.replace("pulsar://127.0.0.1:6650", running.service_url), {})
    printed = capsys.readouterr().out
    assert ("b'order 1'" in printed) == ("order 1" in block)


def test_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints the text below it, where … matches anything; after the block above it, as a reader does."""
    (session,) = SESSIONS
    with broker() as running:
        exec(BLOCKS[0].replace("pulsar://127.0.0.1:6650", running.service_url), {})
        capsys.readouterr()
        monkeypatch.setenv("MAGNETAR_URL", running.http_url)
        for step in session.removeprefix("$ magnetar ").split("\n$ magnetar "):
            words, _, expected = step.partition("\n")
            assert main(shlex.split(words)) == 0
            printed = capsys.readouterr().out.rstrip("\n")
            assert re.fullmatch(re.escape(expected.rstrip("\n")).replace("…", ".*"), printed, re.DOTALL), printed
