"""Dead letters: topics that have them, counts by reason, pages, one letter, and redrives declared by name."""

from __future__ import annotations

import asyncio
import secrets

from magnetar.console.options import ROWS_PER_PAGE
from magnetar.console.rest.admin import AdminApi
from magnetar.console.rest.errors import LoginRefused, RequestRefused, RightRefused
from magnetar.console.rest.listing import namespaces_of
from magnetar.console.rest.model import (
    DeadLetterAnswer,
    DeadLetterPageAnswer,
    DeadLetterStatsAnswer,
    DeadLetterTopicAnswer,
    DeadLetterTopicsAnswer,
    PipelineStatusAnswer,
)
from magnetar.console.rest.topic import segments_of
from magnetar.names import TopicName

TOPICS_MAX = 500
SCANNED_MAX = 5000
"""Letters that are read for one page, where a filter leaves few of them."""

_PAGE = 500
VERB = "redrive"


async def dead_letter_topics(api: AdminApi, namespace: str) -> list[DeadLetterTopicAnswer]:
    """Of a namespace, or of all that this role may list; those with most waiting letters first."""
    namespaces = [namespace] if namespace else await namespaces_of(api)

    async def of(name: str) -> list[DeadLetterTopicAnswer]:
        try:
            tenant, _, local = name.partition("/")
            query = {"limit": TOPICS_MAX}
            return (
                await api.get(DeadLetterTopicsAnswer, "namespaces", tenant, local, "deadLetters", query=query)
            ).topics
        except RightRefused:
            if namespace:
                raise
            return []

    found = [one for topics in await asyncio.gather(*map(of, namespaces)) for one in topics]
    return sorted(found, key=lambda one: (-one.waiting, one.topic))[:TOPICS_MAX]


async def stats_of(api: AdminApi, topic: TopicName) -> DeadLetterStatsAnswer:
    return await api.get(DeadLetterStatsAnswer, *segments_of(topic), "deadLetters", "stats")


async def letters_of(
    api: AdminApi, topic: TopicName, after: str, *, reason: str, subscription: str, words: str
) -> tuple[list[DeadLetterAnswer], str | None]:
    """A page of those that match, and the `after` of the next one."""
    found: list[DeadLetterAnswer] = []
    position: str | None = after or None
    for _ in range(SCANNED_MAX // _PAGE):
        is_filtered = bool(reason or subscription or words)
        query = {"limit": _PAGE if is_filtered else ROWS_PER_PAGE, "after": position}
        page = await api.get(DeadLetterPageAnswer, *segments_of(topic), "deadLetters", query=query)
        for one in page.dead_letters:
            position = one.id
            if matches(one, reason, subscription, words):
                found.append(one)
            if len(found) == ROWS_PER_PAGE:
                is_last = one is page.dead_letters[-1] and page.next is None
                return found, None if is_last else position
        if page.next is None:
            return found, None
        position = page.next
    return found, position


def matches(one: DeadLetterAnswer, reason: str, subscription: str, words: str) -> bool:
    """`words` is a part of key, error, description, consumer or ids, whatever its case."""
    if (reason and one.reason != reason) or (subscription and one.origin_subscription != subscription):
        return False
    texts = (one.id, one.key, one.error, one.description, one.consumer, one.origin_topic, one.origin_message_id)
    return not words or any(words.lower() in text.lower() for text in texts if text)


async def letter_of(api: AdminApi, topic: TopicName, message_id: str) -> DeadLetterAnswer:
    return await api.get(DeadLetterAnswer, *segments_of(topic), "deadLetters", message_id)


# -- redrives


def condition_of(reason: str, subscription: str, message_id: str = "") -> str:
    """The SQL condition for the letters of a choice; empty for all."""
    pairs = (("reason", reason), ("subscription", subscription), ("message_id", message_id))
    return " and ".join(f"{column} = {quoted(value)}" for column, value in pairs if value)


def quoted(value: str) -> str:
    """A string of Spark SQL. A backslash would begin an escape there, so both are written as one."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def redrive(api: AdminApi, topic: TopicName, condition: str) -> PipelineStatusAnswer:
    """Declares one under a new name; the broker's pipelines process runs it."""
    spec = {"sources": [topic.base.full], **({"where": condition} if condition else {})}
    name = f"redrive-{secrets.token_hex(3)}"
    path = ("pipelines", topic.tenant, topic.namespace, name)
    return await api.put(PipelineStatusAnswer, *path, body={"verb": VERB, "spec": spec})


async def redrives_of(api: AdminApi, topic: TopicName) -> list[PipelineStatusAnswer] | None:
    """Redrives of the topic's namespace that read it; None without the right to see or declare any."""
    try:
        found = await api.get(list[PipelineStatusAnswer], "pipelines", topic.tenant, topic.namespace)
    except LoginRefused:
        raise
    except RequestRefused as error:
        if isinstance(error, RightRefused) or error.is_missing:
            return None
        raise
    return [one for one in found if one.verb == VERB and topic.base.full in one.spec.get("sources", ())]
