"""What `top` asks of a broker: its overview, and its busiest topics.

Knows that Apache Pulsar has neither, and says so in one error. Knows no screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from magnetar.cli.rest import Refused, Rest, RestError

TOPICS = 50

_NO_SUCH_PATH = (404, 405, 412, 501)


class Sort(StrEnum):
    """What topics are sorted by, largest first; names in their order."""

    NAME = "name"
    RATE_IN = "rateIn"
    RATE_OUT = "rateOut"
    BACKLOG = "backlog"
    STORED = "storedBytes"
    DEAD_LETTERS = "deadLetters"

    @property
    def after(self) -> Sort:
        every = list(Sort)
        return every[(every.index(self) + 1) % len(every)]


@dataclass(frozen=True, slots=True)
class Answers:
    """`sort` is that of the topics."""

    overview: dict[str, Any]
    topics: list[dict[str, Any]] = field(default_factory=list)
    sort: Sort = Sort.RATE_IN


def ask(rest: Rest, sort: Sort) -> Answers:
    overview = ask_overview(rest)  # first: its error is the clear one
    page = rest.get("brokers", "topics", query={"sort": sort.value, "limit": TOPICS})
    return Answers(overview, page["topics"], sort)


def ask_overview(rest: Rest) -> dict[str, Any]:
    """Raises `RestError` for a broker without one; Apache Pulsar takes the word for the name of a cluster."""
    try:
        found = rest.get("brokers", "overview")
    except Refused as error:
        if error.status not in _NO_SUCH_PATH:
            raise
        found = None
    if isinstance(found, dict) and "totals" in found:
        return found
    raise RestError(
        f"{rest.url} has no overview: `magnetar top` needs a Magnetar broker of this version; on Apache Pulsar,"
        " `magnetar topics stats TOPIC` shows one topic"
    )
