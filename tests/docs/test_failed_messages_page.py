"""The walk of docs/failed-messages.md runs, every command of it: 40,000 broken messages, a real broker and Spark."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar
import pytest

from magnetar.cli.main import main
from magnetar.testing import TestBroker, broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failed-messages.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- test: file (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
STEPS = dict(re.findall(r"<!-- test: sh (\w+) -->\n```sh\n(.*?)```", PAGE, re.DOTALL))

BROKEN, GOOD = 40_000, 199


@pytest.fixture
def running() -> Iterator[TestBroker]:
    with broker() as started:
        yield started


@pytest.mark.timeout(600)
def test_sp2_sp3_sp4_a_deploy_broke_40_000_messages(
    running: TestBroker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MAGNETAR_URL", running.http_url)
    monkeypatch.setenv("SERVICE_URL", running.service_url)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    runpy.run_path(str(tmp_path / "shop.py"))

    def step(name: str) -> str:
        for line in STEPS[name].splitlines():
            program, *words = shlex.split(line)
            if words[:2] == ["redrive", "start"] and "--dry-run" not in words:
                words.append("--local")  # the broker of a test has no pipelines process
            assert (program, main(words)) == ("magnetar", 0), line
        return capsys.readouterr().out

    assert re.search(rf"dead +{BROKEN + 1}\b", step("process"))
    assert re.search(rf"orders-billing-DLQ +{BROKEN + 1} ", step("overview"))
    why = step("why")
    assert re.search(rf"TypeError +\w{{12}} +{BROKEN} +'<=' not supported between", why)
    assert re.search(r"ValueError +\w{12} +1 +amount 0.0 of order 0 is not positive", why)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "TypeError" in report and "<script" not in report
    assert "EUR" in step("look")
    dry = step("dry")
    assert str(BROKEN) in dry and "EUR" in dry and "dry run, nothing was sent" in dry
    assert "done" in step("redrive")
    assert "amount 0.0 of order 0 is not positive" in step("purge")
    assert " 0 " in step("overview")
    assert sorted(invoices(running)) == list(range(1, BROKEN + GOOD + 1))


def invoices(running: TestBroker) -> list[int]:
    """The orders that were charged; amounts are quarters of their numbers."""
    found: list[int] = []
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(running.service_url, logger=logger)) as client:
        reader = client.create_reader("invoices", pulsar.MessageId.earliest)
        while reader.has_message_available():
            invoice = json.loads(reader.read_next(10_000).data())
            assert invoice["cents"] == invoice["order"] * 25
            found.append(invoice["order"])
    return found
