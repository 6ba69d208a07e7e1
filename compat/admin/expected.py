"""Known differences, each with its reason, from differences.toml. A difference that no longer occurs is stale."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "differences.toml"


@dataclass
class Expected:
    """`commands` and `parts` are patterns with `*`; `theirs` and `ours` are patterns of the values."""

    commands: tuple[str, ...]
    reason: str
    parts: tuple[str, ...] = ("*",)
    theirs: str = "*"
    ours: str = "*"
    seen: set[str] = field(default_factory=set)

    def covers(self, command: str, part: str, theirs: str, ours: str) -> bool:
        if not (fnmatchcase(theirs, self.theirs) and fnmatchcase(ours, self.ours)):
            return False
        commands = [pattern for pattern in self.commands if fnmatchcase(command, pattern)]
        parts = [pattern for pattern in self.parts if fnmatchcase(part, pattern)]
        if not commands or not parts:
            return False
        self.seen.update(commands, parts)
        return True

    @property
    def stale(self) -> list[str]:
        return [pattern for pattern in (*self.commands, *self.parts) if pattern not in self.seen]


def read() -> list[Expected]:
    entries: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8")).get("difference", [])
    return [
        Expected(**{**entry, "commands": tuple(entry["commands"]), "parts": tuple(entry.get("parts", ("*",)))})
        for entry in entries
    ]


def reason_for(known: list[Expected], command: str, part: str, values: tuple[str, str]) -> str | None:
    for entry in known:
        if entry.covers(command, part, *values):
            return entry.reason
    return None
