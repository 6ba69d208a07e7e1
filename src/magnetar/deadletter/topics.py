"""Names of retry and dead letter topics: `{topic}-{subscription}-RETRY` and `{topic}-{subscription}-DLQ`.

Owns the grammar only. Topic and subscription may both contain dashes, and even the words DLQ and RETRY, so a name alone
does not determine the primary topic: that depends on which topics exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.names import TopicName

DEAD_LETTER_SUFFIX = "-DLQ"
RETRY_SUFFIX = "-RETRY"
SUFFIXES = (DEAD_LETTER_SUFFIX, RETRY_SUFFIX)

HANDLED_SUBSCRIPTION = "magnetar.handled"
"""The subscription that a dead letter topic gets when it has no other: what it acknowledged is handled."""


def is_dead_letter_or_retry_topic(name: TopicName) -> bool:
    """By its name, or that of the partitioned topic it belongs to."""
    return name.base.local.endswith(SUFFIXES)


def possible_primaries(name: TopicName) -> Iterator[str]:
    """Full names of the possible primary topics of a retry or dead letter topic, shortest first; most do not exist."""
    if not name.local.endswith(SUFFIXES):
        return
    stem = name.full[: name.full.rindex("-")]
    start = len(name.full) - len(name.local)
    dash = stem.find("-", start + 1)  # topic and subscription have at least one character each
    while 0 <= dash < len(stem) - 1:
        yield stem[:dash]
        dash = stem.find("-", dash + 1)
