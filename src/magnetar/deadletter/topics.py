"""The names of retry and dead letter topics: `{topic}-{subscription}-RETRY` and `{topic}-{subscription}-DLQ`.

Owns the grammar only. A name does not tell where the topic ends and the subscription begins, because both may have
dashes and even the words DLQ and RETRY: which of the possible primary topics is meant depends on which exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.names import TopicName

DEAD_LETTER_SUFFIX = "-DLQ"
RETRY_SUFFIX = "-RETRY"
SUFFIXES = (DEAD_LETTER_SUFFIX, RETRY_SUFFIX)


def is_letter_topic(name: TopicName) -> bool:
    """Whether a topic, or the topic a partition belongs to, has the name of a retry or dead letter topic."""
    return name.base.local.endswith(SUFFIXES)


def possible_primaries(name: TopicName) -> Iterator[str]:
    """Full names that may be the primary topic of a retry or dead letter topic, shortest first; most do not exist."""
    if not name.local.endswith(SUFFIXES):
        return
    stem = name.full[: name.full.rindex("-")]
    start = len(name.full) - len(name.local)
    dash = stem.find("-", start + 1)  # a topic has at least one character, and so has a subscription
    while 0 <= dash < len(stem) - 1:
        yield stem[:dash]
        dash = stem.find("-", dash + 1)
