"""The route table: every HTTP path of this broker, with its handler and what it needs.

The paths are Pulsar's, and our own for dead letters, replication and pipelines. The first row that matches wins.
{domain} is persistent or non-persistent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magnetar.admin.http.front_page import front_page
from magnetar.admin.http.request import Call
from magnetar.admin.moves import positions, redrive
from magnetar.admin.needs import (
    CONSUME,
    CONSUME_ALL,
    LIST_TOPICS,
    LOOKUP,
    METRICS,
    OPEN,
    PRODUCE,
    READ_DECLARATION,
    REPORT,
    SIGNED_IN,
    SUPER_USER,
    TENANT_ADMIN,
    Needs,
)
from magnetar.admin.overview import handlers as overview
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
    pipelines,
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

    What it `needs` has no default: a row that does not say so is an error of the program.

    `summary` is its text in docs/admin.md; the default is the first line of the handler's docstring.

    The broker's own pipelines process may use those that are `for_pipelines`, whatever its role is allowed elsewhere.
    """

    method: str
    path: str
    handler: Callable[[Call], object | Awaitable[object]]
    needs: Needs
    changes: bool = False
    summary: str = ""
    body_size_max: int = BODY_SIZE_MAX
    for_pipelines: bool = False

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
_PIPELINES = "/admin/v2/pipelines"
_PIPELINE = _PIPELINES + "/{tenant}/{namespace}/{pipeline}"
_SCHEMA = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", front_page, SIGNED_IN),
    Route("GET", "/status.html", health.status, OPEN),
    Route("GET", "/health/live", health.live, OPEN),
    Route("GET", "/health/ready", health.ready, OPEN),
    Route("GET", _BROKERS, brokers.list_brokers, SUPER_USER),
    Route("GET", _BROKERS + "/health", health.check, SUPER_USER),
    Route("GET", _BROKERS + "/ready", health.ready_text, SIGNED_IN),
    Route("GET", _BROKERS + "/version", brokers.version, SIGNED_IN),
    Route("GET", _BROKERS + "/leaderBroker", brokers.leader, SUPER_USER),
    Route("GET", _BROKERS + "/overview", overview.get_overview, SIGNED_IN),
    Route("GET", _BROKERS + "/topics", overview.get_topics, SIGNED_IN),
    Route("GET", _BROKERS + "/disk", brokers.disk, SUPER_USER),
    Route("POST", _BROKERS + "/backup", brokers.make_backup, SUPER_USER, changes=True),
    Route("DELETE", _BROKERS + "/backup", brokers.discard_backup, SUPER_USER, changes=True),
    Route("GET", _BROKERS + "/damaged", brokers.damaged, SUPER_USER),
    Route("GET", _BROKERS + "/backlog-quota-check", brokers.check_backlog_quotas, SUPER_USER, changes=True),
    Route("GET", _BROKERS + "/configuration", brokers.dynamic_names, SUPER_USER),
    Route("GET", _BROKERS + "/configuration/values", brokers.dynamic_values, SUPER_USER),
    Route("GET", _BROKERS + "/configuration/runtime", brokers.runtime_values, SUPER_USER),
    Route("POST", _BROKERS + "/configuration/{setting}/{value}", brokers.set_dynamic, SUPER_USER, changes=True),
    Route("DELETE", _BROKERS + "/configuration/{setting}", brokers.remove_dynamic, SUPER_USER, changes=True),
    Route("GET", _BROKERS + "/{cluster}", brokers.list_brokers_of, SUPER_USER),
    Route("GET", _BROKERS + "/{cluster}/{broker}/ownedNamespaces", brokers.owned_namespaces, SUPER_USER),
    #
    Route("GET", "/admin/v2/clusters", clusters.list_clusters, SIGNED_IN),
    Route("GET", "/admin/v2/clusters/{cluster}", clusters.get, SUPER_USER),
    Route("PUT", "/admin/v2/clusters/{cluster}", clusters.create, SUPER_USER, changes=True),
    Route("POST", "/admin/v2/clusters/{cluster}", clusters.update, SUPER_USER, changes=True),
    Route("DELETE", "/admin/v2/clusters/{cluster}", clusters.delete, SUPER_USER, changes=True),
    #
    Route("GET", "/admin/v2/tenants", tenants.list_tenants, SUPER_USER),
    Route("GET", "/admin/v2/tenants/{tenant}", tenants.get, TENANT_ADMIN),
    Route("PUT", "/admin/v2/tenants/{tenant}", tenants.create, SUPER_USER, changes=True),
    Route("POST", "/admin/v2/tenants/{tenant}", tenants.update, SUPER_USER, changes=True),
    Route("DELETE", "/admin/v2/tenants/{tenant}", tenants.delete, SUPER_USER, changes=True),
    #
    Route("GET", "/admin/v2/namespaces/{tenant}", namespaces.list_namespaces, TENANT_ADMIN),
    Route("GET", _NAMESPACE, namespaces.get, TENANT_ADMIN),
    Route("PUT", _NAMESPACE, namespaces.create, namespaces.CREATE, changes=True),
    Route("DELETE", _NAMESPACE, namespaces.delete, TENANT_ADMIN, changes=True),
    Route("GET", _NAMESPACE + "/topics", namespaces.list_topics, LIST_TOPICS),
    Route("GET", _NAMESPACE + "/properties", namespaces.get_properties, TENANT_ADMIN),
    Route("PUT", _NAMESPACE + "/properties", namespaces.set_properties, TENANT_ADMIN, changes=True),
    Route("DELETE", _NAMESPACE + "/properties", namespaces.clear_properties, TENANT_ADMIN, changes=True),
    Route("GET", _NAMESPACE + "/property/{key}", namespaces.get_property, TENANT_ADMIN),
    Route("DELETE", _NAMESPACE + "/property/{key}", namespaces.remove_property, TENANT_ADMIN, changes=True),
    Route("PUT", _NAMESPACE + "/property/{key}/{value}", namespaces.set_property, TENANT_ADMIN, changes=True),
    Route("GET", _NAMESPACE + "/permissions", permissions.get, TENANT_ADMIN),
    Route("GET", _NAMESPACE + "/permissions/subscription", permissions.get_of_subscriptions, TENANT_ADMIN),
    Route("POST", _NAMESPACE + "/permissions/{role}", permissions.grant, TENANT_ADMIN, changes=True),
    Route("DELETE", _NAMESPACE + "/permissions/{role}", permissions.revoke, TENANT_ADMIN, changes=True),
    Route(
        "POST",
        _NAMESPACE + "/permissions/subscription/{subscription}",
        permissions.grant_on_subscription,
        TENANT_ADMIN,
        changes=True,
    ),
    Route(
        "DELETE",
        _NAMESPACE + "/permissions/{subscription}/{role}",
        permissions.revoke_on_subscription,
        TENANT_ADMIN,
        changes=True,
    ),
    Route("GET", _NAMESPACE + "/bundles", namespaces.get_bundles, LIST_TOPICS),
    Route("GET", _NAMESPACE + "/deadLetters", dead_letter_stats.get_overview, LIST_TOPICS, for_pipelines=True),
    *(
        Route(method, f"{_NAMESPACE}{bundle}/{action}", handler, needs, changes=True)
        for bundle in ("", "/{bundle}")
        for method, action, handler, needs in (
            ("PUT", "unload", namespaces.unload, SUPER_USER),
            ("POST", "clearBacklog", namespaces.clear_backlog, CONSUME_ALL),
            ("POST", "clearBacklog/{subscription}", namespaces.clear_backlog, CONSUME_ALL),
            ("POST", "unsubscribe/{subscription}", namespaces.unsubscribe, CONSUME_ALL),
        )
    ),
    #
    Route("GET", _TOPICS, topics.list_topics, LIST_TOPICS),
    Route("GET", _TOPICS + "/partitioned", topics.list_partitioned, LIST_TOPICS),
    Route("PUT", _TOPIC, topics.create, TENANT_ADMIN, changes=True),
    Route("DELETE", _TOPIC, topics.delete, TENANT_ADMIN, changes=True),
    Route(
        "GET", _TOPIC + "/partitions", partitions.count, LOOKUP, changes=True, for_pipelines=True
    ),  # may create the topic, not for browsers
    Route("PUT", _TOPIC + "/partitions", partitions.create, TENANT_ADMIN, changes=True),
    Route("POST", _TOPIC + "/partitions", partitions.grow, TENANT_ADMIN, changes=True),
    Route("DELETE", _TOPIC + "/partitions", partitions.delete, TENANT_ADMIN, changes=True),
    Route("POST", _TOPIC + "/createMissedPartitions", partitions.create_missed, TENANT_ADMIN, changes=True),
    Route("POST", _TOPIC + "/terminate", topics.terminate, TENANT_ADMIN, changes=True),
    Route("POST", _TOPIC + "/terminate/partitions", partitions.terminate, TENANT_ADMIN, changes=True),
    Route("PUT", _TOPIC + "/unload", topics.unload, TENANT_ADMIN, changes=True),
    Route("DELETE", _TOPIC + "/truncate", topics.truncate, TENANT_ADMIN, changes=True),
    Route("POST", _TOPIC + "/trim", topics.trim, TENANT_ADMIN, changes=True),
    Route("GET", _TOPIC + "/stats", topics.get_stats, LOOKUP, for_pipelines=True),
    Route("GET", _TOPIC + "/internalStats", topics.get_internal_stats, LOOKUP),
    Route("GET", _TOPIC + "/internal-info", topics.get_internal_info, LOOKUP),
    Route("GET", _TOPIC + "/partitioned-stats", partitions.get_stats, LOOKUP),
    Route("GET", _TOPIC + "/partitioned-internalStats", partitions.get_internal_stats, LOOKUP),
    Route("GET", _TOPIC + "/backlog", topics.get_backlog, CONSUME),
    Route("PUT", _TOPIC + "/backlogSize", backlog.size_after, CONSUME),
    Route("GET", _TOPIC + "/permissions", permissions.get_of_topic, TENANT_ADMIN),
    Route("POST", _TOPIC + "/permissions/{role}", permissions.grant_on_topic, TENANT_ADMIN, changes=True),
    Route("DELETE", _TOPIC + "/permissions/{role}", permissions.revoke_on_topic, TENANT_ADMIN, changes=True),
    Route("GET", _TOPIC + "/properties", topics.properties, LOOKUP),
    Route("PUT", _TOPIC + "/properties", topics.update_properties, TENANT_ADMIN, changes=True),
    Route("DELETE", _TOPIC + "/properties", topics.remove_property, TENANT_ADMIN, changes=True),
    #
    Route("GET", _TOPIC + "/lastMessageId", topics.last_message_id, CONSUME),
    Route("GET", _TOPIC + "/messageid/{timestamp}", messages.id_by_time, CONSUME),
    Route("GET", _TOPIC + "/ledger/{ledgerId}/entry/{entryId}", messages.get, CONSUME),
    Route("GET", _TOPIC + "/examinemessage", messages.examine, CONSUME),
    Route("GET", _SUBSCRIPTION + "/position/{messagePosition}", messages.peek, CONSUME),
    #
    Route("GET", _TOPIC + "/subscriptions", subscriptions.list_subscriptions, CONSUME),
    Route("PUT", _SUBSCRIPTION, subscriptions.create, CONSUME, changes=True, for_pipelines=True),
    Route("DELETE", _SUBSCRIPTION, subscriptions.delete, CONSUME, changes=True),
    Route("GET", _SUBSCRIPTION + "/properties", subscriptions.get_properties, CONSUME),
    Route("PUT", _SUBSCRIPTION + "/properties", subscriptions.set_properties, CONSUME, changes=True),
    Route("GET", _SUBSCRIPTION + "/replicatedSubscriptionStatus", subscriptions.get_replicated, CONSUME),
    Route("POST", _SUBSCRIPTION + "/replicatedSubscriptionStatus", subscriptions.set_replicated, CONSUME, changes=True),
    #
    Route("POST", _SUBSCRIPTION + "/pause", subscriptions.pause, CONSUME, changes=True),
    Route("POST", _SUBSCRIPTION + "/resume", subscriptions.resume, CONSUME, changes=True),
    Route("POST", _SUBSCRIPTION + "/failure", subscriptions.report_failure, CONSUME, changes=True),
    Route("GET", _TOPIC + "/deadLetters", dead_letters.list_dead_letters, CONSUME),
    Route("GET", _TOPIC + "/deadLetters/stats", dead_letters.get_stats, CONSUME),
    Route("GET", _TOPIC + "/deadLetters/{messageId}", dead_letters.get, CONSUME),
    #
    Route("POST", _SUBSCRIPTION + "/skip/{numMessages}", backlog.skip, CONSUME, changes=True),
    Route("POST", _SUBSCRIPTION + "/skip_all", backlog.skip_all, CONSUME, changes=True),
    Route("POST", _SUBSCRIPTION + "/skipDamaged", backlog.skip_damaged, CONSUME, changes=True),
    Route("POST", _TOPIC + "/skipDamaged", backlog.skip_damaged_of_topic, CONSUME, changes=True),
    Route("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}", backlog.reset_to_time, CONSUME, changes=True),
    Route("POST", _SUBSCRIPTION + "/resetcursor", backlog.reset_to_position, CONSUME, changes=True),
    Route(
        "POST", _SUBSCRIPTION + "/expireMessages/{expireTimeInSeconds}", backlog.expire_by_time, CONSUME, changes=True
    ),
    Route("POST", _SUBSCRIPTION + "/expireMessages", backlog.expire_to_position, CONSUME, changes=True),
    Route(
        "POST",
        _TOPIC + "/all_subscription/expireMessages/{expireTimeInSeconds}",
        backlog.expire_all_by_time,
        CONSUME,
        changes=True,
    ),
    Route("POST", _SUBSCRIPTION + "/analyzeBacklog", backlog.analyze, CONSUME),
    Route("GET", _TOPIC + "/unacknowledged", positions.unacknowledged, positions.READ_POSITIONS, for_pipelines=True),
    Route("POST", _TOPIC + "/redrive", redrive.redrive, redrive.REDRIVE, changes=True, for_pipelines=True),
    Route(
        "POST",
        _TOPIC + "/acknowledge",
        positions.acknowledge,
        positions.ACKNOWLEDGE,
        changes=True,
        for_pipelines=True,
    ),
    #
    Route(
        "GET",
        _SCHEMA + "/schema",
        schemas.get,
        LOOKUP,
        summary="Show the newest schema of a topic",
        for_pipelines=True,
    ),
    Route(
        "POST",
        _SCHEMA + "/schema",
        schemas.upload,
        PRODUCE,
        changes=True,
        summary="Add a schema version, and return it",
    ),
    Route(
        "DELETE",
        _SCHEMA + "/schema",
        schemas.delete,
        TENANT_ADMIN,
        changes=True,
        summary="Delete a schema: adds a version that marks it as deleted; with `force` removes all versions",
    ),
    Route("GET", _SCHEMA + "/schema/{version}", schemas.get_version, LOOKUP, summary="Show one version of a schema"),
    Route("GET", _SCHEMA + "/schemas", schemas.list_versions, LOOKUP, summary="List all versions of a schema"),
    Route("POST", _SCHEMA + "/version", schemas.find_version, LOOKUP),
    Route(
        "POST",
        _SCHEMA + "/compatibility",
        schemas.check_compatibility,
        TENANT_ADMIN,
        summary="Check whether the schema in the body could become the next version; always 202, with the verdict",
    ),
    #
    Route(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        lookup.lookup,
        LOOKUP,
        summary="Show the addresses of the broker that serves a topic: this one. Creates nothing",
        for_pipelines=True,
    ),
    #
    Route("GET", _REPLICATION + "/declaration", replication.declaration, READ_DECLARATION, for_pipelines=True),
    Route(
        "PUT",
        _REPLICATION + "/reports",
        replication.report,
        REPORT,
        body_size_max=REPORTS_SIZE_MAX,
        for_pipelines=True,
    ),
    Route("GET", _REPLICATION + "/status", replication.status, replication.READ_STATUS),
    Route("POST", _REPLICATION + "/cursors", replication.cursors, replication.READ_CURSORS),
    Route("GET", _REPLICATION + "/routes", replication.list_routes, SUPER_USER),
    Route("GET", _ROUTE, replication.get_route, TENANT_ADMIN),
    Route("POST", _ROUTE, replication.set_route, replication.SET_ROUTE, changes=True),
    Route("DELETE", _ROUTE, replication.remove_route, TENANT_ADMIN, changes=True),
    Route("GET", _ROUTE + "/{topic}", replication.get_route, TENANT_ADMIN),
    Route("POST", _ROUTE + "/{topic}", replication.set_route, replication.SET_ROUTE, changes=True),
    Route("DELETE", _ROUTE + "/{topic}", replication.remove_route, TENANT_ADMIN, changes=True),
    #
    Route("GET", _PIPELINES + "/declaration", pipelines.declaration, READ_DECLARATION, for_pipelines=True),
    Route(
        "PUT",
        _PIPELINES + "/reports",
        pipelines.report,
        REPORT,
        body_size_max=REPORTS_SIZE_MAX,
        for_pipelines=True,
    ),
    Route("GET", _PIPELINES, pipelines.list_all, SIGNED_IN),
    Route("GET", _PIPELINES + "/{tenant}/{namespace}", pipelines.list_of_namespace, TENANT_ADMIN),
    Route("GET", _PIPELINE, pipelines.get, TENANT_ADMIN),
    Route("PUT", _PIPELINE, pipelines.declare, pipelines.DECLARE, changes=True),
    Route("DELETE", _PIPELINE, pipelines.delete, TENANT_ADMIN, changes=True),
    Route("POST", _PIPELINE + "/pause", pipelines.pause, TENANT_ADMIN, changes=True),
    Route("POST", _PIPELINE + "/resume", pipelines.resume, TENANT_ADMIN, changes=True),
    Route("POST", _PIPELINE + "/cancel", pipelines.cancel, TENANT_ADMIN, changes=True),
    Route("GET", _PIPELINE + "/runs", pipelines.runs, TENANT_ADMIN),
    #
    *(Route(*row) for row in policy_routes.routes()),
    #
    Route("GET", "/metrics", metrics.redirect, METRICS),
    Route("GET", "/metrics/", metrics.metrics, METRICS),
)
