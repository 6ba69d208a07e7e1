"""`magnetar replication verify A B` as a command: the topics compared, and the report. Tasks run here, not in Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import msgspec
import pytest

from magnetar import testing
from magnetar.cli.main import main
from magnetar.cli.replication.verify import position_of
from magnetar.client import Client
from magnetar.pipelines.clusters import Clusters
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.verify import verify as verifying
from magnetar.pipelines.verify.comparison import Compared
from magnetar.pipelines.verify.verify import Pair
from magnetar.replication.cluster import ClusterEndpoint
from tests.cli.conftest import Recorder

GEO = "public/geo"


class Two:
    def __init__(self, a: testing.TestBroker, b: testing.TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.a, self.b = a, b
        self._capsys = capsys
        self.clusters = Clusters()

    def ask(self, broker: testing.TestBroker, method: str, path: str, body: object = None) -> None:
        url = f"{broker.http_url}/admin/v2/{path}"
        answer = httpx.request(method, url, json=body, headers={"Content-Type": "application/json"}, trust_env=False)
        assert answer.is_success, answer.text

    def publish(self, topic: str, *values: bytes) -> None:
        with Client(self.a.service_url) as client, client.producer(topic, batching=False) as producer:
            for value in values:
                producer.send(value)

    def run(self, *words: str, b: str | None = None) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["replication", "verify", self.a.http_url, b or self.b.http_url, *words])
        return code, *self._capsys.readouterr()

    def found(self, *words: str, code: int = 0) -> dict[str, Any]:
        result = self.run(*words, "--json")
        assert (result[0], result[2]) == (code, ""), result
        value: dict[str, Any] = json.loads(result[1])
        return value


@pytest.fixture
def two(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    settings = {"pipelinesEnabled": False, "createTopicToRemoteClusterForReplication": False}
    with testing.broker(clusterName="a", **settings) as a, testing.broker(clusterName="b", **settings) as b:
        two = Two(a, b, capsys)
        two.ask(a, "PUT", "clusters/b", {"serviceUrl": b.http_url, "brokerServiceUrl": b.service_url})
        two.ask(a, "POST", "tenants/public", {"adminRoles": [], "allowedClusters": ["a", "b"]})
        for broker in (a, b):
            two.ask(broker, "PUT", f"namespaces/{GEO}")
            everything = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            two.ask(broker, "POST", f"namespaces/{GEO}/retention", everything)

        def here(pairs: Sequence[Pair], master: str | None = None) -> list[Compared]:
            return [verifying.compare(pair) for pair in pairs]

        monkeypatch.setattr(verifying, "verify", here)
        monkeypatch.setattr(verifying, "clusters", lambda: two.clusters)
        yield two
        two.clusters.loop.close(*two.clusters._clients.values())


def declare(two: Two) -> None:
    two.ask(two.a, "POST", f"namespaces/{GEO}/replication", ["a", "b"])


def test_gr6_declared_topics_are_compared_under_their_remote_name(two: Two) -> None:
    two.ask(two.a, "PUT", f"persistent/{GEO}/parts/partitions", 2)
    two.ask(two.a, "PUT", f"persistent/{GEO}/orders")
    two.ask(two.a, "PUT", "persistent/public/default/not-replicated")
    declare(two)
    two.ask(
        two.a, "POST", f"replication/routes/b/{GEO}", {"rename": "{tenant}/{namespace}/{topic}-eu", "where": "true"}
    )
    found = two.found()
    assert {(one["topic"], one["target"]) for one in found["topics"]} == {
        (f"persistent://{GEO}/{name}", f"persistent://{GEO}/{renamed}")
        for name, renamed in (
            ("parts-partition-0", "parts-eu-partition-0"),
            ("parts-partition-1", "parts-eu-partition-1"),
            ("orders", "orders-eu"),
        )
    }
    assert all("only positions are compared" in remark for remark in found["remarks"])
    assert len(two.found("-t", f"{GEO}/orders")["topics"]) == 1
    assert len(two.found("-t", GEO, "-t", f"{GEO}/orders")["topics"]) == 3


def test_gr6_missing_messages_are_reported_and_repaired(two: Two) -> None:
    two.ask(two.a, "PUT", f"persistent/{GEO}/orders")
    two.ask(two.b, "PUT", f"persistent/{GEO}/orders")
    declare(two)
    two.publish(f"{GEO}/orders", b"1", b"2", b"3")
    topic = f"persistent://{GEO}/orders"
    code, out, _ = two.run()
    assert (code, out.splitlines()[0]) == (
        0,
        f"{topic}: 3 entries not copied yet",
    )
    two.ask(two.a, "POST", f"persistent/{GEO}/orders/subscription/pulsar.repl.b/skip/2")
    code, out, _ = two.run()
    assert code == 1
    header, row = out.splitlines()[:2]
    assert header.split() == ["KIND", "TOPIC", "ENTRIES", "POSITIONS", "IN", "A", "WHAT"]
    assert row.split()[:3] == ["missing", topic, "2"]
    assert out.endswith("1 topic or partition: 3 entries of A compared with 0 of B: 2 missing\n")
    (one,) = two.found("--from-first-copy")["topics"]
    assert (one["earlier"], one["not_yet"]) == (2, 1)
    code, out, _ = two.run("--repair")
    assert code == 0
    assert out.endswith("3 entries of A compared with 0 of B: 2 missing, 2 repaired\n")
    (one,) = two.found()["topics"]
    assert (one["missing"], one["copies"], one["not_yet"]) == ({"entries": 0, "ranges": []}, 2, 1)
    copy_all(two, topic)
    (one,) = two.found()["topics"]
    assert (one["originals"], one["copies"], one["duplicated"]["entries"]) == (3, 3, 0)


def test_gr6_a_cluster_under_another_name_is_not_compared_nor_repaired(two: Two) -> None:
    """Every copy would be counted as missing, and a repair would publish all of them again."""
    two.ask(two.a, "PUT", f"persistent/{GEO}/orders")
    two.ask(two.b, "PUT", f"persistent/{GEO}/orders")
    declare(two)
    two.publish(f"{GEO}/orders", b"1", b"2")
    copy_all(two, f"persistent://{GEO}/orders", 2)
    rename(two.a, "former", "b")
    code, _, err = two.run("--repair")
    expected = f"A ({two.a.http_url}): this broker calls itself a, but {GEO} is replicated as former, b"
    assert (code, err.startswith(f"magnetar: {expected}"), "--from-cluster NAME" in err) == (2, True, True), err
    (one,) = two.found("--from-cluster", "a")["topics"]  # an explicit name is believed
    assert (one["missing"]["entries"], one["copies"]) == (0, 2)
    capsys = two._capsys
    capsys.readouterr()
    assert main(["doctor", "replication", "--url", two.a.http_url, "--json"]) == 1
    (found, *_) = json.loads(capsys.readouterr().out)["topics"]
    assert (found["topic"], found["causes"][0]["kind"]) == (GEO, "cluster-misnamed")
    assert found["causes"][0]["repair"] == "magnetar standalone --cluster former --rename-cluster"


def rename(broker: testing.TestBroker, *clusters: str) -> None:
    """Leaves a namespace with the former name of its cluster, as a forgotten `--cluster` did."""
    catalog = broker.server.broker.catalog
    former = catalog.namespaces[GEO]
    overrides = msgspec.structs.replace(former.overrides, replication_clusters=clusters)
    broker.run(lambda: catalog.save_namespace(GEO, msgspec.structs.replace(former, overrides=overrides)))


def copy_all(two: Two, topic: str, entries: int = 1) -> None:
    """Copies the rest, like the pipeline after a repair."""
    sides = (ClusterEndpoint(name, one.service_url, one.http_url) for name, one in (("a", two.a), ("b", two.b)))
    from magnetar.pipelines.copy import copier as copying

    assignment = Assignment(*sides, topic, topic, "pulsar.repl.b")
    (outcome,) = two.clusters.loop.run(copying._copy_all(two.clusters, [assignment], 5.0, 0.2))
    assert (outcome.entries, outcome.error) == (entries, "")


def test_gr6_an_undeclared_topic_is_compared_if_named(two: Two) -> None:
    two.ask(two.a, "PUT", f"persistent/{GEO}/orders")
    two.ask(two.a, "PUT", f"persistent/{GEO}/orders-s-DLQ")
    two.publish(f"{GEO}/orders", b"1")
    code, out, err = two.run()
    assert (code, out) == (2, "")
    assert "a replicates no such topics to b; name topics with --topics" in err
    found = two.found("--topics", GEO, code=1)
    assert [one["topic"] for one in found["topics"]] == [f"persistent://{GEO}/orders"]
    assert "has no subscription for b" in found["remarks"][0]


def test_gr6_a_cluster_declared_under_another_name(two: Two) -> None:
    """It is declared under our name for it, and knows its address under its own."""
    two.ask(two.a, "PUT", "clusters/west", {"serviceUrl": two.b.http_url, "brokerServiceUrl": two.b.service_url})
    two.ask(two.a, "POST", "tenants/public", {"adminRoles": [], "allowedClusters": ["a", "west"]})
    two.ask(two.a, "PUT", f"persistent/{GEO}/orders")
    two.ask(two.a, "POST", f"namespaces/{GEO}/replication", ["a", "west"])
    two.publish(f"{GEO}/orders", b"1")
    (one,) = two.found("--to-cluster", "west")["topics"]
    assert (one["error"], one["not_yet"]) == ("", 1)


def test_gr6_an_unreachable_or_unnamed_cluster_is_an_error(two: Two, recorder: Recorder) -> None:
    code, _, err = two.run(b="http://127.0.0.1:1")
    assert (code, "cannot connect to" in err) == (2, True)
    recorder.will_answer("GET", "/admin/v2/brokers/configuration/runtime", {"reason": "no"}, status=403)
    code, _, err = two.run(b=recorder.url)
    assert (code, f"B ({recorder.url}) does not report its name: give --to-cluster" in err) == (2, True)
    recorder.will_answer("GET", "/admin/v2/clusters/b", {"serviceUrl": recorder.url})
    code, _, err = two.run("--to-cluster", "b", b=recorder.url)
    assert (code, f"write pulsar://host:port,{recorder.url}" in err) == (2, True)


def test_the_position_of_a_foreign_cluster_takes_precedence() -> None:
    stats = {"cursors": {"pulsar.repl.b": {"markDeletePosition": "3:7"}, "billing": {}}}
    assert position_of(stats, "b") == ("pulsar.repl.b", (3, 7))
    stats["cursors"]["magnetar.repl.b"] = {"markDeletePosition": "3:-1"}
    assert position_of(stats, "b") == ("magnetar.repl.b", (3, -1))
    assert position_of(stats, "c") == (None, None)
    assert position_of({"cursors": {"pulsar.repl.b": {}}}, "b") == ("pulsar.repl.b", (-1, -1))
    assert position_of({}, "b") == (None, None)
