"""The page on security: every row of a table that promises something names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from magnetar.access import decision

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
THREATS = (
    "A web page in the browser of a user of this machine",
    "A web page, and the console",
    "Another user of the machine",
    "A neighbour on the network",
    "A stolen token",
    "A malicious tenant",
    "A malicious message",
)


def promises(page: str) -> dict[str, list[str]]:
    """Sentence -> tests, of all tables whose last column is "test"."""
    found: dict[str, list[str]] = {}
    is_promise = False
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_promise = False
        elif cells[-1] == "test":
            is_promise = True
        elif is_promise and set(line) != {"|", "-"}:
            found[cells[-2]] = re.findall(r"`([^`]+)`", cells[-1])
    return found


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    classes = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    nodes = chain(tree.body, *classes)
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("sentence", promises(PAGE))
def test_a_sentence_has_tests_that_exist(sentence: str) -> None:
    tests = promises(PAGE)[sentence]
    assert tests, "names no test"
    for test in tests:
        file, _, name = test.partition("::")
        assert name.startswith("test_") and name in functions_of(file), f"{test} does not exist"


def test_a_row_without_a_test_is_found() -> None:
    page = "| what holds | test |\n|---|---|\n| It holds. | |\n\n| | |\n|---|---|\n| other | table |\n"
    assert promises(page) == {"It holds.": []}


def test_every_threat_has_promises() -> None:
    sections = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))
    assert tuple(sections) == THREATS
    assert all(promises(section) for section in sections.values())


def test_the_page_has_the_rules_of_the_decision() -> None:
    assert decision.__doc__ is not None
    rules = re.findall(r"^    (A\d+) ", decision.__doc__, re.MULTILINE)
    assert rules and re.findall(r"^\| (A\d+) \|", PAGE, re.MULTILINE) == rules
