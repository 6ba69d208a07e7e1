"""The layout of an archive: the names of its folders and files.

    topic=public%2Fdefault%2Forders/date=2026-01-31/part-00000-12-0-499.parquet
    _magnetar/archive.json                        what the archive is
    _magnetar/topics/{topic}/0000000007.json      the manifest of a round: its commit
    _magnetar/staging/{token}/topic=…/date=…/     files of a round that is not committed, or not yet in place
    _magnetar/staging/{token}.json                the topics of that round
    _magnetar/planned/{topic}.json                the round of a table that is being appended

Spark and other readers ignore folders that begin with `_`, so they see data files that are in place and nothing else.
"""

from __future__ import annotations

from magnetar.names import TopicName

TOPIC, DATE = "topic", "date"
"""The columns that are folders."""

META = "_magnetar"
INFO = f"{META}/archive.json"
TOPICS = f"{META}/topics"
STAGING = f"{META}/staging"
PLANNED = f"{META}/planned"

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 0x20)}


def escaped(text: str) -> str:
    """The name of a folder, as Spark writes the values of partition columns."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def short_name(topic: TopicName) -> str:
    """`tenant/namespace/topic`, the value of the column `topic`; only persistent topics are archived."""
    return f"{topic.namespace_full}/{topic.base.local}"


def topic_folder(topic: str) -> str:
    return f"{TOPIC}={escaped(topic)}"


def manifests(topic: str) -> str:
    return f"{TOPICS}/{escaped(topic)}"


def manifest(topic: str, number: int) -> str:
    return f"{manifests(topic)}/{number:010d}.json"


def planned(topic: str) -> str:
    return f"{PLANNED}/{escaped(topic)}.json"


def staging(token: str) -> str:
    return f"{STAGING}/{token}"


def data_file(topic: str, date: str, partition: int, first: str, last: str, ending: str) -> str:
    """`first` and `last` are `ledger:entry`: an entry is in one file only, so names never meet."""
    low, high = first.split(":"), last.split(":")
    positions = [*low, high[1]] if low[0] == high[0] else [*low, *high]
    name = "-".join(("part", f"{max(partition, 0):05d}", *positions))
    return f"{topic_folder(topic)}/{DATE}={date}/{name}.{ending}"
