"""Known differences, each with its reason, from differences.toml. A difference that no longer occurs is stale."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cast import Caller

FILE = Path(__file__).resolve().parent / "differences.toml"


@dataclass
class Expected:
    callers: tuple[str, ...]
    questions: tuple[str, ...]
    theirs: str
    ours: str
    reason: str
    seen: int = 0

    def covers(self, caller: str, question: str, theirs: str, ours: str) -> bool:
        found = (
            (theirs, ours) == (self.theirs, self.ours)
            and any(fnmatchcase(caller, pattern) for pattern in self.callers)
            and any(fnmatchcase(question, pattern) for pattern in self.questions)
        )
        self.seen += found
        return found


def read() -> list[Expected]:
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))["difference"]
    return [
        Expected(**{**entry, "callers": tuple(entry["callers"]), "questions": tuple(entry["questions"])})
        for entry in entries
    ]


def differences(caller: Caller, theirs: Mapping[str, str], ours: Mapping[str, str], known: list[Expected]) -> list[str]:
    """Those that no entry covers; counts the entries that are of use."""
    return [
        f"{question}: theirs {answer}, ours {ours[question]}"
        for question, answer in theirs.items()
        if answer != ours[question]
        and not [entry for entry in known if entry.covers(caller.name, question, answer, ours[question])]
    ]
