"""The route table: every path this broker serves over HTTP, and who answers it. Pulsar's own paths.

The first row that fits both the method and the path wins. {domain} is persistent or non-persistent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magnetar.admin import brokers, lookup, metrics, namespaces, subscriptions, tenants, topics
from magnetar.admin.call import Call


@dataclass(frozen=True, slots=True)
class Route:
    """`changes` marks what may change something: it is answered when that is durable. None is 204, the rest is JSON."""

    method: str
    path: str
    handler: Callable[[Call], object | Awaitable[object]]
    changes: bool = False


_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS = "/admin/v2/{domain}/{tenant}/{namespace}"
_TOPIC = _TOPICS + "/{topic}"
_SUBSCRIPTION = _TOPIC + "/subscription/{subscription}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/status.html", brokers.status),
    Route("GET", "/admin/v2/brokers/health", brokers.health),
    Route("GET", "/admin/v2/brokers/ready", brokers.health),
    Route("GET", "/admin/v2/brokers/{cluster}", brokers.list_brokers),
    Route("GET", "/admin/v2/clusters", brokers.list_clusters),
    #
    Route("GET", "/admin/v2/tenants", tenants.list_tenants),
    Route("GET", "/admin/v2/tenants/{tenant}", tenants.get),
    Route("PUT", "/admin/v2/tenants/{tenant}", tenants.create, changes=True),
    Route("DELETE", "/admin/v2/tenants/{tenant}", tenants.delete, changes=True),
    #
    Route("GET", "/admin/v2/namespaces/{tenant}", namespaces.list_namespaces),
    Route("GET", _NAMESPACE, namespaces.get),
    Route("PUT", _NAMESPACE, namespaces.create, changes=True),
    Route("DELETE", _NAMESPACE, namespaces.delete, changes=True),
    Route("GET", _NAMESPACE + "/topics", namespaces.list_topics),
    #
    Route("GET", _TOPICS, topics.list_topics),
    Route("GET", _TOPICS + "/partitioned", topics.list_partitioned),
    Route("PUT", _TOPIC, topics.create, changes=True),
    Route("DELETE", _TOPIC, topics.delete, changes=True),
    Route("GET", _TOPIC + "/partitions", topics.partitions, changes=True),  # it may create the topic
    Route("PUT", _TOPIC + "/partitions", topics.create_partitioned, changes=True),
    Route("POST", _TOPIC + "/partitions", topics.grow_partitioned, changes=True),
    Route("DELETE", _TOPIC + "/partitions", topics.delete_partitioned, changes=True),
    Route("POST", _TOPIC + "/terminate", topics.terminate, changes=True),
    Route("GET", _TOPIC + "/stats", topics.get_stats),
    Route("GET", _TOPIC + "/internalStats", topics.get_internal_stats),
    Route("GET", _TOPIC + "/partitioned-stats", topics.get_partitioned_stats),
    Route("GET", _TOPIC + "/lastMessageId", topics.last_message_id),
    Route("GET", _TOPIC + "/properties", topics.properties),
    #
    Route("GET", _TOPIC + "/subscriptions", subscriptions.list_subscriptions),
    Route("PUT", _SUBSCRIPTION, subscriptions.create, changes=True),
    Route("DELETE", _SUBSCRIPTION, subscriptions.delete, changes=True),
    #
    Route("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", lookup.lookup),
    #
    Route("GET", "/metrics", metrics.redirect),
    Route("GET", "/metrics/", metrics.metrics),
)
