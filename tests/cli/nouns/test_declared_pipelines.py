"""`magnetar pipelines list`, `show` and the other commands of declared pipelines, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.cli.views.pipelines import bar, left
from tests.cli.conftest import CommandLine

FIX = ("public/default", "fix")
SPEC = '{"sources": ["t-s-DLQ"]}'


@pytest.fixture
def declared(cli: CommandLine) -> Iterator[CommandLine]:
    cli.ok("pipelines", "declare", *FIX, "redrive", "--spec", SPEC)
    yield cli
    for one in cli.json("pipelines", "list"):
        cli.ok("pipelines", "delete", one["namespace"], one["name"], "--force")


def report(cli: CommandLine, state: str, **values: Any) -> None:
    found = cli.json("pipelines", "show", *FIX)
    row = {"id": found["id"], "run": found["run"], "state": state, **values}
    body = {"pipeline": "p1", "isAll": True, "rows": [row]}
    httpx.put(f"{cli.url}/admin/v2/pipelines/reports", json=body, trust_env=False).raise_for_status()


def test_sp3_sp7_the_table_has_progress_rate_and_time_left(declared: CommandLine) -> None:
    progress = {"done": 42_000, "total": 100_000, "note": "sending", "counts": {"quarantined": 3}}
    report(declared, "running", progress=progress, rate=1000.0)
    head, row = declared.ok("pipelines", "list").splitlines()
    assert " ".join(head.split()) == "pipeline verb state progress done total rate left reason"
    shown = "public/default/fix redrive running ####------ 42 % 42000 100000 1,000/s 58 s sending"
    assert " ".join(row.split()) == shown
    assert declared.ok("pipelines", "list", "public/default").splitlines()[1] == row
    page = declared.ok("pipelines", "show", *FIX)
    for text in ("wanted             running", "quarantined        3", "left               58 s", "sources", "t-s-DLQ"):
        assert text in page, page


def test_sp7_pause_resume_cancel_and_runs(declared: CommandLine) -> None:
    assert declared.ok("pipelines", "pause", *FIX) == "pausing public/default/fix\n"
    assert declared.json("pipelines", "show", *FIX)["state"] == "paused"
    assert declared.ok("pipelines", "resume", *FIX) == "resumed public/default/fix\n"
    assert "cancel it first" in declared.fails("pipelines", "delete", *FIX)
    code, out, err = declared("pipelines", "runs", *FIX)
    assert (code, out, err) == (0, "", "no run of public/default/fix is over yet\n")
    report(declared, "failed", reason="no such column", progress={"done": 3})
    assert declared.ok("pipelines", "runs", *FIX).splitlines()[1].split()[:2] == ["1", "failed"]
    assert "no such column" in declared.ok("pipelines", "list")
    declared.ok("pipelines", "resume", *FIX)
    assert declared.ok("pipelines", "cancel", *FIX) == "cancelling public/default/fix\n"


def test_sp3_a_spec_from_a_file_and_what_is_wrong_with_it(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"sources": ["u-s-DLQ"], "where": "__key = 'a'"}))
    words = ("pipelines", "declare", "public/default", "paused", "redrive")
    assert "u-s-DLQ" in cli.ok(*words, "--spec", f"@{file}", "--paused")
    assert cli.json("pipelines", "show", "public/default", "paused")["wanted"] == "paused"
    cli.ok("pipelines", "delete", "public/default", "paused", "--force")
    assert "No such file" in cli.fails(*words, "--spec", f"@{file}.no", code=2)
    assert "is not JSON" in cli.fails(*words, "--spec", "{", code=2)
    assert "is not a JSON object" in cli.fails(*words, "--spec", "[]", code=2)
    assert "sources is empty" in cli.fails(*words, "--spec", '{"sources": []}')


def test_without_pipelines_a_note_says_so(cli: CommandLine) -> None:
    assert cli("pipelines", "list") == (0, "", "no pipelines are declared\n")
    assert cli("pipelines", "list", "public/default") == (0, "", "no pipelines are declared in public/default\n")


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [(0, 10, "----------   0 %"), (999, 1000, "#########-  99 %"), (10, 10, "########## 100 %"), (5, None, "")],
)
def test_the_bar_is_full_only_at_the_end(done: int, total: int | None, expected: str) -> None:
    assert bar(done, total) == expected


@pytest.mark.parametrize(
    ("rest", "rate", "state", "expected"),
    [
        (59, 1.0, "running", "59 s"),
        (61, 1.0, "running", "1 min 1 s"),
        (7200, 1.0, "running", "2 h 0 min"),
        (5, 0.0, "running", ""),
        (5, 1.0, "paused", ""),
    ],
)
def test_time_left(rest: int, rate: float, state: str, expected: str) -> None:
    assert left({"progress": {"total": rest}, "rate": rate, "state": state}) == expected
