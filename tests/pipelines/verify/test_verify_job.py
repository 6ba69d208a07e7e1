"""`magnetar replication verify` and `doctor` with real pipelines: two clusters, both directions, one Spark session."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from magnetar.cli.main import main
from tests.pipelines.conftest import NAMESPACE, Cluster, until


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> dict[str, Any]:
    capsys.readouterr()
    found = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert found == code, f"{out}\n{err}"
    value: dict[str, Any] = json.loads(out)
    return value


def test_gr6_verify_finds_missing_messages_and_repairs_them(
    two: tuple[Cluster, Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = two
    for cluster in two:
        cluster.ask(
            "POST", f"namespaces/{NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )
    a.create("orders", 2)
    for index in range(2):
        a.publish(f"orders-partition-{index}", *(b"a %d" % number for number in range(20)))
        b.wait_for("orders")
        b.publish(f"orders-partition-{index}", *(b"b %d" % number for number in range(5)))
    urls = a.broker.http_url, b.broker.http_url
    both = f"{b.broker.service_url},{b.broker.http_url}", a.broker.http_url
    until(lambda: not any(row["backlog"] for row in a.status("orders", b)), "all of a is copied")
    until(lambda: not any(row["backlog"] for row in b.status("orders", a)), "all of b is copied")
    found = run(capsys, "replication", "verify", *urls, code=0)
    assert [(one["originals"], one["copies"]) for one in found["topics"]] == [(20, 20), (20, 20)]
    found = run(capsys, "replication", "verify", *both, "--topics", NAMESPACE, code=0)
    assert [(one["originals"], one["copies"]) for one in found["topics"]] == [(5, 5), (5, 5)]

    for cluster in two:
        assert cluster.pipeline is not None
        cluster.pipeline.stop()
    a.set_route(b, NAMESPACE, paused=True)
    a.publish("orders-partition-1", b"left out 1", b"left out 2")
    found = run(capsys, "replication", "verify", *urls, code=0)
    assert [one["not_yet"] for one in found["topics"]] == [0, 2]
    assert run(capsys, "doctor", "replication", "--url", urls[0], code=1)["topics"][0]["causes"][0]["kind"] == "paused"
    skipped = f"persistent/{NAMESPACE}/orders-partition-1/subscription/pulsar.repl.b/skip_all"
    a.ask("POST", skipped)
    found = run(capsys, "replication", "verify", *urls, "--topics", f"{NAMESPACE}/orders", code=1)
    assert [one["missing"]["entries"] for one in found["topics"]] == [0, 2]
    assert found["differing"] == 1
    found = run(capsys, "replication", "verify", *urls, "--repair", code=0)
    assert [one["published"] for one in found["topics"]] == [0, 2]
    found = run(capsys, "replication", "verify", *urls, code=0)
    assert [(one["originals"], one["copies"]) for one in found["topics"]] == [(20, 20), (22, 22)]
    assert b.values("orders-partition-1", 27)[-2:] == [b"left out 1", b"left out 2"]

    capsys.readouterr()
    assert main(["replication", "verify", *urls]) == 0
    out, err = capsys.readouterr()
    assert (err, out) == ("", "2 topics and partitions: 42 entries of A compared with 42 of B, no difference\n")
    assert main(["replication", "verify", urls[0], urls[0]]) == 2
    assert "A and B have the same name, a" in capsys.readouterr().err


def test_the_doctor_names_the_cause_that_stopped_the_pipeline(
    two: tuple[Cluster, Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    """The remote topic is terminated, the pipeline stops; the doctor's command restarts it."""
    a, b = two
    a.create("orders")
    b.wait_for("orders")
    a.publish("orders", b"1")
    assert b.values("orders", 1) == [b"1"]
    until(lambda: a.states("orders", b) == ["running"], "the copy is reported")
    assert run(capsys, "doctor", "replication", "--url", a.broker.http_url, code=0)["topics"] == []
    b.ask("POST", f"persistent/{NAMESPACE}/orders/terminate")
    a.publish("orders", b"2")
    until(lambda: a.states("orders", b) == ["refused-by-remote"], "the remote topic takes nothing")
    topic = f"{NAMESPACE}/orders"
    (found,) = run(capsys, "doctor", "replication", topic, "--url", a.broker.http_url, code=1)["topics"]
    assert found["causes"][0]["kind"] == "remote-topic-terminated"
    assert main(shlex.split(found["causes"][0]["repair"])[1:]) == 0
    until(lambda: a.states("orders", b) == ["running"], "the topic is copied again")
    assert b.values("orders", 1) == [b"2"]
