"""Faults of replication, injected into a real pipeline: the doctor finds each one first, and its command repairs it.

One pair of clusters for all of them, with unrelated faults that are there all the time: a topic with other partitions,
a second name of the remote cluster, and a cluster that does not respond. Two more clusters share its Spark session: one
that creates no topics elsewhere, and one that is killed and started again.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pulsar.schema import AvroSchema

from magnetar.cli.main import main
from tests.crash.killable import KillableBroker
from tests.pipelines.conftest import NAMESPACE, Cluster, World, full, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERSON = b'{"email": "secret@b.ch", "n": 1}'


@dataclass
class Fault:
    """`kinds` are repaired one after the other. `filled` replaces placeholders of the printed command. `message`
    arrives after the repair."""

    name: str
    inject: Callable[[Pair], None]
    kinds: tuple[str, ...]
    filled: dict[str, str] = field(default_factory=dict)
    message: bytes = b"42"
    topic: str = ""  # where it arrives, if its name is another one
    partition: int | None = None

    @property
    def source(self) -> str:
        return self.name if self.partition is None else f"{self.name}-partition-{self.partition}"


class Pair:
    """Cluster `a` replicates a namespace to `b`."""

    def __init__(self, a: Cluster, b: Cluster) -> None:
        self.a, self.b = a, b

    def addresses(self, http: str = "", binary: str = "") -> dict[str, str]:
        return {"serviceUrl": http or self.b.broker.http_url, "brokerServiceUrl": binary or self.b.broker.service_url}

    def causes(self, capsys: pytest.CaptureFixture[str], topic: str, remote: str = "b") -> list[dict[str, Any]]:
        capsys.readouterr()
        main(["doctor", "replication", full(topic), "--url", self.a.broker.http_url, "--json"])
        out = capsys.readouterr().out
        return next((one["causes"] for one in json.loads(out)["topics"] if one["remote"] == remote), [])

    def paste(
        self,
        capsys: pytest.CaptureFixture[str],
        topic: str,
        kind: str,
        filled: Mapping[str, str] | None = None,
    ) -> str:
        """Runs the command that repairs the first cause, as soon as it is of this kind."""
        found: list[dict[str, Any]] = []

        def is_first() -> bool:
            found[:] = self.causes(capsys, topic, self.b.name)
            return bool(found) and found[0]["kind"] == kind

        until(is_first, f"{kind} as the first cause of {topic}")
        repair = str(found[0]["repair"])
        for placeholder, text in (filled or {}).items():
            repair = repair.replace(placeholder, shlex.quote(text))
        assert main(shlex.split(repair)[1:]) == 0, capsys.readouterr().err
        return repair

    def is_copied(self, topic: str) -> bool:
        rows = self.a.status(topic, self.b)
        return all(row["state"] in ("running", "catching-up") and not row["backlog"] for row in rows)


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        yield World(spark, stack)


@pytest.fixture(scope="module")
def pair(shared: World) -> Pair:
    a, b = shared.cluster("a"), shared.cluster("b")
    a.know(b)
    b.ask("PUT", f"namespaces/{NAMESPACE}")
    dead = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
    pair = Pair(a, b)
    a.ask("PUT", "clusters/dead", dead)
    a.ask("PUT", "clusters/alias", pair.addresses())
    a.replicate(b)
    b.create("unrelated", 2)
    a.create("unrelated")
    shared.pipeline(a)
    return pair


@pytest.fixture(scope="module")
def careful(shared: World, pair: Pair) -> Pair:
    """Creates no topics in `b`, and keeps what it has copied."""
    c = shared.cluster("c", createTopicToRemoteClusterForReplication=False)
    c.know(pair.b)
    c.replicate(pair.b)
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    c.ask("POST", f"namespaces/{NAMESPACE}/retention", forever)
    shared.pipeline(c)
    return Pair(c, pair.b)


# -- faults


def not_json(pair: Pair) -> None:
    pair.a.create("people")
    pair.a.set_route(pair.b, f"{NAMESPACE}/people", masks=[{"field": "email"}])
    pair.a.publish("people", b"not json")


def bad_filter(pair: Pair) -> None:
    pair.a.create("filtered")
    pair.a.set_route(pair.b, f"{NAMESPACE}/filtered", where="CAST(CAST(value AS STRING) AS INT) > 3")
    pair.a.publish("filtered", b"no number")


def bad_filter_of_the_namespace(pair: Pair) -> None:
    pair.a.replicate(pair.b, namespace="public/sieve")
    pair.b.ask("PUT", "namespaces/public/sieve")
    pair.a.set_route(pair.b, "public/sieve", where="CAST(CAST(value AS STRING) AS INT) > 3")
    pair.a.create("public/sieve/t")
    pair.a.publish("public/sieve/t", b"no number")


def paused(pair: Pair) -> None:
    pair.a.create("paused")
    pair.a.set_route(pair.b, f"{NAMESPACE}/paused", paused=True)


def fewer_partitions(pair: Pair) -> None:
    pair.b.create("fewer", 2)
    pair.a.create("fewer", 3)


def not_partitioned(pair: Pair) -> None:
    pair.b.create("plain", 2)
    pair.a.create("plain")


def too_large(pair: Pair) -> None:
    pair.a.create("large")
    pair.b.wait_for("large")
    pair.b.ask("POST", f"persistent/{NAMESPACE}/large/maxMessageSize", 1000)
    pair.a.publish("large", bytes(5000))


def terminated(pair: Pair) -> None:
    pair.a.create("ended")
    pair.b.wait_for("ended")
    pair.b.ask("POST", f"persistent/{NAMESPACE}/ended/terminate")
    pair.a.publish("ended", b"1")


def namespace_missing(pair: Pair) -> None:
    pair.a.replicate(pair.b, namespace="public/lost")
    pair.a.create("public/lost/t")


def tenant_and_namespace_missing(pair: Pair) -> None:
    pair.a.ask("PUT", "tenants/acme", {"adminRoles": [], "allowedClusters": ["a", "b"]})
    pair.a.ask("PUT", "namespaces/acme/shop", {"replication_clusters": ["a", "b"]})
    pair.a.create("acme/shop/t")


def schema_refused(pair: Pair) -> None:
    pair.a.replicate(pair.b, namespace="public/typed")
    pair.b.ask("PUT", "namespaces/public/typed")
    for cluster, name in ((pair.b, "other"), (pair.a, "id")):
        cluster.create("public/typed/t")
        cluster.ask("POST", "schemas/public/typed/t/schema", {"type": "AVRO", "schema": record(name), "properties": {}})
    client = pulsar.Client(pair.a.broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with contextlib.closing(client):
        schema = AvroSchema(None, schema_definition=json.loads(record("id")))
        client.create_producer(full("public/typed/t"), schema=schema).send({"id": 1})


def record(field: str) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": field, "type": "int"}]})


def two_names(pair: Pair) -> None:
    allowed = pair.a.ask("GET", "tenants/public")
    pair.a.ask("POST", "tenants/public", {**allowed, "allowedClusters": [*allowed["allowedClusters"], "alias"]})
    pair.a.create("twice")
    pair.a.ask("POST", f"persistent/{NAMESPACE}/twice/replication", ["a", "b", "alias"])


def swapped_ports(pair: Pair) -> None:
    http, binary = pair.b.broker.http_url, pair.b.broker.service_url
    swapped = pair.addresses(binary.replace("pulsar", "http"), http.replace("http", "pulsar"))
    pair.a.ask("POST", "clusters/b", swapped)
    pair.a.create("swapped")


def no_http(pair: Pair) -> None:
    pair.a.ask("POST", "clusters/b", {"brokerServiceUrl": pair.b.broker.service_url})
    pair.a.create("nohttp")


A_NUMBER = {"CONDITION": "try_cast(CAST(value AS STRING) AS INT) > 3"}
FAULTS = [
    Fault("people", not_json, ("message-refused",), message=PERSON),
    Fault("filtered", bad_filter, ("bad-filter",), A_NUMBER),
    Fault("public/sieve/t", bad_filter_of_the_namespace, ("bad-filter",), A_NUMBER),
    Fault("paused", paused, ("paused",)),
    Fault("fewer", fewer_partitions, ("partition-mismatch",), partition=2),
    Fault("plain", not_partitioned, ("partition-mismatch",), topic="plain-a"),
    Fault("large", too_large, ("message-too-large",)),
    Fault("ended", terminated, ("remote-topic-terminated",)),
    Fault("public/lost/t", namespace_missing, ("remote-namespace-missing",)),
    Fault("acme/shop/t", tenant_and_namespace_missing, ("remote-tenant-missing", "remote-namespace-missing")),
    Fault("public/typed/t", schema_refused, ("schema-refused",)),
    Fault("twice", two_names, ("loop",)),
    Fault("swapped", swapped_ports, ("wrong-port",)),
    Fault("nohttp", no_http, ("no-address",), {"http://127.0.0.1:PORT": "b's HTTP address"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.inject.__name__)
def test_b9_the_first_cause_is_the_fault_and_its_command_repairs_it(
    pair: Pair, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    fault.inject(pair)
    filled = {
        placeholder: pair.b.broker.http_url if text.startswith("b's") else text
        for placeholder, text in fault.filled.items()
    }
    repairs = [pair.paste(capsys, fault.name, kind, filled) for kind in fault.kinds]
    pair.a.publish(fault.source, fault.message)
    target = fault.topic or fault.source
    pair.b.wait_for(target)
    status = [row for row in pair.a.status(fault.name, pair.b) if row["topic"] == full(fault.source)]
    assert len(status) == 1
    until(lambda: pair.is_copied(fault.name), f"the repair {repairs} of {fault.name}")
    arrived = pair.b.values(target, 1)
    assert not any(b"secret" in value or b"not json" in value for value in arrived)
    assert pair.causes(capsys, fault.name) == []
    assert pair.causes(capsys, "unrelated")[0]["kind"] == "partition-mismatch"


def test_a_topic_that_is_missing_in_the_other_cluster_is_created_and_once_deleted_restored(
    careful: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    c, b = careful.a, careful.b
    c.create("gone")
    c.publish("gone", b"1", b"2", b"3")
    until(lambda: c.states("gone", b) == ["waiting-for-remote-topic"], "waiting")
    careful.paste(capsys, "gone", "remote-topic-missing")
    assert b.values("gone", 3) == [b"1", b"2", b"3"]
    until(lambda: careful.is_copied("gone"), "all is copied")

    b.delete("gone")
    c.publish("gone", b"4")
    careful.paste(capsys, "gone", "remote-topic-missing")
    assert b.values("gone", 1) == [b"4"]
    until(lambda: careful.is_copied("gone"), "all is copied again")
    assert careful.causes(capsys, "gone") == []
    assert verified(careful, capsys, "gone") == (1, 3, 0)
    assert verified(careful, capsys, "gone", "--repair") == (0, 3, 3)
    assert sorted(b.values("gone", 4)) == [b"1", b"2", b"3", b"4"]
    assert verified(careful, capsys, "gone", "--repair") == (0, 0, 0)
    assert not b.has_more_than("gone", 4)


def verified(pair: Pair, capsys: pytest.CaptureFixture[str], topic: str, *words: str) -> tuple[int, int, int]:
    """The exit code, and the numbers of missing and of published entries."""
    capsys.readouterr()
    urls = pair.a.broker.http_url, pair.b.broker.http_url
    code = main(["replication", "verify", *urls, "--topics", full(topic), *words, "--json"])
    [found] = json.loads(capsys.readouterr().out)["topics"]
    return code, found["missing"]["entries"], found["published"]


@pytest.fixture
def far(pair: Pair, tmp_path: Path) -> Iterator[Callable[[], KillableBroker]]:
    """Starts broker processes on one data folder, known to `a`."""
    started: list[KillableBroker] = []

    def start() -> KillableBroker:
        started.append(KillableBroker(tmp_path / "far", ("clusterName=far", "pipelinesEnabled=false")))
        started[-1].start()
        return started[-1]

    yield start
    for broker in started:
        broker.kill()


def test_gr5_a_killed_cluster_recovers_by_itself_or_by_its_new_address(
    pair: Pair, far: Callable[[], KillableBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    a, broker = pair.a, far()
    with contextlib.closing(Cluster("far", broker)) as remote:
        a.know(remote)
        remote.ask("PUT", f"namespaces/{NAMESPACE}")
        allowed = a.ask("GET", "tenants/public")
        a.ask("POST", "tenants/public", {**allowed, "allowedClusters": [*allowed["allowedClusters"], "far"]})
        a.create("distant")
        a.ask("POST", f"persistent/{NAMESPACE}/distant/replication", ["a", "far"])
        a.publish("distant", b"1")
        assert remote.values("distant", 1) == [b"1"]

        kill(pair, broker, b"2")
        [cause, *_] = pair.causes(capsys, "distant", "far")
        assert cause["kind"] == "remote-unreachable"
        broker.start()
        assert remote.values("distant", 2) == [b"1", b"2"]
        until(lambda: Pair(a, remote).is_copied("distant"), "all is copied")
        assert pair.causes(capsys, "distant", "far") == []

    kill(pair, broker, b"3")
    moved = far()
    with contextlib.closing(Cluster("far", moved)) as remote:
        filled = {"http://HOST:PORT": moved.http_url, "pulsar://HOST:PORT": moved.service_url}
        Pair(a, remote).paste(capsys, "distant", "remote-unreachable", filled)
        assert remote.values("distant", 3) == [b"1", b"2", b"3"]
        until(lambda: Pair(a, remote).is_copied("distant"), "all is copied")
        assert pair.causes(capsys, "distant", "far") == []


def kill(pair: Pair, broker: KillableBroker, value: bytes) -> None:
    """A message is published that cannot be copied."""
    broker.kill()
    pair.a.publish("distant", value)
    rows = {"topic": full("distant"), "remote": "far"}
    until(lambda: pair.a.ask("GET", "replication/status", **rows)[0]["state"] == "unreachable", "unreachable")


def test_b11_a_cluster_that_is_this_one_gets_no_copies(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    own = pair.a.broker
    pair.a.ask("PUT", "clusters/me", {"serviceUrl": own.http_url, "brokerServiceUrl": own.service_url})
    allowed = pair.a.ask("GET", "tenants/public")
    pair.a.ask("POST", "tenants/public", {**allowed, "allowedClusters": [*allowed["allowedClusters"], "me"]})
    pair.a.create("itself")
    pair.a.ask("POST", f"persistent/{NAMESPACE}/itself/replication", ["a", "me"])
    pair.a.publish("itself", b"once")

    def refused() -> bool:
        rows = pair.a.ask("GET", "replication/status", topic=full("itself"), remote="me")
        return all(row["state"] == "refused-by-remote" and "is cluster a itself" in row["reason"] for row in rows)

    until(refused, "refused")
    assert not pair.a.has_more_than("itself", 1)
    assert pair.causes(capsys, "itself", "me")[0]["kind"] == "loop"
