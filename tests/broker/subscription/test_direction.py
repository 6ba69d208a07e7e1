"""Calls within the room go one way: each module imports only modules below it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from magnetar.broker import subscription

ROOM = Path(subscription.__file__).parent
DOWNWARDS = (
    "subscription",
    "dispatch",
    "deliveries",
    "dead_letter",
    "redelivery",
    "breaker",
    "places",
    "suspects",
    "key_index",
    "key_owners",
    "cursor",
    "dead_letter_blobs",
    "single_messages",
    "consumer",
    "entry_state",
)


def test_every_module_has_its_place() -> None:
    assert sorted(DOWNWARDS) == sorted(path.stem for path in ROOM.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", DOWNWARDS)
def test_a_module_imports_only_those_below_it(module: str) -> None:
    """For type annotations too: a part that knows the type of its caller is about to call it."""
    tree = ast.parse((ROOM / f"{module}.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    prefix = f"{subscription.__name__}."
    used = {name.removeprefix(prefix) for name in imported if name.startswith(prefix)}
    assert used <= set(DOWNWARDS[DOWNWARDS.index(module) + 1 :])
