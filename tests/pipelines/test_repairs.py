"""Faults of replication, injected into a real pipeline: the doctor finds each one first, and its command repairs it.

One pair of clusters for all of them, with unrelated faults that are there all the time: a topic with other partitions,
a second name of the remote cluster, and a cluster that does not respond.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.cli.main import main
from tests.pipelines.conftest import NAMESPACE, Cluster, World, full, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERSON = b'{"email": "secret@b.ch", "n": 1}'


@dataclass
class Fault:
    """`filled` replaces placeholders of the printed command. `message` arrives after the repair."""

    name: str
    inject: Callable[[Pair], None]
    kind: str
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


@pytest.fixture(scope="module")
def pair(spark: SparkSession) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        world = World(spark, stack)
        a, b = world.cluster("a"), world.cluster("b")
        a.know(b)
        b.ask("PUT", f"namespaces/{NAMESPACE}")
        dead = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
        pair = Pair(a, b)
        a.ask("PUT", "clusters/dead", dead)
        a.ask("PUT", "clusters/alias", pair.addresses())
        a.replicate(b)
        b.create("unrelated", 2)
        a.create("unrelated")
        world.pipeline(a)
        yield pair


# -- faults


def not_json(pair: Pair) -> None:
    pair.a.create("people")
    pair.a.set_route(pair.b, f"{NAMESPACE}/people", masks=[{"field": "email"}])
    pair.a.publish("people", b"not json")


def bad_filter(pair: Pair) -> None:
    pair.a.create("filtered")
    pair.a.set_route(pair.b, f"{NAMESPACE}/filtered", where="CAST(CAST(value AS STRING) AS INT) > 3")
    pair.a.publish("filtered", b"no number")


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


FAULTS = [
    Fault("people", not_json, "message-refused", message=PERSON),
    Fault("filtered", bad_filter, "bad-filter", {"CONDITION": "try_cast(CAST(value AS STRING) AS INT) > 3"}),
    Fault("paused", paused, "paused"),
    Fault("fewer", fewer_partitions, "partition-mismatch", partition=2),
    Fault("plain", not_partitioned, "partition-mismatch", topic="plain-a"),
    Fault("large", too_large, "message-too-large"),
    Fault("ended", terminated, "remote-topic-terminated"),
    Fault("public/lost/t", namespace_missing, "remote-namespace-missing"),
    Fault("twice", two_names, "loop"),
    Fault("swapped", swapped_ports, "wrong-port"),
    Fault("nohttp", no_http, "no-address", {"http://127.0.0.1:PORT": "b's HTTP address"}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.inject.__name__)
def test_b9_the_first_cause_is_the_fault_and_its_command_repairs_it(
    pair: Pair, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    fault.inject(pair)

    def first() -> str:
        causes = pair.causes(capsys, fault.name)
        return causes[0]["kind"] if causes else ""

    until(lambda: first() == fault.kind, f"{fault.kind} as the first cause, not {first()},")
    [cause, *_] = pair.causes(capsys, fault.name)
    repair = cause["repair"]
    for placeholder, text in fault.filled.items():
        given = pair.b.broker.http_url if text.startswith("b's") else text
        repair = repair.replace(placeholder, shlex.quote(given))
    assert main(shlex.split(repair)[1:]) == 0, capsys.readouterr().err
    pair.a.publish(fault.source, fault.message)
    target = fault.topic or fault.source
    until(lambda: pair.b.client.partition_count(full(target)) is not None, f"{target} in b")
    status = [row for row in pair.a.status(fault.name, pair.b) if row["topic"] == full(fault.source)]
    assert len(status) == 1
    until(lambda: is_copied(pair, fault), f"the repair {repair} of {fault.name}")
    arrived = arrived_in(pair, target)
    assert arrived
    assert not any(b"secret" in value or b"not json" in value for value in arrived)
    assert pair.causes(capsys, fault.name) == []
    assert first_of(pair, capsys, "unrelated") == "partition-mismatch"


def is_copied(pair: Pair, fault: Fault) -> bool:
    rows = pair.a.status(fault.name, pair.b)
    return all(row["state"] in ("running", "catching-up") and not row["backlog"] for row in rows)


def arrived_in(pair: Pair, topic: str) -> list[bytes]:
    return [message.value for message in pair.b.read(topic, 1)]


def first_of(pair: Pair, capsys: pytest.CaptureFixture[str], topic: str) -> str:
    return str(pair.causes(capsys, topic)[0]["kind"])


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
