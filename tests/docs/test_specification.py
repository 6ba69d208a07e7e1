"""docs/specification.md has every row that code and tests cite, and every row in force has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ((?:DL|AC|PM|GR|SP)\d+) \| (.+) \|$", PAGE, re.MULTILINE))

CITED = re.compile(r"(?<![A-Za-z0-9])(?:DL|AC|PM|GR|SP)\d+(?![0-9A-Za-z])")
TEST = re.compile(r"\b(?:test_|def )\w+|\bfunc Test\w+|\bvoid \w+", re.IGNORECASE)


def texts(*folders: str) -> dict[Path, str]:
    files = (
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".go", ".java", ".md"}
    )
    return {path: path.read_text(encoding="utf-8") for path in files}


def test_every_cited_row_is_on_the_page() -> None:
    cited = {
        (row, str(path.relative_to(ROOT)))
        for path, text in texts("src", "tests", "compat", "docs", "benchmarks").items()
        for row in CITED.findall(text)
    }
    assert [one for one in sorted(cited) if one[0] not in ROWS] == []


def test_every_row_in_force_has_a_test_that_names_it() -> None:
    names = {name.lower() for text in texts("tests", "compat").values() for name in TEST.findall(text)}
    proven = {row.upper() for name in names for row in re.findall(r"(?:dl|ac|pm|gr|sp)\d+", name)}
    assert [row for row, text in ROWS.items() if "*planned*" not in text and row not in proven] == []


def test_planned_rows_have_none() -> None:
    """A row whose pipeline exists is no longer planned."""
    for row, folder in {"SP2": "processing", "SP3": "redrive", "SP5": "archive"}.items():
        assert ("*planned*" in ROWS[row]) != (ROOT / "src" / "magnetar" / "pipelines" / folder).exists(), row
