"""The dead letter topics of a command: named ones, a pattern, or all of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.cli.argument import PUBLIC_DEFAULT, NamespaceName, parse_namespace_name, parse_topic
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Refused, Rest
from magnetar.cli.views.dead_letter_topics import dead_letter_topics_of
from magnetar.cli.views.dead_letters import HTTP_NOT_FOUND, HTTP_REFUSED, NAMED_MAX
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.errors import InvalidSetting
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.spark.dead_letters.plan import Source

_NO_SUCH_PATH = (HTTP_NOT_FOUND, 405, 501)

OfNamespace = Annotated[
    NamespaceName | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="TENANT/NAMESPACE",
        parser=parse_namespace_name,
        help="All dead letter topics of this namespace.",
        show_default=str(PUBLIC_DEFAULT),
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC|PATTERN", help="A dead letter topic instead; may be repeated."),
]


def source_of(namespace: NamespaceName | None, topics: list[str] | None) -> Source:
    if not topics:
        return str(namespace or PUBLIC_DEFAULT)
    if namespace is not None:
        raise InvalidSetting("--topic cannot be combined with --namespace")
    return topics[0] if len(topics) == 1 else [parse_topic(topic).full for topic in topics]


def check_dead_letter_topic(rest: Rest, topic: TopicName) -> None:
    """Raises `Refused` for another topic, with the names of its dead letter topics, and for none."""
    try:
        rest.get(*topic_path(topic, "deadLetters"), query={"limit": 1})
    except Refused as error:
        if error.status not in _NO_SUCH_PATH or topic.base.local.endswith(DEAD_LETTER_SUFFIX):
            if error.status == HTTP_REFUSED or error.status not in _NO_SUCH_PATH:
                raise
            rest.get(*topic_path(topic, "partitions"))
            return
        found = dead_letter_topics_of(rest, topic)
        names = f"its dead letter topics are {', '.join(found[:NAMED_MAX])}" if found else "it has none"
        raise Refused(HTTP_REFUSED, f"{topic.full} is not a dead letter topic: {names}") from None
