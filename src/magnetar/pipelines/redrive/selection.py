"""Selection of dead letter topics: by name, pattern or namespace. Owns the refusal of topics that are none."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.client import Client
from magnetar.client.errors import NotFound
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.declared.topic_set import TopicSet, parse_topic_set
from magnetar.errors import InvalidSetting
from magnetar.names import TopicName
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.dead_letters.plan import QUARANTINE_SUFFIX, dead_letter_topics, kind_of

NAMESPACE = "public/default"

_SHOWN = 5


def select_topics(sources: Iterable[str], namespace: str, client: Client, options: SparkClientOptions) -> list[str]:
    """Full names without partitions. Raises `InvalidSetting`, `InvalidName` or `NotFound`.

    Patterns and namespaces leave out quarantine, and messages that only a remote cluster rejected.
    """
    found: set[str] = set()
    for source in sources:
        wanted = parse_topic_set(source, namespace)
        known = dead_letter_topics(wanted.namespace, options)
        if wanted.is_topic:
            found.add(_checked(wanted, known, client))
            continue
        names = [TopicName.parse(topic) for topic in known]
        found.update(name.full for name in names if wanted.has(name) and kind_of(name) in ("DLQ", "CUSTOM"))
    return sorted(found)


def _checked(wanted: TopicSet, known: list[str], client: Client) -> str:
    topic = str(wanted)
    if topic in known:
        return topic
    if client.partition_count(topic) is None:
        raise NotFound(f"dead letter topic {topic} does not exist")
    if topic.endswith(DEAD_LETTER_SUFFIX):
        return topic
    letters = [name for name in known if name.startswith(f"{topic}-")]
    shown = ", ".join(letters[:_SHOWN]) + (", …" if len(letters) > _SHOWN else "")
    raise InvalidSetting(
        f"{topic} is not a dead letter topic: " + (f"its dead letter topics are {shown}" if letters else "it has none")
    )


def quarantine_of(topic: str) -> str:
    """The quarantine of a dead letter topic; that of a quarantine is itself."""
    if topic.endswith(QUARANTINE_SUFFIX):
        return topic
    return f"{topic.removesuffix(DEAD_LETTER_SUFFIX)}{QUARANTINE_SUFFIX}"
