"""The route table: every HTTP path of this broker, with its handler.

The paths are Pulsar's, and our own for dead letters and replication. The first row that matches wins. {domain} is
persistent or non-persistent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magnetar.admin.http.front_page import front_page
from magnetar.admin.http.request import Call
from magnetar.admin.policy import routes as policy_routes
from magnetar.admin.resource import (
    backlog,
    brokers,
    clusters,
    dead_letters,
    lookup,
    messages,
    namespaces,
    partitions,
    permissions,
    replication,
    schemas,
    subscriptions,
    tenants,
    topics,
)
from magnetar.admin.stats import dead_letters as dead_letter_stats
from magnetar.admin.stats import health, metrics
from magnetar.bounds import REPORTS_BODY, REQUEST_BODY

BODY_SIZE_MAX = REQUEST_BODY.limit
REPORTS_SIZE_MAX = REPORTS_BODY.limit  # a pipelines process may report a hundred thousand topics


@dataclass(frozen=True, slots=True)
class Route:
    """A route with `changes` may change something: its response waits until that is durable.

    `summary` is its text in docs/admin.md; the default is the first line of the handler's docstring.
    """

    method: str
    path: str
    handler: Callable[[Call], object | Awaitable[object]]
    changes: bool = False
    summary: str = ""
    body_size_max: int = BODY_SIZE_MAX

    @property
    def described(self) -> str:
        return self.summary or (self.handler.__doc__ or "").strip().partition("\n")[0].rstrip(".")


_BROKERS = "/admin/v2/brokers"
_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS = "/admin/v2/{domain}/{tenant}/{namespace}"
_TOPIC = _TOPICS + "/{topic}"
_SUBSCRIPTION = _TOPIC + "/subscription/{subscription}"
_REPLICATION = "/admin/v2/replication"
_ROUTE = _REPLICATION + "/routes/{remote}/{tenant}/{namespace}"
_SCHEMA = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", front_page),
    Route("GET", "/status.html", health.status),
    Route("GET", "/health/live", health.live),
    Route("GET", "/health/ready", health.ready),
    Route("GET", _BROKERS, brokers.list_brokers),
    Route("GET", _BROKERS + "/health", health.check),
    Route("GET", _BROKERS + "/ready", health.ready_text),
    Route("GET", _BROKERS + "/version", brokers.version),
    Route("GET", _BROKERS + "/leaderBroker", brokers.leader),
    Route("GET", _BROKERS + "/disk", brokers.disk),
    Route("POST", _BROKERS + "/backup", brokers.make_backup, changes=True),
    Route("DELETE", _BROKERS + "/backup", brokers.discard_backup, changes=True),
    Route("GET", _BROKERS + "/damaged", brokers.damaged),
    Route("GET", _BROKERS + "/backlog-quota-check", brokers.check_backlog_quotas, changes=True),
    Route("GET", _BROKERS + "/configuration", brokers.dynamic_names),
    Route("GET", _BROKERS + "/configuration/values", brokers.dynamic_values),
    Route("GET", _BROKERS + "/configuration/runtime", brokers.runtime_values),
    Route("POST", _BROKERS + "/configuration/{setting}/{value}", brokers.set_dynamic, changes=True),
    Route("DELETE", _BROKERS + "/configuration/{setting}", brokers.remove_dynamic, changes=True),
    Route("GET", _BROKERS + "/{cluster}", brokers.list_brokers_of),
    Route("GET", _BROKERS + "/{cluster}/{broker}/ownedNamespaces", brokers.owned_namespaces),
    #
    Route("GET", "/admin/v2/clusters", clusters.list_clusters),
    Route("GET", "/admin/v2/clusters/{cluster}", clusters.get),
    Route("PUT", "/admin/v2/clusters/{cluster}", clusters.create, changes=True),
    Route("POST", "/admin/v2/clusters/{cluster}", clusters.update, changes=True),
    Route("DELETE", "/admin/v2/clusters/{cluster}", clusters.delete, changes=True),
    #
    Route("GET", "/admin/v2/tenants", tenants.list_tenants),
    Route("GET", "/admin/v2/tenants/{tenant}", tenants.get),
    Route("PUT", "/admin/v2/tenants/{tenant}", tenants.create, changes=True),
    Route("POST", "/admin/v2/tenants/{tenant}", tenants.update, changes=True),
    Route("DELETE", "/admin/v2/tenants/{tenant}", tenants.delete, changes=True),
    #
    Route("GET", "/admin/v2/namespaces/{tenant}", namespaces.list_namespaces),
    Route("GET", _NAMESPACE, namespaces.get),
    Route("PUT", _NAMESPACE, namespaces.create, changes=True),
    Route("DELETE", _NAMESPACE, namespaces.delete, changes=True),
    Route("GET", _NAMESPACE + "/topics", namespaces.list_topics),
    Route("GET", _NAMESPACE + "/properties", namespaces.get_properties),
    Route("PUT", _NAMESPACE + "/properties", namespaces.set_properties, changes=True),
    Route("DELETE", _NAMESPACE + "/properties", namespaces.clear_properties, changes=True),
    Route("GET", _NAMESPACE + "/property/{key}", namespaces.get_property),
    Route("DELETE", _NAMESPACE + "/property/{key}", namespaces.remove_property, changes=True),
    Route("PUT", _NAMESPACE + "/property/{key}/{value}", namespaces.set_property, changes=True),
    Route("GET", _NAMESPACE + "/permissions", permissions.get),
    Route("GET", _NAMESPACE + "/permissions/subscription", permissions.get_of_subscriptions),
    Route("POST", _NAMESPACE + "/permissions/{role}", permissions.grant, changes=True),
    Route("DELETE", _NAMESPACE + "/permissions/{role}", permissions.revoke, changes=True),
    Route(
        "POST",
        _NAMESPACE + "/permissions/subscription/{subscription}",
        permissions.grant_on_subscription,
        changes=True,
    ),
    Route(
        "DELETE", _NAMESPACE + "/permissions/{subscription}/{role}", permissions.revoke_on_subscription, changes=True
    ),
    Route("GET", _NAMESPACE + "/bundles", namespaces.get_bundles),
    Route("GET", _NAMESPACE + "/deadLetters", dead_letter_stats.get_overview),
    *(
        Route(method, f"{_NAMESPACE}{bundle}/{action}", handler, changes=True)
        for bundle in ("", "/{bundle}")
        for method, action, handler in (
            ("PUT", "unload", namespaces.unload),
            ("POST", "clearBacklog", namespaces.clear_backlog),
            ("POST", "clearBacklog/{subscription}", namespaces.clear_backlog),
            ("POST", "unsubscribe/{subscription}", namespaces.unsubscribe),
        )
    ),
    #
    Route("GET", _TOPICS, topics.list_topics),
    Route("GET", _TOPICS + "/partitioned", topics.list_partitioned),
    Route("PUT", _TOPIC, topics.create, changes=True),
    Route("DELETE", _TOPIC, topics.delete, changes=True),
    Route("GET", _TOPIC + "/partitions", partitions.count, changes=True),  # may create the topic, not for browsers
    Route("PUT", _TOPIC + "/partitions", partitions.create, changes=True),
    Route("POST", _TOPIC + "/partitions", partitions.grow, changes=True),
    Route("DELETE", _TOPIC + "/partitions", partitions.delete, changes=True),
    Route("POST", _TOPIC + "/createMissedPartitions", partitions.create_missed, changes=True),
    Route("POST", _TOPIC + "/terminate", topics.terminate, changes=True),
    Route("POST", _TOPIC + "/terminate/partitions", partitions.terminate, changes=True),
    Route("PUT", _TOPIC + "/unload", topics.unload, changes=True),
    Route("DELETE", _TOPIC + "/truncate", topics.truncate, changes=True),
    Route("POST", _TOPIC + "/trim", topics.trim, changes=True),
    Route("GET", _TOPIC + "/stats", topics.get_stats),
    Route("GET", _TOPIC + "/internalStats", topics.get_internal_stats),
    Route("GET", _TOPIC + "/internal-info", topics.get_internal_info),
    Route("GET", _TOPIC + "/partitioned-stats", partitions.get_stats),
    Route("GET", _TOPIC + "/partitioned-internalStats", partitions.get_internal_stats),
    Route("GET", _TOPIC + "/backlog", topics.get_backlog),
    Route("PUT", _TOPIC + "/backlogSize", backlog.size_after),
    Route("GET", _TOPIC + "/permissions", permissions.get_of_topic),
    Route("POST", _TOPIC + "/permissions/{role}", permissions.grant_on_topic, changes=True),
    Route("DELETE", _TOPIC + "/permissions/{role}", permissions.revoke_on_topic, changes=True),
    Route("GET", _TOPIC + "/properties", topics.properties),
    Route("PUT", _TOPIC + "/properties", topics.update_properties, changes=True),
    Route("DELETE", _TOPIC + "/properties", topics.remove_property, changes=True),
    #
    Route("GET", _TOPIC + "/lastMessageId", topics.last_message_id),
    Route("GET", _TOPIC + "/messageid/{timestamp}", messages.id_by_time),
    Route("GET", _TOPIC + "/ledger/{ledgerId}/entry/{entryId}", messages.get),
    Route("GET", _TOPIC + "/examinemessage", messages.examine),
    Route("GET", _SUBSCRIPTION + "/position/{messagePosition}", messages.peek),
    #
    Route("GET", _TOPIC + "/subscriptions", subscriptions.list_subscriptions),
    Route("PUT", _SUBSCRIPTION, subscriptions.create, changes=True),
    Route("DELETE", _SUBSCRIPTION, subscriptions.delete, changes=True),
    Route("GET", _SUBSCRIPTION + "/properties", subscriptions.get_properties),
    Route("PUT", _SUBSCRIPTION + "/properties", subscriptions.set_properties, changes=True),
    Route("GET", _SUBSCRIPTION + "/replicatedSubscriptionStatus", subscriptions.get_replicated),
    Route("POST", _SUBSCRIPTION + "/replicatedSubscriptionStatus", subscriptions.set_replicated, changes=True),
    #
    Route("POST", _SUBSCRIPTION + "/pause", subscriptions.pause, changes=True),
    Route("POST", _SUBSCRIPTION + "/resume", subscriptions.resume, changes=True),
    Route("POST", _SUBSCRIPTION + "/failure", subscriptions.report_failure, changes=True),
    Route("GET", _TOPIC + "/deadLetters", dead_letters.list_dead_letters),
    Route("GET", _TOPIC + "/deadLetters/stats", dead_letters.get_stats),
    Route("GET", _TOPIC + "/deadLetters/{messageId}", dead_letters.get),
    #
    Route("POST", _SUBSCRIPTION + "/skip/{numMessages}", backlog.skip, changes=True),
    Route("POST", _SUBSCRIPTION + "/skip_all", backlog.skip_all, changes=True),
    Route("POST", _SUBSCRIPTION + "/skipDamaged", backlog.skip_damaged, changes=True),
    Route("POST", _TOPIC + "/skipDamaged", backlog.skip_damaged_of_topic, changes=True),
    Route("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}", backlog.reset_to_time, changes=True),
    Route("POST", _SUBSCRIPTION + "/resetcursor", backlog.reset_to_position, changes=True),
    Route("POST", _SUBSCRIPTION + "/expireMessages/{expireTimeInSeconds}", backlog.expire_by_time, changes=True),
    Route("POST", _SUBSCRIPTION + "/expireMessages", backlog.expire_to_position, changes=True),
    Route(
        "POST",
        _TOPIC + "/all_subscription/expireMessages/{expireTimeInSeconds}",
        backlog.expire_all_by_time,
        changes=True,
    ),
    Route("POST", _SUBSCRIPTION + "/analyzeBacklog", backlog.analyze),
    #
    Route("GET", _SCHEMA + "/schema", schemas.get, summary="Show the newest schema of a topic"),
    Route("POST", _SCHEMA + "/schema", schemas.upload, changes=True, summary="Add a schema version, and return it"),
    Route(
        "DELETE",
        _SCHEMA + "/schema",
        schemas.delete,
        changes=True,
        summary="Delete a schema: adds a version that marks it as deleted; with `force` removes all versions",
    ),
    Route("GET", _SCHEMA + "/schema/{version}", schemas.get_version, summary="Show one version of a schema"),
    Route("GET", _SCHEMA + "/schemas", schemas.list_versions, summary="List all versions of a schema"),
    Route("POST", _SCHEMA + "/version", schemas.find_version),
    Route(
        "POST",
        _SCHEMA + "/compatibility",
        schemas.check_compatibility,
        summary="Check whether the schema in the body could become the next version; always 202, with the verdict",
    ),
    #
    Route(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        lookup.lookup,
        summary="Show the addresses of the broker that serves a topic: this one. Creates nothing",
    ),
    #
    Route("GET", _REPLICATION + "/declaration", replication.declaration),
    Route("PUT", _REPLICATION + "/reports", replication.report, body_size_max=REPORTS_SIZE_MAX),
    Route("GET", _REPLICATION + "/status", replication.status),
    Route("POST", _REPLICATION + "/cursors", replication.cursors),
    Route("GET", _REPLICATION + "/routes", replication.list_routes),
    Route("GET", _ROUTE, replication.get_route),
    Route("POST", _ROUTE, replication.set_route, changes=True),
    Route("DELETE", _ROUTE, replication.remove_route, changes=True),
    Route("GET", _ROUTE + "/{topic}", replication.get_route),
    Route("POST", _ROUTE + "/{topic}", replication.set_route, changes=True),
    Route("DELETE", _ROUTE + "/{topic}", replication.remove_route, changes=True),
    #
    *(Route(*row) for row in policy_routes.routes()),
    #
    Route("GET", "/metrics", metrics.redirect),
    Route("GET", "/metrics/", metrics.metrics),
)
