"""REST paths of namespaces, topics and subscriptions."""

from __future__ import annotations

from magnetar.cli.argument import NamespaceName
from magnetar.cli.rest import Rest
from magnetar.names import TopicName


def topic_path(topic: TopicName, *rest: str) -> tuple[str, ...]:
    return (topic.domain, topic.tenant, topic.namespace, topic.local, *rest)


def subscription_path(topic: TopicName, subscription: str, *rest: str) -> tuple[str, ...]:
    return topic_path(topic, "subscription", subscription, *rest)


def namespace_path(namespace: NamespaceName, *rest: str) -> tuple[str, ...]:
    return ("namespaces", namespace.tenant, namespace.namespace, *rest)


def is_partitioned(rest: Rest, topic: TopicName) -> bool:
    return bool(rest.get(*topic_path(topic, "partitions"))["partitions"])
