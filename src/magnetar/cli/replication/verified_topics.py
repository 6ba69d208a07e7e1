"""The topics that `verify` compares with their copies: those that the broker declares, or those named.

Does not know how far each is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from magnetar.cli.argument import NamespaceName, parse_namespace_name, parse_topic
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Refused, Rest
from magnetar.deadletter.topics import SUFFIXES
from magnetar.errors import InvalidSetting
from magnetar.names import TopicName
from magnetar.replication.model import AS_IT_IS, Declaration, DeclaredRoute, RoutePolicy
from magnetar.replication.topic_template import remote_topic

_NOT_THERE = (404, 405, 501)


class ComparedTopic(NamedTuple):
    """One topic without partitions, or one partition, and its name in the remote cluster."""

    topic: str
    target: str
    policy: RoutePolicy


def declaration_of(rest: Rest) -> Declaration | None:
    """None if the broker is not a Magnetar."""
    try:
        return msgspec.convert(rest.get("replication", "declaration"), Declaration)
    except Refused as error:
        if error.status not in _NOT_THERE:
            raise
        return None


def routes_between(rest: Rest, source: str, remote: str, words: list[str]) -> list[ComparedTopic]:
    """The declared routes, or those of the topics and namespaces in `words`."""
    declaration = declaration_of(rest)
    declared = [] if declaration is None else [one for one in declaration.topics if one.remote == remote]
    chosen = _chosen(rest, declared, remote, words) if words else declared
    if not chosen:
        hint = "" if words else "; name topics with --topics"
        raise InvalidSetting(f"{source} replicates no such topics to {remote}{hint}")
    return [route for one in chosen for route in _routes(one)]


def _chosen(rest: Rest, declared: list[DeclaredRoute], remote: str, words: list[str]) -> list[DeclaredRoute]:
    """Topics that are not declared, or in a cluster without a declaration, can be compared too."""
    by_name = {one.topic: one for one in declared}
    found: dict[str, DeclaredRoute] = {}
    for word in words:
        if "://" not in word and word.count("/") == 1:
            namespace = parse_namespace_name(word)
            names = [one.topic for one in declared if one.topic.startswith(f"persistent://{namespace}/")]
            names = names or list(_topics_of(rest, namespace))
        else:
            names = [parse_topic(word).base.full]
        for name in names:
            found[name] = by_name.get(name) or DeclaredRoute(name, _partitions(rest, name), remote, AS_IT_IS)
    return list(found.values())


def _topics_of(rest: Rest, namespace: NamespaceName) -> Iterator[str]:
    """Without dead letter topics, which are not replicated by default, and system topics."""
    names = {TopicName.parse(name).base for name in rest.get("persistent", *namespace)}
    for topic in sorted(names, key=lambda one: one.full):
        if not topic.local.endswith(SUFFIXES) and not topic.local.startswith("__"):
            yield topic.full


def _partitions(rest: Rest, name: str) -> int:
    return int(rest.get(*topic_path(TopicName.parse(name), "partitions"))["partitions"])


def _routes(declared: DeclaredRoute) -> Iterator[ComparedTopic]:
    topic = TopicName.parse(declared.topic)
    target = TopicName.parse(remote_topic(declared.topic, declared.policy.rename))
    if not declared.partitions:
        yield ComparedTopic(topic.full, target.full, declared.policy)
    for index in range(declared.partitions):
        yield ComparedTopic(topic.with_partition(index).full, target.with_partition(index).full, declared.policy)
