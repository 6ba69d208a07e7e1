"""The house rules: sizes of modules, functions and folders, a docstring for each module, and plain English.

An exception stands here with its reason.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "magnetar"

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FOLDER_FILES_MAX = 15

LONG_MODULES: dict[str, str] = {}

LONG_FUNCTIONS: dict[str, str] = {}

EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "impl"}

MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "schema_pb2.py")
FOLDERS = sorted({path.parent for path in MODULES})


def shown(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"
    assert path.stem not in EMPTY_NAMES
    lines = len(text.splitlines())
    assert (lines > MODULE_LINES_MAX) == (shown(path) in LONG_MODULES), f"{lines} lines"
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for function in functions:
        length = (function.end_lineno or 0) - function.lineno + 1
        name = f"{shown(path)}:{function.name}"
        assert (length > FUNCTION_LINES_MAX) == (name in LONG_FUNCTIONS), f"{function.name} has {length} lines"


@pytest.mark.parametrize("folder", FOLDERS, ids=shown)
def test_a_folder_has_one_subject(folder: Path) -> None:
    files = [path for path in MODULES if path.parent == folder and path.name != "__init__.py"]
    assert len(files) <= FOLDER_FILES_MAX, f"{len(files)} modules"
    assert (folder / "__init__.py").exists()


def test_exceptions_exist() -> None:
    named = [*LONG_MODULES, *(name.partition(":")[0] for name in LONG_FUNCTIONS)]
    assert [name for name in named if not (SOURCE / name).exists()] == []


TRANSLATED = re.compile(
    r"\b(nobody|whoever|comes? to be|stands? still|how it stands|(is|are) told|sen[dt]s? away|for ever|in vain"
    r"|gives? back)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    "path", [*MODULES, *sorted((SOURCE.parents[1] / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_prose_is_plain(path: Path) -> None:
    """Phrases that sound translated: begin with the noun and use the verbs of the trade."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if TRANSLATED.search(line)] == []
