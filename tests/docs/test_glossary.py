"""docs/glossary.md: its terms exist in the code, its retired words do not, and a public class name has one home."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from magnetar.admin.routes import ROUTES
from tools.cli_reference import render

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "magnetar"
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS_PART, _, REST = PAGE.partition("## Retired words")
RETIRED_PART, _, HOMES_PART = REST.partition("## Names with two homes")

TERMS = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([\w.]+):(\w+)` \|$", TERMS_PART, re.MULTILINE)
RETIRED = {
    word for row in re.findall(r"^\| (`[^|]+) \|", RETIRED_PART, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
}
TWO_HOMES = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]+) \|", HOMES_PART, re.MULTILINE))))

MODULES = [path for path in SOURCE.rglob("*.py") if path.name != "schema_pb2.py"]


@pytest.mark.parametrize(("term", "module", "name"), TERMS, ids=[term for term, _, _ in TERMS])
def test_a_term_exists_in_the_code(term: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"magnetar.{module}"), name)


def test_terms_are_sorted_into_four_parts() -> None:
    assert len(TERMS) > 40 and len(RETIRED) > 30
    assert len(TERMS_PART.split("\n## ")) == 5


def test_retired_words_are_gone_from_the_code() -> None:
    found = defaultdict(set)
    for path in MODULES:
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NAME and token.string in RETIRED:
                found[token.string].add(path.relative_to(SOURCE).as_posix())
    assert dict(found) == {}


def test_retired_words_are_gone_from_rest_and_commands() -> None:
    paths = {segment for route in ROUTES for segment in route.path.split("/")}
    commands = set(re.findall(r"[a-z-]+", render()))
    assert "routes" in paths and "set-route" in commands
    assert not {"ways", "letters", "way"} & paths
    assert not {"set-way", "get-way", "remove-way", "--letters"} & commands


def test_a_public_class_name_has_one_home() -> None:
    homes = defaultdict(set)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(path.relative_to(SOURCE).as_posix())
    assert {name: places for name, places in homes.items() if len(places) > 1 and name not in TWO_HOMES} == {}
    assert {name for name in TWO_HOMES if len(homes[name]) < 2} == set()
