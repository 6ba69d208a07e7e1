"""The page on reliability: every bound and every fault has a test, and its tables are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx
import pytest

from magnetar import health
from magnetar.admin.stats.broker_metrics import METRICS
from magnetar.bounds import Bound
from magnetar.cli.main import main
from magnetar.setting_bounds import ALL_BOUNDS
from magnetar.settings.settings import KINDS
from magnetar.testing import broker
from tools.reliability_reference import FAULTS, Fault, proofs_of, render

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize("bound", ALL_BOUNDS, ids=lambda bound: bound.name)
def test_a_bound_has_a_limit_and_a_test(bound: Bound) -> None:
    assert bound.setting in KINDS if bound.setting else bound.limit > 0
    assert proofs_of("bound", bound.name), f"no test is called test_bound_{bound.name.replace('-', '_')}…"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_a_test(fault: Fault) -> None:
    assert proofs_of("fault", fault.name), f"no test is called test_fault_{fault.name.replace('-', '_')}…"


def test_names_are_unique() -> None:
    for rows in (ALL_BOUNDS, FAULTS):
        names = [row.name for row in rows]
        assert sorted(set(names)) == sorted(names)


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page, "run `make docs`"


def test_the_commands_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (session,) = re.findall(r"<!-- test: reliability -->\n```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with broker(tmp_path / "data") as running:
        monkeypatch.setenv("MAGNETAR_URL", running.http_url)
        for step in session.removeprefix("$ magnetar ").split("\n$ magnetar "):
            words, _, expected = step.partition("\n")
            assert main(shlex.split(words)) == 0
            printed = re.sub(" +\n", "\n", capsys.readouterr().out).rstrip("\n")
            assert re.fullmatch(re.escape(expected.rstrip("\n")).replace("…", ".*"), printed, re.DOTALL), printed


def test_the_probes_of_the_page_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    with broker() as running:
        paths = set(re.findall(r"/(?:health|status|admin/v2/brokers)[\w/.]*", page))
        assert {"/health/live", "/health/ready", "/status.html", "/admin/v2/brokers/health"} <= paths
        for path in paths:
            assert httpx.get(running.http_url + path).status_code == 200, path


def test_the_page_has_the_limits_of_health() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"timers do not run ({health.TIMER_FAILED_S:g} s)" in page
    assert f"a commit makes no progress ({health.COMMIT_FAILED_S:g} s)" in page
    assert f"the event loop was blocked ({health.LOOP_LAG_FAILED_S:g} s)" in page
    assert f"a write is not durable within {health.PROOF_DEADLINE_S:g} s" in page
    assert f"a commit that takes {health.COMMIT_WARNING_S:g} s" in page


def test_the_metrics_of_the_page_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:pulsar|magnetar|process)_[a-z_]+)`", page.partition("## Faults")[0]))
    assert named and named <= {metric.name for metric in METRICS}
