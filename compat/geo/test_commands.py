"""`replication verify`, `diff` and `doctor replication` against Apache Pulsar, and replication in stats and metrics."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from clusters import Apache, Cluster, Ours, new_namespace, partition, path_of, until
from routes import Routes

from magnetar.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> dict[str, Any]:
    capsys.readouterr()
    found = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert found == code, f"{out}\n{err}"
    value: dict[str, Any] = json.loads(out)
    return value


@pytest.fixture
def both_ways(ours: Ours, apache: Apache, routes: Routes, namespace: str) -> str:
    """A topic with messages of both clusters, copied by our pipeline and by Apache Pulsar's replicator."""
    topic = f"persistent://{namespace}/both"
    ours.replicate(namespace, apache)
    apache.replicate(namespace, ours)
    routes.declared_by(ours)
    ours.create(topic, 2)
    until(lambda: apache.partitions(topic) == 2, "the topic exists in both clusters")
    for index, batched in enumerate((False, True)):
        ours.publish(partition(topic, index), [b"ours %d" % number for number in range(70)], batching_enabled=batched)
        apache.publish(partition(topic, index), [b"apache %d" % number for number in range(70)])
    until(lambda: ours.is_copied(topic, apache), "our messages are copied")
    for index in range(2):
        until(lambda index=index: is_copied(apache, partition(topic, index), ours), "their messages are copied")
    return topic


def is_copied(source: Apache, topic: str, target: Cluster) -> bool:
    found = source.stats(topic)["replication"].get(target.name)
    return bool(found) and found["connected"] and found["replicationBacklog"] == 0


def test_gr6_verify_compares_both_directions_and_repairs_missing_messages(
    ours: Ours, apache: Apache, routes: Routes, both_ways: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to_apache = ("replication", "verify", ours.http_url, apache.http_url, "--topics", both_ways)
    found = run(capsys, *to_apache, code=0)
    assert [one["originals"] == one["copies"] > 0 for one in found["topics"]] == [True, True]
    assert found["topics"][0]["originals"] == 70
    found = run(capsys, "replication", "verify", apache.http_url, ours.http_url, "--topics", both_ways, code=0)
    assert [(one["originals"], one["copies"]) for one in found["topics"]] == [(70, 70), (70, 70)]

    policy = f"replication/routes/{apache.name}/{both_ways.removeprefix('persistent://')}"
    ours.ask("POST", policy, {"paused": True})
    board = routes.declared_by(ours).board
    until(lambda: board.state_of((partition(both_ways, 0), apache.name)) == "paused", "paused")
    ours.publish(partition(both_ways, 0), [b"left out 1", b"left out 2"])
    assert [one["not_yet"] for one in run(capsys, *to_apache, code=0)["topics"]] == [2, 0]
    ours.ask("POST", f"{path_of(partition(both_ways, 0))}/subscription/pulsar.repl.{apache.name}/skip_all")
    found = run(capsys, *to_apache, code=1)
    assert [one["missing"]["entries"] for one in found["topics"]] == [2, 0]
    found = run(capsys, *to_apache, "--repair", code=0)
    assert [one["published"] for one in found["topics"]] == [2, 0]
    ours.ask("DELETE", policy)
    until(lambda: ours.is_copied(both_ways, apache), "resumed")
    assert run(capsys, *to_apache, code=0)["differing"] == 0
    assert apache.values(partition(both_ways, 0))[-2:] == [b"left out 1", b"left out 2"]


def test_diff_reports_exactly_the_differences(
    ours: Ours, apache: Apache, both_ways: str, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for first, second in ((ours, apache), (apache, ours)):
        words = ("replication", "diff", first.http_url, second.http_url, "-n", namespace)
        assert run(capsys, *words, code=0)["topics"] == 1
    apache.ask("POST", f"namespaces/{namespace}/messageTTL", 77)
    apache.ask("PUT", f"persistent/{namespace}/both/subscription/theirs", None)
    ours.ask("POST", f"namespaces/{namespace}/replication", [ours.name])
    ours.create(f"persistent://{namespace}/only-here")
    found = run(capsys, "replication", "diff", ours.http_url, apache.http_url, "-n", namespace, code=1)
    told = json.dumps(found["differences"])
    for word in ("only-here", "77", "theirs"):
        assert word in told


def test_the_doctor_finds_a_problem_in_apache_pulsar_and_its_command_repairs_it(
    ours: Ours, apache: Apache, routes: Routes, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = new_namespace(ours, apache, deduplicates=False)
    topic = f"persistent://{namespace}/sick"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic)
    ours.publish(topic, [b"1"])
    until(lambda: ours.states(topic, apache) == ["refused-by-remote"], "refused")
    doctor = ("doctor", "replication", topic, "--url", ours.http_url)
    (cause,) = run(capsys, *doctor, code=1)["topics"][0]["causes"]
    assert cause["kind"] == "deduplication-off"
    assert main(shlex.split(cause["repair"])[1:]) == 0
    apache.has(topic, [b"1"])
    until(lambda: ours.is_copied(topic, apache), "running")
    assert run(capsys, *doctor, code=0)["topics"] == []

    apache.ask("POST", f"{path_of(topic)}/terminate")
    ours.publish(topic, [b"2"])
    until(lambda: ours.states(topic, apache) == ["refused-by-remote"], "terminated")
    (cause, *_) = run(capsys, *doctor, code=1)["topics"][0]["causes"]
    assert "terminated" in json.dumps(cause)
    ours.ask("POST", f"namespaces/{namespace}/replication", [ours.name])


def test_gr5_stats_and_metrics_have_apache_pulsars_names(ours: Ours, apache: Apache, both_ways: str) -> None:
    topic = partition(both_ways, 0)
    theirs, own = apache.stats(topic)["replication"][ours.name], ours.stats(topic)["replication"][apache.name]
    assert set(theirs) <= set(own)
    for field, value in theirs.items():
        assert isinstance(own[field], type(value)), field
    assert set(own) - set(theirs) <= {
        "inboundConnection",
        "inboundConnectedSince",
        "state",
        "reason",
        "stateSince",
        "lastError",
    }
    assert (own["state"], own["reason"], own["connected"], own["replicationBacklog"]) == ("running", "", True, 0)
    assert own["msgInCount"] == 70
    assert replication_metrics(apache, topic, ours) <= replication_metrics(ours, topic, apache)
    assert len(replication_metrics(apache, topic, ours)) == 9


def replication_metrics(cluster: Cluster, topic: str, remote: Cluster) -> set[str]:
    """Names of the metrics with the expected labels."""
    labels = (f'cluster="{cluster.name}"', f'topic="{topic}"', f'remote_cluster="{remote.name}"', 'namespace="public/')
    lines = [line for line in cluster.metrics().splitlines() if line.startswith("pulsar_replication_")]
    return {re.split("[{ ]", line)[0] for line in lines if all(label in line for label in labels)}
