"""The examples of docs/client.md run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.client import errors
from magnetar.testing import broker

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- test: client -->\n```python\n(.*?)```", PAGE, re.DOTALL)

PRINTED = (
    ["b'order 1000'"],
    ["not found", "['persistent://public/default/payments']"],
    ["done b'job 1'"],
    ["b'event 99'"],
    ["more: False", "bytes: "],
)


@pytest.mark.parametrize(("block", "printed"), list(zip(BLOCKS, PRINTED, strict=True)))
def test_block(block: str, printed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with broker() as running:
        code = block.replace("pulsar://127.0.0.1:6650", running.service_url)
        exec(code.replace("http://127.0.0.1:8080", running.http_url), {})
    out = capsys.readouterr().out
    for text in printed:
        assert text in out


def test_errors_that_the_page_names_exist() -> None:
    for name in ("NotFound", "NotSupported", "Timeout", "ConnectionLost", "ProtocolBroken", "UnreadableMessage"):
        assert f"`{name}`" in PAGE
        assert issubclass(getattr(errors, name), errors.ClientError)
