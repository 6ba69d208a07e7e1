"""The plan of a process: where messages come from and go to, and what happens to those that fail.

Owns the names of retry and dead letter topics, and the checks that need no broker. Shipped to workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from magnetar.bounds import BACKOFF_STEPS
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX, RETRY_SUFFIX
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.pipelines.processing.call.function import InvalidProcess, ProcessFunction
from magnetar.pipelines.processing.call.outcome import class_name

ROUND_MESSAGES = 500_000
"""Messages of one partition in one round, about."""

BATCH_ROWS_DEFAULT = 1000
CONCURRENCY_DEFAULT = 100
TIMEOUT_DEFAULT_S = 30.0
_BATCH_ROWS_MAX = 1_000_000
_CONCURRENCY_MAX = 1000
_TIMEOUT_MAX_MS = 24 * 3600 * 1000
_DELAY_MAX_MS = 366 * 24 * 3600 * 1000

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True)
class ProcessPlan:
    """`function` is None for SQL and transforms. Classes of exceptions are their names, as `outcome.class_name`."""

    topic: str
    subscription: str
    into: str | None
    retry_topic: str
    dead_letter_topic: str
    retry_ms: tuple[int, ...] = ()
    no_retry: frozenset[str] = frozenset()
    dead_letter_topics: tuple[tuple[str, str], ...] = ()
    function: ProcessFunction | None = None
    limit_s: float = TIMEOUT_DEFAULT_S
    concurrency: int = CONCURRENCY_DEFAULT
    batch_rows: int = BATCH_ROWS_DEFAULT
    round_messages: int = ROUND_MESSAGES

    def dead_letter_topic_of(self, classes: Iterable[str]) -> str:
        """That of the most specific class."""
        by_class = dict(self.dead_letter_topics)
        return next((by_class[name] for name in classes if name in by_class), self.dead_letter_topic)

    @property
    def targets(self) -> list[str]:
        """All topics that are written to."""
        own = [self.into] if self.into else []
        return [*own, self.retry_topic, self.dead_letter_topic, *dict(self.dead_letter_topics).values()]


def plan(
    topic: str,
    subscription: str,
    *,
    into: str | None = None,
    retry: Iterable[str | float] = (),
    retry_topic: str | None = None,
    dead_letter_topic: str | None = None,
    no_retry: Iterable[type[BaseException] | str] = (),
    dead_letter_topics: Mapping[type[BaseException], str] | Mapping[str, str] | None = None,
    function: ProcessFunction | None = None,
    timeout: str | float = TIMEOUT_DEFAULT_S,
    concurrency: int = CONCURRENCY_DEFAULT,
    batch_rows: int = BATCH_ROWS_DEFAULT,
    round_messages: int = ROUND_MESSAGES,
) -> ProcessPlan:
    """Raises `InvalidProcess`, which names the argument."""
    if not subscription:
        raise InvalidProcess("subscription is empty")
    source = _topic("topic", topic)
    if source.partition >= 0:
        raise InvalidProcess(f"topic {source.full} is a partition: name the whole topic {source.base.full}")
    if isinstance(retry, str):
        raise InvalidProcess(f"retry {retry!r} is a text: give a list of delays, such as ['10s', '1m']")
    delays = tuple(duration_ms("retry", each, _DELAY_MAX_MS) for each in retry)
    if len(delays) > BACKOFF_STEPS.limit:
        raise InvalidProcess(f"retry has {len(delays)} delays, the limit is {BACKOFF_STEPS.limit}")
    own = f"{source.full}-{subscription}"
    found = ProcessPlan(
        topic=source.full,
        subscription=subscription,
        into=None if into is None else _topic("into", into).full,
        retry_topic=_topic("retry_topic", retry_topic or own + RETRY_SUFFIX).full,
        dead_letter_topic=_topic("dead_letter_topic", dead_letter_topic or own + DEAD_LETTER_SUFFIX).full,
        retry_ms=delays,
        no_retry=frozenset(_class("no_retry", each) for each in no_retry),
        dead_letter_topics=tuple(
            (_class("dead_letter_topics", kind), _topic("dead_letter_topics", name).full)
            for kind, name in (dead_letter_topics or {}).items()
        ),
        function=function,
        limit_s=duration_ms("timeout", timeout, _TIMEOUT_MAX_MS) / 1000,
        concurrency=_between("concurrency", concurrency, _CONCURRENCY_MAX),
        batch_rows=_between("batch_rows", batch_rows, _BATCH_ROWS_MAX),
        round_messages=_between("round_messages", round_messages, 1_000_000_000),
    )
    _check_topics(found)
    return found


def duration_ms(argument: str, given: str | float, most_ms: int) -> int:
    """Of `250ms`, `10s`, `1m`, `2h` or `1d`; a number is in seconds."""
    if isinstance(given, str):
        match = _DURATION.fullmatch(given.strip())
        if match is None:
            raise InvalidProcess(f"{argument}: {given[:100]!r} is not a duration such as 250ms, 10s, 1m, 2h or 1d")
        found = round(float(match[1]) * _UNITS_MS[match[2]])
    elif isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidProcess(f"{argument}: {given!r} is not a duration such as 250ms, 10s, 1m, 2h or 1d")
    else:
        found = round(given * 1000) if abs(given) <= most_ms else most_ms + 1
    if not 0 < found <= most_ms:
        raise InvalidProcess(f"{argument}: {given} is not between 1ms and {most_ms // 1000}s")
    return found


def _topic(argument: str, text: str) -> TopicName:
    try:
        name = TopicName.parse(text)
    except InvalidName as error:
        raise InvalidProcess(f"{argument}: {error}") from error
    if not name.is_persistent:
        raise InvalidProcess(f"{argument} {name.full} is not persistent: it cannot be processed or written reliably")
    return name


def _class(argument: str, given: type[BaseException] | str) -> str:
    if isinstance(given, str):
        return given.replace(":", ".")
    if not (isinstance(given, type) and issubclass(given, BaseException)):
        raise InvalidProcess(f"{argument}: {given!r} is not a class of exceptions")
    return class_name(given)


def _between(argument: str, number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise InvalidProcess(f"{argument} {number} is not between 1 and {most}")
    return number


def _check_topics(found: ProcessPlan) -> None:
    if found.retry_topic == found.topic:
        raise InvalidProcess(f"retry_topic is {found.topic} itself")
    for argument, name in (("into", found.into), ("dead_letter_topic", found.dead_letter_topic)):
        if name in (found.topic, found.retry_topic):
            raise InvalidProcess(f"{argument} {name} is read by the same process, which would never end")
    for kind, name in found.dead_letter_topics:
        if name in (found.topic, found.retry_topic):
            raise InvalidProcess(f"dead_letter_topics: {name} for {kind} is read by the same process")
