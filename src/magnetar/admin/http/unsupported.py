"""Unsupported paths of Pulsar's HTTP interface, with the reason: the text of a 501, and a table of docs/admin.md.

The route table comes first: a row here is for paths without a route, and for all paths below them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from magnetar.names import DOMAINS

PATH_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Gap:
    """A group of related paths; `why` completes the sentence "... is not supported: ..."."""

    what: str
    why: str
    paths: tuple[str, ...]


_CLUSTER = "/admin/v2/clusters/{cluster}"
_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


def _at_both_levels(*names: str) -> tuple[str, ...]:
    return tuple(f"{level}/{name}" for level in (_NAMESPACE, _TOPIC) for name in names)


UNSUPPORTED: tuple[Gap, ...] = (
    Gap(
        "failure domains and namespace isolation",
        "a cluster has one broker",
        (
            f"{_CLUSTER}/failureDomains",
            f"{_CLUSTER}/namespaceIsolationPolicies",
            f"{_NAMESPACE}/antiAffinity",
            "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
        ),
    ),
    Gap(
        "peer clusters and migration",
        "clients are never redirected to another cluster",
        (f"{_CLUSTER}/peers", f"{_CLUSTER}/migrate", f"{_NAMESPACE}/migration"),
    ),
    Gap(
        "broker shutdown over HTTP",
        "send the process SIGTERM for an orderly shutdown",
        ("/admin/v2/brokers/shutdown",),
    ),
    Gap(
        "metadata stores and bookies",
        "the broker has one storage, in its own folder",
        (
            "/admin/v2/brokers/internal-configuration",
            "/admin/v2/bookies",
            "/admin/v2/metadata",
            "/admin/v2/schemas/{tenant}/{namespace}/{topic}/metadata",
            *_at_both_levels("persistence"),
        ),
    ),
    Gap(
        "broker load, and moving bundles between brokers",
        "one broker serves every bundle; its numbers are under /metrics",
        (
            "/admin/v2/broker-stats",
            "/admin/v2/resource-quotas",
            "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
            f"{_NAMESPACE}/{{bundle}}/split",
            f"{_NAMESPACE}/{{bundle}}/topicHashPositions",
        ),
    ),
    Gap(
        "resource groups",
        "rates are limited per topic, subscription and broker, not for a group of namespaces",
        (f"{_NAMESPACE}/resourcegroup", "/admin/v2/resourcegroups"),
    ),
    Gap(
        "offloading to other storage",
        "messages stay in the broker's storage; the archive pipeline copies topics to Parquet",
        (
            *_at_both_levels("offload", "offloadPolicies"),
            f"{_NAMESPACE}/offloadThreshold",
            f"{_NAMESPACE}/offloadThresholdInSeconds",
            f"{_NAMESPACE}/offloadDeletionLagMs",
            f"{_NAMESPACE}/removeOffloadPolicies",
            f"{_NAMESPACE}/scanOffloadedLedgers",
        ),
    ),
    Gap(
        "compaction",
        "a topic keeps every message that retention or a subscription needs, whatever its key",
        (f"{_TOPIC}/compaction", *_at_both_levels("compactionThreshold")),
    ),
    Gap(
        "policies of features that the broker does not have",
        "the broker does not have the feature",
        (
            *_at_both_levels(
                "entryFilters",
                "dispatcherPauseOnAckStatePersistent",
                "deduplicationSnapshotInterval",
                "inactiveTopicPolicies",
                "subscriptionExpirationTime",
            ),
            f"{_NAMESPACE}/encryptionRequired",
            f"{_NAMESPACE}/allowedTopicPropertyKeysForMetrics",
            f"{_TOPIC}/shadowTopics",
        ),
    ),
    Gap(
        "scalable topics",
        "topics are plain or partitioned",
        ("/admin/v2/scalable", "/admin/v2/segments", f"{_NAMESPACE}/scalableTopicAutoScalePolicy"),
    ),
    Gap(
        "functions, sources, sinks and packages",
        "code runs in Spark pipelines, not in the broker",
        (
            "/admin/v2/functions",
            "/admin/v2/worker",
            "/admin/v2/worker-stats",
            "/admin/v3/functions",
            "/admin/v3/function",
            "/admin/v3/sources",
            "/admin/v3/source",
            "/admin/v3/sinks",
            "/admin/v3/sink",
            "/admin/v3/packages",
        ),
    ),
    Gap("transactions", "the broker has no transaction coordinator", ("/admin/v3/transactions",)),
    Gap(
        "the first version of the interface",
        "names that contain a cluster are not supported, use /admin/v2",
        (
            "/admin/clusters",
            "/admin/brokers",
            "/admin/tenants",
            "/admin/properties",
            "/admin/namespaces",
            "/admin/persistent",
            "/admin/non-persistent",
            "/admin/schemas",
            "/lookup/v2/destination",
        ),
    ),
    Gap(
        "publishing and reading over HTTP and WebSocket",
        "messages travel by the binary protocol",
        ("/topics", "/ws"),
    ),
)


def gap_at(path: str) -> Gap | None:
    """The gap that a path is in."""
    return next((gap for pattern, gap in _patterns() if pattern.fullmatch(path)), None)


def why_not(method: str, path: str) -> str | None:
    """The reason why this request is not supported; None if the path is not one of Pulsar's."""
    shown = f"{method} {path[:PATH_SHOWN_MAX]} is not supported"
    gap = gap_at(path)
    if gap is not None:
        return f"{shown}: {gap.why}"
    # All paths under /admin are Pulsar's: a missing one is a gap, not a wrong address.
    return f"{shown} yet" if f"{path}/".startswith("/admin/") else None


@cache
def _patterns() -> list[tuple[re.Pattern[str], Gap]]:
    return [(_pattern(path), gap) for gap in UNSUPPORTED for path in gap.paths]


def _pattern(path: str) -> re.Pattern[str]:
    text = re.escape(path).replace(r"\{domain\}", f"(?:{'|'.join(DOMAINS)})")
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", text) + r"(?:/.*)?", re.DOTALL)
