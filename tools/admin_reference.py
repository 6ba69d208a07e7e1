"""The generator of docs/admin.md, from the tables of routes, gaps and metrics: `python -m tools.admin_reference`."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.admin.http.unsupported import UNSUPPORTED
from magnetar.admin.policy import routes as policy_routes
from magnetar.admin.policy.routes import needs_of
from magnetar.admin.policy.subscription_table import SUBSCRIPTION_POLICIES
from magnetar.admin.policy.table import POLICIES
from magnetar.admin.resource.namespaces import WITHOUT_EFFECT
from magnetar.admin.routes import ROUTES, Route
from magnetar.admin.stats import pipeline_metrics, replication_metrics
from magnetar.admin.stats.broker_metrics import METRICS
from magnetar.admin.stats.metrics import FAMILIES

_INTRODUCTION = """\
# The HTTP interface

The broker serves version 2 of Apache Pulsar's admin REST interface on its HTTP port. `make docs` generates this page
from the route table in `admin/routes.py`. `{domain}` is `persistent` or `non-persistent`.

- `GET /` shows what this is and where to go: HTML to browsers, JSON to programs.
- A change returns 204 once it is durable; a few return an empty 200, as in Apache Pulsar.
- An error has a 4xx status and the body `{"reason": "..."}`. 400: the body, a parameter or the path cannot be parsed.
  404: not found. 409: it already exists, or the existing state does not allow the change. 412: the value or the name
  is not allowed. A rejected request changes nothing.
