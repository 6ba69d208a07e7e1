"""Whether a cluster calls itself otherwise than its namespaces do.

Copies carry the name of their origin, so under another name every copy of a cluster looks foreign. Sends one request
per namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from magnetar.cli.rest import Refused, Rest

_NOT_FOUND = 404


class Misnamed(NamedTuple):
    """A namespace whose replication clusters do not include the cluster itself."""

    namespace: str
    own: str
    clusters: tuple[str, ...]
    unknown: tuple[str, ...]  # those without a registered address: the former name of the cluster is among them

    def __str__(self) -> str:
        return f"this broker calls itself {self.own}, but {self.namespace} is replicated as {', '.join(self.clusters)}"


def misnamed_namespaces(rest: Rest, own: str, namespaces: Iterable[str]) -> list[Misnamed]:
    found = []
    for namespace in sorted(set(namespaces)):
        clusters = tuple(_replication_clusters(rest, namespace))
        if len(clusters) > 1 and own not in clusters:
            known = set(rest.get("clusters"))
            found.append(Misnamed(namespace, own, clusters, tuple(one for one in clusters if one not in known)))
    return found


def _replication_clusters(rest: Rest, namespace: str) -> list[str]:
    try:
        return list(rest.get("namespaces", *namespace.split("/"), "replication") or [])
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise
        return []
