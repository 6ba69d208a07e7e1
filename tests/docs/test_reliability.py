"""The page on reliability: every bound and every fault has a test, and its tables are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.bounds import BOUNDS, Bound
from magnetar.settings.settings import KINDS
from tools.reliability_reference import FAULTS, Fault, proofs_of, render

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_a_bound_has_a_limit_and_a_test(bound: Bound) -> None:
    assert bound.setting in KINDS if bound.setting else bound.limit > 0
    assert proofs_of("bound", bound.name), f"no test is called test_bound_{bound.name.replace('-', '_')}…"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_a_test(fault: Fault) -> None:
    assert proofs_of("fault", fault.name), f"no test is called test_fault_{fault.name.replace('-', '_')}…"


def test_names_are_unique() -> None:
    for rows in (BOUNDS, FAULTS):
        names = [row.name for row in rows]
        assert sorted(set(names)) == sorted(names)


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page, "run `make docs`"
