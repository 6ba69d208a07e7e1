"""Concerns of a snapshot that need attention, bounded while they are collected, and their sentences and commands.

A concern belongs to a namespace, or to the broker. Commands are those of `magnetar`, with names quoted for a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest

from msgspec import UNSET

from magnetar.admin.overview.model import Attention, AttentionKind, Severity

KIND_MAX = 20
"""Concerns of one kind that are shown: one cause must not hide the others."""

SHOWN_MAX = 100
_COLLECTED_MAX = 10 * KIND_MAX

_URGENCY = {kind: index for index, kind in enumerate(AttentionKind)}


@dataclass(slots=True)
class Concern:
    """`weight` compares concerns of a kind, as messages that wait."""

    severity: Severity
    kind: AttentionKind
    weight: int
    text: str
    command: tuple[str, ...]
    subject: str = ""
    topic: str = ""
    subscription: str = ""

    def attention(self) -> Attention:
        return Attention(
            severity=self.severity,
            kind=self.kind,
            subject=self.subject or self._subject,
            text=self.text,
            command=command_of(*self.command),
            topic=self.topic or UNSET,
            subscription=self.subscription or UNSET,
        )

    @property
    def _subject(self) -> str:
        return f"{self.subscription} of {self.topic}" if self.subscription else self.topic


@dataclass(slots=True)
class Concerns:
    """Of one namespace, or of several together: the heaviest of each kind, and how many there are."""

    _kept: dict[tuple[Severity, AttentionKind], list[Concern]] = field(default_factory=dict)
    count: int = 0

    def add(self, concern: Concern) -> None:
        kept = self._kept.setdefault((concern.severity, concern.kind), [])
        kept.append(concern)
        self.count += 1
        if len(kept) > _COLLECTED_MAX:
            kept[:] = nlargest(KIND_MAX, kept, key=_weight)

    def add_all(self, other: Concerns) -> None:
        for concern in other:
            self.add(concern)
        self.count += other.count - sum(map(len, other._kept.values()))

    def __iter__(self) -> Iterator[Concern]:
        for kept in self._kept.values():
            yield from kept

    def worst_first(self) -> list[Concern]:
        """Errors before warnings, then by urgency of the kind, then by weight."""
        order = sorted(self._kept, key=lambda key: (key[0] != "error", _URGENCY[key[1]]))
        chosen = [concern for key in order for concern in nlargest(KIND_MAX, self._kept[key], key=_weight)]
        return chosen[:SHOWN_MAX]


def _weight(concern: Concern) -> int:
    return concern.weight


def command_of(*words: str) -> str:
    """A name that begins with a dash follows a `--`, so that it is no option."""
    return shlex.join(["magnetar", *_guarded(words)])


def _guarded(words: Iterable[str]) -> Iterator[str]:
    """The first two words are the command."""
    words = list(words)
    yield from words[:2]
    if any(word.startswith("-") for word in words[2:]):
        yield "--"
    yield from words[2:]
