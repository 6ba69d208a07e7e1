"""Paths of topics in the REST API."""

from __future__ import annotations

from urllib.parse import quote

from magnetar.names import TopicName


def topic_path(topic: TopicName) -> str:
    """The path of a topic in REST, below the version."""
    return "/".join(quote(part, safe="") for part in (topic.domain, topic.tenant, topic.namespace, topic.local))
