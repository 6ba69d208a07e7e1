"""The README's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.testing import broker

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"<!-- test: readme -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("block", BLOCKS, ids=["client", "testing"])
def test_block(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    with broker() as running:
        exec(block.replace("pulsar://127.0.0.1:6650", running.service_url), {})
    printed = capsys.readouterr().out
    assert ("b'order 1'" in printed) == ("order 1" in block)
