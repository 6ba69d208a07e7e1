"""docs/admin.md, drawn from the tables of routes, gaps and metrics: `python -m tools.admin_reference`."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.admin.http.routes import ROUTES, Route
from magnetar.admin.http.unsupported import UNSUPPORTED
from magnetar.admin.policy import routes as policy_routes
from magnetar.admin.policy.subscription_table import SUBSCRIPTION_POLICIES
from magnetar.admin.policy.table import POLICIES
from magnetar.admin.resource.namespaces import NOT_OBEYED
from magnetar.admin.stats import replication_metrics
from magnetar.admin.stats.metrics import FAMILIES

_INTRODUCTION = """\
# The HTTP interface

The broker answers Apache Pulsar's admin REST interface, version 2, on its HTTP port; drawn from the route table of
`admin/routes.py` by `make docs`. `{domain}` is `persistent` or `non-persistent`.

- A change is answered with 204 when it is durable, a few with an empty 200, as Apache Pulsar does.
- Every refusal has a status of 4xx and the body `{"reason": "..."}`, which names what was wrong. 400: the body, a
  parameter or the path cannot be read. 404: it does not exist. 409: it exists already, or what is there does not allow
  it. 412: the value or the name is not allowed. A refused request changes nothing.
- What Apache Pulsar has and this broker has not is answered with 501 and the reason; those paths are
  [listed below](#not-supported). A field of a body that would not be obeyed is refused in the same way.
- Apache Pulsar has nothing like `deadLetters`, `deadLetterPolicy`, `deadLetterExpired`, `deadLetterEvicted`,
  `redeliveryBackoff`, `circuitBreaker`, `pause` and `resume`: these are ours, and so are the metrics `magnetar_*`.
- A body has at most 1 MiB.
"""

_METRICS = """
Numbers of topics have the labels `cluster`, `namespace` and `topic`; those of subscriptions `subscription` too, of
consumers also `consumer_name` and `consumer_id`, of producers `producer_name` and `producer_id`. Topics, consumers and
producers are shown as `exposeTopicLevelMetricsInPrometheus`, `exposeConsumerLevelMetricsInPrometheus` and
`exposeProducerLevelMetricsInPrometheus` say. Where topics are left out, some metrics stand for each namespace, as the
sum. `magnetar_subscription_dead_lettered_total` has the label `reason` too, for those reasons that there were. A topic
that nobody has used since the start is counted in `pulsar_topics_count`, and has no numbers of its own.

Numbers of replication have the label `remote_cluster`, and `magnetar_replication_state`, which is 1, the label `state`:
where topics are left out, it is how many are in that state. What other clusters send is in
`pulsar_replication_rate_in`, and not in `pulsar_rate_in`.
"""

_POLICIES = """
## Policies

What is set for a topic comes before what is set for its namespace, and that before the settings of the broker. Open
topics obey a change at once. Paths start with `/admin/v2/namespaces/{tenant}/{namespace}/` for a namespace and with
`/admin/v2/persistent/{tenant}/{namespace}/{topic}/` for a topic; a partitioned topic has its policies as a whole. GET
shows what is set there, with `?applied=true` what is in force; POST sets it, PUT where that is said; DELETE leaves it
to the level above. `DELETE .../{topic}/policies` does so for all policies of a topic.

Backlog quotas are set and removed one kind at a time: `.../backlogQuota?backlogQuotaType=` `destination_storage` or
`message_age`. The tick time of delayed delivery is kept and shown; messages are delivered on time whatever it is.
Permissions are kept and shown as by an Apache Pulsar without authorization: nobody is refused because of them.
"""

_SUBSCRIPTION_POLICIES = """
Policies of durable subscriptions are below `/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/
{subscription}/`: GET shows one, POST sets it, DELETE removes it. On a partitioned topic they apply to all partitions.
"""

# The first row that fits the beginning of a path gives it its heading.
_HEADINGS = (
    ("/admin/v2/brokers", "Broker"),
    ("/status.html", "Broker"),
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
    for heading, routes in _by_heading().items():
        if heading == "Schemas":
            yield from _policies()
        yield from ("", f"## {heading}", "", "| method | path | what it does |", "|---|---|---|")
        yield from (f"| {route.method} | `{route.path}` | {route.described} |" for route in routes)
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
        "| policy | of a namespace | of a topic | in the object of a namespace |",
        "|---|---|---|---|",
    )
    for policy in POLICIES:
        parts = [f"`{part}`" if part else "" for part in (policy.namespace, policy.topic, policy.in_object)]
        if policy.verb != "POST":
            parts[:2] = [f"{part} ({policy.verb})" if part else "" for part in parts[:2]]
        if policy.topic_parameter:
            parts[1] += f" (`?{policy.topic_parameter}=`)"
        yield f"| {policy.title} | {' | '.join(parts)} |"
    yield from ("", _SUBSCRIPTION_POLICIES.strip(), "", "| policy | of a subscription |", "|---|---|")
    yield from (f"| {policy.title} | `{policy.path}` |" for policy in SUBSCRIPTION_POLICIES)
    fields = ", ".join(f"`{field}`" for field in NOT_OBEYED)
    yield from (
        "",
        f"A namespace can be made only with these fields of the object left as they are when unset: {fields}.",
    )


def _metrics() -> Iterator[str]:
    yield from (
        "",
        _METRICS.strip(),
        "",
        "| metric | of each | summed per namespace | sum over the broker |",
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


def _unsupported() -> Iterator[str]:
    yield from (
        "",
        "## Not supported",
        "",
        "These belong to Apache Pulsar's interface and are answered with 501, with everything below them.",
        "",
        "| what | why not | paths |",
        "|---|---|---|",
    )
    for gap in UNSUPPORTED:
        yield f"| {gap.what} | {gap.why} | {', '.join(f'`{path}`' for path in gap.paths)} |"


if __name__ == "__main__":
    print(admin_page(), end="")
