"""The spec of a declared archive: topics that are written to files, by topic and date, once or at an interval.

Owns what can be checked without Spark. What it does is in `pipelines.archive`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.declared.topic_set import TopicSet, parse_topic_set
from magnetar.errors import InvalidSetting
from magnetar.pipeline_bounds import ARCHIVE_TOPICS

SUBSCRIPTION_DEFAULT = "magnetar.archive"
DELTA = "delta"
TABLE_FORMATS = (DELTA,)
"""Formats whose tables commit by themselves. They need a library in the user's Spark."""
FORMATS = ("parquet", "orc", *TABLE_FORMATS)
ROUND_BYTES_DEFAULT = 512 << 20

Seconds = Annotated[float, msgspec.Meta(ge=1, le=366 * 86400)]
Bytes = Annotated[int, msgspec.Meta(ge=1 << 10, le=1 << 40)]


class ArchiveSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """`topics` are topics, patterns or namespaces, see `topic_set`. `path` is one of the Spark of the process.

    With `every_s` it runs again after so long; without, once. `round_bytes` is how much is committed at a time, about.
    """

    topics: list[str]
    path: str
    format: str = "parquet"
    subscription: str = SUBSCRIPTION_DEFAULT
    every_s: Seconds | None = None
    round_bytes: Bytes = ROUND_BYTES_DEFAULT


def check(spec: ArchiveSpec, namespace: str) -> None:
    """Raises `InvalidSetting` or `InvalidName`."""
    if not spec.topics:
        raise InvalidSetting("topics is empty: name topics, patterns or namespaces")
    if len(spec.topics) > ARCHIVE_TOPICS.limit:
        raise InvalidSetting(f"topics has {len(spec.topics)} entries, the limit is {ARCHIVE_TOPICS.limit}")
    topic_sets(spec, namespace)
    if not spec.path.strip():
        raise InvalidSetting("path is empty")
    if not spec.subscription.strip():
        raise InvalidSetting("subscription is empty")
    check_format(spec.format)


def check_format(format: str) -> None:
    """Raises `InvalidSetting`."""
    if format not in FORMATS:
        raise InvalidSetting(
            f"format {format!r} is not one of {', '.join(FORMATS)}: a table of iceberg is made from the files of an"
            " archive, with the procedure add_files"
        )


def topic_sets(spec: ArchiveSpec, namespace: str) -> tuple[TopicSet, ...]:
    return tuple(parse_topic_set(text, namespace) for text in spec.topics)


def tenants(spec: ArchiveSpec, namespace: str) -> set[str]:
    """The tenants whose topics are read."""
    return {one.tenant for one in topic_sets(spec, namespace)}


def runs_code(spec: ArchiveSpec) -> bool:
    """A path may be any file that the process can write."""
    return True