- Features of Apache Pulsar that this broker does not have return 501 with the reason; their paths are
  [listed below](#not-supported). A field of a body that would have no effect is rejected in the same way.
- `deadLetters`, `deadLetterPolicy`, `deadLetterExpired`, `deadLetterEvicted`, `redeliveryBackoff`, `circuitBreaker`,
  `pause`, `resume`, `brokers/disk`, `brokers/overview`, `brokers/topics`, `brokers/backup`, `/admin/v2/replication`,
  `/health` and the metrics `magnetar_*` are our own; Apache Pulsar does not have them.
- Bodies are read as Apache Pulsar's JSON reader reads them: `"3"` and `3.7` are integers, `"true"` and `1` are
  booleans, numbers are text where text is wanted. Unknown fields are rejected.
- A body has at most 1 MiB.
- With `authorizationEnabled=true` each request needs what its row says, of the role that the client has: 401 without a
  valid login, 403 without the right, both before the body is read and before anything is said about what exists.
  *tenant admin* is a role in `adminRoles` of the tenant in the path, *produce* and *consume* are permissions on the
  topic of the path or its namespace. A tenant admin has all of them in its tenant, a super user everywhere. Each
  request is checked, so a permission that is taken away counts at once.
"""

_METRICS = """
Metrics of topics have the labels `cluster`, `namespace` and `topic`; those of subscriptions also `subscription`, those
of consumers `consumer_name` and `consumer_id`, those of producers `producer_name` and `producer_id`. The settings
`exposeTopicLevelMetricsInPrometheus`, `exposeConsumerLevelMetricsInPrometheus` and
`exposeProducerLevelMetricsInPrometheus` turn the three levels on. Without topics, some metrics are summed per
namespace. `magnetar_subscription_dead_lettered_total` also has the label `reason`. A topic not used since the start is
counted in `pulsar_topics_count`, but has no metrics.

Metrics of replication have the label `remote_cluster`. `magnetar_replication_state` is 1, with the label `state`;
without topics, it is the number of topics in that state. Messages from other clusters are counted in
`pulsar_replication_rate_in`, not in `pulsar_rate_in`.
"""

_BROKER_METRICS = """
Metrics of the broker as a whole have the label `cluster` and those named here. Names that begin with `pulsar_` are
Apache Pulsar's, those with `process_` Prometheus' own. A broker in memory has none of a disk.
"""

_POLICIES = """
## Policies

A topic policy overrides that of its namespace, which overrides the broker's settings. A change takes effect
immediately. Paths start with `/admin/v2/namespaces/{tenant}/{namespace}/` for a namespace and with
`/admin/v2/persistent/{tenant}/{namespace}/{topic}/` for a topic; all partitions of a topic share its policies. GET
shows the value set there, with `?applied=true` the value in force; POST, or PUT where noted, sets it; DELETE removes
it. `DELETE .../{topic}/policies` removes all policies of a topic. Showing and removing policies needs tenant admin.

Backlog quotas are set and removed one kind at a time: `.../backlogQuota?backlogQuotaType=` `destination_storage` or
`message_age`. The tick time of delayed delivery is stored and shown, but has no effect: messages are delivered on time.
Rates are described in [rate-limits.md](rate-limits.md).
Permissions and `subscriptionAuthMode` are stored and shown also while authorization is off; then they have no effect.
"""

_SUBSCRIPTION_POLICIES = """
Durable subscriptions have policies below
`/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/`: GET shows one, POST sets it, DELETE
removes it. On a partitioned topic they apply to all partitions. Any subscription, even one that does not exist yet, can
have a dispatch rate of its own: `/admin/v2/persistent/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate`, as in
Apache Pulsar.
"""

# The first matching prefix gives a path its heading.
_HEADINGS = (
    ("/admin/v2/brokers", "Broker"),
    ("/status.html", "Broker"),
    ("/health", "Broker"),
    ("/admin/v2/clusters", "Clusters"),
    ("/admin/v2/tenants", "Tenants"),
    ("/admin/v2/namespaces", "Namespaces"),
    ("/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription", "Subscriptions"),
    ("/admin/v2/{domain}/{tenant}/{namespace}/{topic}/all_subscription", "Subscriptions"),
    ("/admin/v2/{domain}/{tenant}/{namespace}/{topic}/deadLetters", "Dead letters"),
    ("/admin/v2/{domain}", "Topics"),
    ("/admin/v2/persistent", "Topics"),
    ("/admin/v2/non-persistent", "Topics"),
    ("/admin/v2/schemas", "Schemas"),
    ("/admin/v2/replication", "Replication"),
    ("/admin/v2/pipelines", "Declared pipelines"),
    ("/lookup", "Lookup"),
    ("/metrics", "Metrics"),
)


def admin_page() -> str:
    return "\n".join(_lines()) + "\n"


def heading_of(path: str) -> str:
    """The part of the page a route belongs to."""
    if path == "/":
        return "Broker"
    return next((heading for start, heading in _HEADINGS if path.startswith(start)), "Others")


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.rstrip()
    yield "- The broker's own pipelines process has a role that no client can have, which is refused all but these:"
    paths = [f"`{route.method} {route.path}`" for route in ROUTES if route.for_pipelines]
    yield f"  {', '.join(paths)}."
    for heading, routes in _by_heading().items():
        if heading == "Schemas":
            yield from _policies()
        yield from ("", f"## {heading}", "", "| method | path | needs | description |", "|---|---|---|---|")
        yield from (f"| {route.method} | `{route.path}` | {route.needs.text} | {route.described} |" for route in routes)
    yield from _metrics()
    yield from _unsupported()


def _by_heading() -> dict[str, list[Route]]:
    found: dict[str, list[Route]] = {heading: [] for _, heading in _HEADINGS}
    of_policies = {(method, path) for method, path, *_ in policy_routes.routes()}
    for route in ROUTES:
        if (route.method, route.path) in of_policies:
            continue
        found.setdefault(heading_of(route.path), []).append(route)
    return {heading: routes for heading, routes in found.items() if routes}


def _policies() -> Iterator[str]:
    yield from (
        "",
        _POLICIES.strip(),
        "",
        "| policy | namespace | topic | field of the namespace object | setting it needs |",
        "|---|---|---|---|---|",
    )
    for policy in POLICIES:
        parts = [f"`{part}`" if part else "" for part in (policy.namespace, policy.topic, policy.in_object)]
        if policy.verb != "POST":
            parts[:2] = [f"{part} ({policy.verb})" if part else "" for part in parts[:2]]
        if policy.topic_parameter:
            parts[1] += f" (`?{policy.topic_parameter}=`)"
        yield f"| {policy.title} | {' | '.join(parts)} | {needs_of(policy).text if policy.can_be_set else ''} |"
    yield from (
        "",
        _SUBSCRIPTION_POLICIES.strip(),
        "",
        "| policy | subscription | setting it needs |",
        "|---|---|---|",
    )
    yield from (f"| {policy.title} | `{policy.path}` | {needs_of(policy).text} |" for policy in SUBSCRIPTION_POLICIES)
    fields = ", ".join(f"`{field}`" for field in WITHOUT_EFFECT)
    yield from (
        "",
        f"These fields of the namespace object have no effect and must be left unset: {fields}.",
    )


def _metrics() -> Iterator[str]:
    yield from (
        "",
        _METRICS.strip(),
        "",
        "| metric | levels | summed per namespace | sum over the broker |",
        "|---|---|---|---|",
        "| `pulsar_topics_count` | namespace | | `pulsar_broker_topics_count` |",
        "| `pulsar_version_info` | broker | | |",
    )
    for family in FAMILIES:
        summed = "yes" if family.is_summed else ""
        total = f"`{family.broker_name}`" if family.broker_name else ""
        yield f"| `{family.name}` | {', '.join(family.levels)} | {summed} | {total} |"
    for name in replication_metrics.NAMES:
        yield f"| `{name}` | topic and remote cluster | yes | |"
    yield from ("", _BROKER_METRICS.strip(), "", "| metric | kind | labels | meaning |", "|---|---|---|---|")
    for metric in (*METRICS, *pipeline_metrics.METRICS):
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |"


def _unsupported() -> Iterator[str]:
    yield from (
        "",
        "## Not supported",
        "",
        "These paths of Apache Pulsar's interface, and all paths below them, return 501.",
        "",
        "| feature | reason | paths |",
        "|---|---|---|",
    )
    for gap in UNSUPPORTED:
        yield f"| {gap.what} | {gap.why} | {', '.join(f'`{path}`' for path in gap.paths)} |"


if __name__ == "__main__":
    print(admin_page(), end="")
