"""Clusters that know each other, each a real broker, with their pipelines in the tests' one Spark session."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import magnetar.testing
from magnetar.client import EARLIEST, Client, Message
from magnetar.client.errors import Timeout
from magnetar.names import TopicName
from tests.crash.killable import KillableBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from magnetar.pipelines.replicate.driver import Pipeline

NAMESPACE = "public/geo"
WAIT_S = 30.0
RETRY_MAX_S = 1.0


class Cluster:
    """A broker that forms a cluster."""

    stop_broker: Callable[[], None]  # of a cluster that a `World` started

    def __init__(self, name: str, broker: magnetar.testing.TestBroker | KillableBroker) -> None:
        self.name = name
        self.broker = broker
        self.client = Client(broker.service_url)
        self.http = httpx.Client(base_url=f"{broker.http_url}/admin/v2/", timeout=10, trust_env=False)
        self.pipeline: Pipeline | None = None

    def close(self) -> None:
        self.client.close()
        self.http.close()

    # -- admin calls

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        headers = {"Content-Type": "application/json"}
        answer = self.http.request(method, path, json=body, params=_texts(query), headers=headers)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def know(self, other: Cluster) -> None:
        urls = {"serviceUrl": other.broker.http_url, "brokerServiceUrl": other.broker.service_url}
        known = self.ask("GET", "clusters")
        self.ask("POST" if other.name in known else "PUT", f"clusters/{other.name}", urls)

    def replicate(self, *others: Cluster, namespace: str = NAMESPACE) -> None:
        """Replicates the topics of a namespace, which is created if missing."""
        names = [self.name, *(other.name for other in others)]
        allowed = self.ask("GET", "tenants/public")
        allowed["allowedClusters"] = sorted({*allowed["allowedClusters"], *names})
        self.ask("POST", "tenants/public", allowed)
        if namespace not in self.ask("GET", "namespaces/public"):
            self.ask("PUT", f"namespaces/{namespace}")
        self.ask("POST", f"namespaces/{namespace}/replication", names)

    def create(self, topic: str, partitions: int = 0) -> None:
        path = _path(topic)
        if partitions:
            self.ask("PUT", f"{path}/partitions", partitions)
        else:
            self.ask("PUT", path)

    def grow(self, topic: str, partitions: int) -> None:
        self.ask("POST", f"{_path(topic)}/partitions", partitions)

    def delete(self, topic: str, *, partitioned: bool = False) -> None:
        self.ask("DELETE", _path(topic) + ("/partitions" if partitioned else ""), force=True)

    def set_route(self, remote: Cluster, place: str, **policy: object) -> None:
        self.ask("POST", f"replication/routes/{remote.name}/{place}", policy)

    def status(self, topic: str, remote: Cluster) -> list[dict[str, Any]]:
        return list(self.ask("GET", "replication/status", topic=full(topic), remote=remote.name))

    def states(self, topic: str, remote: Cluster) -> list[str]:
        """States of the partitions, in order."""
        return [row["state"] for row in self.status(topic, remote)]

    # -- clients

    def publish(self, topic: str, *values: bytes, **options: Any) -> None:
        with self.client.producer(full(topic)) as producer:
            for value in values:
                producer.send(value, **options)

    def read(self, topic: str, count: int, timeout_s: float = WAIT_S) -> list[Message]:
        """The first `count` messages, as soon as they arrive."""
        self.wait_for(topic)
        with self.client.reader(full(topic), EARLIEST) as reader:
            return [reader.read(timeout_s) for _ in range(count)]

    def values(self, topic: str, count: int) -> list[bytes]:
        return [message.value for message in self.read(topic, count)]

    def wait_for(self, topic: str) -> None:
        until(lambda: self.client.partition_count(full(topic)) is not None, f"{topic} in {self.name}")

    def has_more_than(self, topic: str, count: int, within_s: float = 0.5) -> bool:
        with self.client.reader(full(topic), EARLIEST) as reader:
            for _ in range(count):
                reader.read(WAIT_S)
            try:
                reader.read(within_s)
            except Timeout:
                return False
        return True


def full(topic: str) -> str:
    return TopicName.parse(topic if "/" in topic else f"{NAMESPACE}/{topic}").full


def _path(topic: str) -> str:
    return full(topic).replace("://", "/")


def _texts(query: dict[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}


def until(is_true: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> float:
    """Waits for a condition and returns the elapsed time."""
    started_s = time.monotonic()
    while not is_true():
        if time.monotonic() - started_s > timeout_s:
            pytest.fail(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(0.02)
    return time.monotonic() - started_s


class World:
    """Starts clusters and their pipelines, and stops them."""

    def __init__(self, spark: SparkSession, stack: contextlib.ExitStack) -> None:
        self.spark = spark
        self.on_exit = stack.callback
        self._stack = stack

    def cluster(self, name: str, data: Path | None = None, **settings: object) -> Cluster:
        own = self._stack.enter_context(contextlib.ExitStack())
        broker = own.enter_context(magnetar.testing.broker(data, clusterName=name, **settings))
        cluster = Cluster(name, broker)
        cluster.stop_broker = own.close
        self._stack.callback(cluster.close)
        return cluster

    def mesh(self, *names: str, **settings: object) -> list[Cluster]:
        """Clusters that replicate one namespace into each other."""
        clusters = [self.cluster(name, **settings) for name in names]
        self.link(*clusters)
        return clusters

    def link(self, *clusters: Cluster) -> None:
        for one in clusters:
            others = [other for other in clusters if other is not one]
            for other in others:
                one.know(other)
            one.replicate(*others)

    def pipeline(self, cluster: Cluster) -> Pipeline:
        from magnetar.pipelines.declared_sources import DeclaringBroker
        from magnetar.pipelines.replicate.driver import Pipeline
        from magnetar.pipelines.replicate.sources import DeclaringSource

        source = DeclaringSource(DeclaringBroker(cluster.broker.http_url, cluster.broker.service_url))
        cluster.pipeline = Pipeline(source, lanes=1, retry_max_s=RETRY_MAX_S)
        cluster.pipeline.prepare()
        cluster.pipeline.start(self.spark.sparkContext)
        self._stack.callback(cluster.pipeline.stop)
        return cluster.pipeline


@pytest.fixture
def world(spark: SparkSession) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        yield World(spark, stack)


@pytest.fixture
def two(world: World) -> tuple[Cluster, Cluster]:
    """Both directions, with a pipeline for each."""
    a, b = world.mesh("a", "b")
    world.pipeline(a)
    world.pipeline(b)
    return a, b


@pytest.fixture(scope="module")
def a() -> Iterator[magnetar.testing.TestBroker]:
    """A broker without a pipeline; `b` is the other."""
    with magnetar.testing.broker(clusterName="a") as running:
        yield running


@pytest.fixture(scope="module")
def b() -> Iterator[magnetar.testing.TestBroker]:
    with magnetar.testing.broker(clusterName="b") as running:
        yield running
