"""Brokers of different clusters, declared in each other, with a replicated namespace."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from magnetar.testing import TestBroker, broker

TENANT = "geo"
NAMESPACE = "geo/shop"
PATIENCE_S = 10.0


class Cluster:
    """A broker, and short forms of its REST calls. Topics are those of NAMESPACE, by their local name."""

    def __init__(self, name: str, running: TestBroker, http: httpx.Client) -> None:
        self.name = name
        self.running = running
        self.http = http

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> httpx.Response:
        return self.http.request(method, f"{self.running.http_url}/admin/v2/{path}", json=body, params=query)

    def do(self, method: str, path: str, body: Any = None) -> None:
        answer = self.ask(method, path, body)
        assert answer.is_success, answer.text

    def declare(self, other: Cluster) -> None:
        urls = {"serviceUrl": other.running.http_url, "brokerServiceUrl": other.running.service_url}
        self.do("PUT", f"clusters/{other.name}", urls)

    def allow(self, *clusters: str) -> None:
        self.do("PUT", f"tenants/{TENANT}", {"adminRoles": [], "allowedClusters": [self.name, *clusters]})

    def create(self, topic: str, partitions: int = 0) -> None:
        if partitions:
            self.do("PUT", f"persistent/{NAMESPACE}/{topic}/partitions", partitions)
        else:
            self.do("PUT", f"persistent/{NAMESPACE}/{topic}")

    def grow(self, topic: str, partitions: int) -> httpx.Response:
        return self.ask("POST", f"persistent/{NAMESPACE}/{topic}/partitions", partitions)

    def partitions(self, topic: str) -> int | None:
        answer = self.ask("GET", f"persistent/{NAMESPACE}/{topic}/partitions", checkAllowAutoCreation="false")
        return answer.json()["partitions"] if answer.is_success else None

    def topics(self) -> set[str]:
        """Topics with partitions listed individually."""
        names: list[str] = self.ask("GET", f"namespaces/{NAMESPACE}/topics", mode="ALL").json()
        return {name.rpartition("/")[2] for name in names}

    def replicate(self, *remotes: str, topic: str | None = None) -> None:
        path = f"namespaces/{NAMESPACE}" if topic is None else f"persistent/{NAMESPACE}/{topic}"
        self.do("POST", f"{path}/replication", [self.name, *remotes])


@contextlib.contextmanager
def clusters(*names: str, replicated: bool = True, **settings: object) -> Iterator[list[Cluster]]:
    """Starts this many brokers with NAMESPACE in each and, if `replicated`, replicated to all others."""
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(httpx.Client(verify=False, timeout=30))
        made = [
            Cluster(name, stack.enter_context(broker(clusterName=name, pipelinesEnabled=False, **settings)), http)
            for name in names
        ]
        for one in made:
            one.running.run(one.running.server.broker.replication.expect_process)  # as if one were starting
            others = [other for other in made if other is not one]
            for other in others:
                one.declare(other)
            one.allow(*(other.name for other in others))
            one.do("PUT", f"namespaces/{NAMESPACE}", {})
        for one in made if replicated else ():
            one.replicate(*(other.name for other in made if other is not one))
        yield made


def eventually(condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> float:
    """Waits for a condition and returns the seconds it took."""
    started_s = time.monotonic()
    while not condition():
        assert time.monotonic() - started_s < timeout_s, "it did not come to be in time"
        time.sleep(0.01)
    return time.monotonic() - started_s
