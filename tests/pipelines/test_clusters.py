"""Clients of a copying process: one per cluster, none for an earlier endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import magnetar.testing
from magnetar.client import Security
from magnetar.client.errors import Closed
from magnetar.pipelines import clusters
from magnetar.pipelines.clusters import Clusters
from magnetar.replication.cluster import ClusterEndpoint

TOPIC = "persistent://public/default/t"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    monkeypatch.setattr(clusters, "_clusters", {})
    own = clusters.clusters()
    yield own
    own.loop.close(*own._clients.values())


def test_a_changed_endpoint_gets_a_new_client_and_the_old_one_is_closed(own: Clusters) -> None:
    """As after every new token: unused connections would accumulate."""
    with magnetar.testing.broker() as broker:
        before = ClusterEndpoint("b", broker.service_url, None, Security(token="first"))
        after = ClusterEndpoint("b", broker.service_url, None, Security(token="second"))
        old = own.client(before)
        assert own.loop.run(own.is_ours(before, TOPIC))
        new = own.client(after)
        assert new is own.client(after) is not old
        own.loop.run(old.server_version(TOPIC))  # its users may keep it until the task ends
        assert clusters.clusters() is own
        with pytest.raises(Closed):
            own.loop.run(old.server_version(TOPIC))
        assert own.loop.run(own.is_ours(after, TOPIC))
        assert list(own._clients) == list(own._is_ours) == [after]


def test_clusters_are_independent(own: Clusters) -> None:
    endpoints = [ClusterEndpoint(name, "pulsar://127.0.0.1:9") for name in ("a", "b")]
    clients = [own.client(endpoint) for endpoint in endpoints]
    assert [clusters.clusters().client(endpoint) for endpoint in endpoints] == clients
