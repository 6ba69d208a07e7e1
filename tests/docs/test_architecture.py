"""docs/architecture.md: its rooms are those of the tree, and every module and name of its walks exists."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "magnetar"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

ROOMS = re.findall(r"^\| `([a-z_/]+/)` \|", PAGE, re.MULTILINE)
STEPS = re.findall(r"^\| [^|]+ \| `([\w/]+)\.py` \| `([\w.]+)` \|$", PAGE, re.MULTILINE)
MODULES = re.findall(r"`([\w]+(?:/[\w]+)+\.py)`", PAGE)


def test_every_room_has_a_sentence() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert sorted(ROOMS) == sorted(
        "magnetar/" if path == SOURCE else f"{path.relative_to(SOURCE)}/" for path in folders
    )


def test_there_are_six_walks() -> None:
    walks = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert len(walks) == 6 and len(STEPS) > 40


@pytest.mark.parametrize(("module", "name"), STEPS, ids=[f"{module}:{name}" for module, name in STEPS])
def test_a_step_of_a_walk_exists(module: str, name: str) -> None:
    found = importlib.import_module("magnetar." + module.replace("/", "."))
    reduce(getattr, name.split("."), found)


def test_every_module_that_the_page_names_exists() -> None:
    assert [name for name in MODULES if not any((root / name).exists() for root in (SOURCE, ROOT))] == []
