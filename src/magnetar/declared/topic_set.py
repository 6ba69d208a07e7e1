"""Topic sets: the topics of one namespace that a word names: a topic, a pattern of local names, or the namespace.

    orders-billing-DLQ                  a topic of the record's namespace
    acme/shop/orders-*-DLQ              topics of acme/shop; `*` is any text, `?` any character
    acme/shop                           all topics of a namespace

Owns whether two of them have a topic in common, so that no two redrives work on it. Knows no broker.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

import msgspec

from magnetar.errors import InvalidName
from magnetar.names import PARTITION_SUFFIX, PERSISTENT, TopicName, parse_namespace

_ANY_TEXT, _ANY_CHARACTER = "*", "?"
_PREFIX = f"{PERSISTENT}://"
_PARTITION = re.compile(re.escape(PARTITION_SUFFIX) + r"\d+$")


class TopicSet(msgspec.Struct, frozen=True):
    """`local` is a local name with wildcards; a topic with partitions goes by its own name."""

    namespace: str
    local: str

    @property
    def tenant(self) -> str:
        return self.namespace.partition("/")[0]

    @property
    def is_topic(self) -> bool:
        return not (_ANY_TEXT in self.local or _ANY_CHARACTER in self.local)

    def __str__(self) -> str:
        return self.namespace if self.local == _ANY_TEXT else f"{_PREFIX}{self.namespace}/{self.local}"

    def has(self, name: TopicName) -> bool:
        base = name.base
        return name.is_persistent and base.namespace_full == self.namespace and _matches(self.local, base.local)

    def overlaps(self, other: TopicSet) -> bool:
        """Whether a topic can be in both."""
        if self.namespace != other.namespace:
            return False
        if self.is_topic:
            return _matches(other.local, self.local)
        if other.is_topic:
            return _matches(self.local, other.local)
        return _have_common_text(self.local, other.local)


def parse_topic(text: str, namespace: str) -> TopicName:
    """`namespace` is that of a short name. Raises `InvalidName`."""
    return TopicName.parse(text if "/" in text else f"{_PREFIX}{namespace}/{text}")


def parse_topic_set(text: str, namespace: str) -> TopicSet:
    """`namespace` is that of a word without one. Raises `InvalidName`."""
    parts = text.removeprefix(_PREFIX).split("/")
    if len(parts) == 2 and not text.startswith(_PREFIX):
        parse_namespace(text)
        return TopicSet(text, _ANY_TEXT)
    if len(parts) not in (1, 3):
        raise InvalidName(f"{text[:100]!r} is not a persistent topic, a pattern or a namespace tenant/namespace")
    local = _PARTITION.sub("", parts[-1])
    where = namespace if len(parts) == 1 else "/".join(parts[:2])
    name = TopicName.parse(f"{_PREFIX}{where}/{local}")  # wildcards are allowed in a topic's name
    return TopicSet(name.namespace_full, name.local)


def _matches(pattern: str, local: str) -> bool:
    return _compiled(pattern).match(local) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[", "[[]")))  # only the two wildcards are special


def _have_common_text(a: str, b: str) -> bool:
    """Whether both patterns match some text: row by row of a table, whose cells say whether two ends do."""
    ends = _row_without_a(b)
    for character in reversed(a):
        ends = _row(character, b, ends)
    return ends[0]


def _row_without_a(b: str) -> list[bool]:
    """For each end of `b`, whether it matches the empty text."""
    return [set(b[start:]) <= {_ANY_TEXT} for start in range(len(b) + 1)]


def _row(character: str, b: str, below: list[bool]) -> list[bool]:
    """For each end of `b`, whether it and an end of the other pattern that begins with `character` match one text;
    `below` is the row of that end without `character`."""
    row = [False] * (len(b) + 1)
    row[-1] = character == _ANY_TEXT and below[-1]
    for start in range(len(b) - 1, -1, -1):
        other = b[start]
        if _ANY_TEXT in (character, other):
            row[start] = below[start] or row[start + 1]
        else:
            is_same = character == other or _ANY_CHARACTER in (character, other)
            row[start] = is_same and below[start + 1]
    return row
