"""GR4, GR5: replication status in topic stats and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.replication.model import FOREIGN_PRODUCER_PREFIX, PRODUCER_PREFIX, State
from magnetar.wire.schema_pb2 import MessageMetadata
from tests.admin.driver import NOW_MS, Admin
from tests.admin.stats.test_metrics import check_format, scrape

TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
MINUTE_MS = 60_000

APACHE_FIELDS = {
    "msgRateIn",
    "msgInCount",
    "msgThroughputIn",
    "bytesInCount",
    "msgRateOut",
    "msgOutCount",
    "msgThroughputOut",
    "bytesOutCount",
    "msgRateExpired",
    "msgExpiredCount",
    "replicationBacklog",
    "connected",
    "replicationDelayInSeconds",
}
FAMILIES = (
    "rate_in",
    "rate_out",
    "throughput_in",
    "throughput_out",
    "backlog",
    "connected_count",
    "disconnected_count",
    "rate_expired",
    "delay_in_seconds",
)


def replicating(remotes: tuple[str, ...] = ("b",), **settings: Any) -> Admin:
    """A broker of cluster a whose namespace is replicated to others."""
    admin = Admin(clusterName="a", **settings)
    for remote in (*remotes, "sender"):
        urls = {"serviceUrl": f"http://{remote}:8080", "brokerServiceUrl": f"pulsar://{remote}:6650"}
        changed(admin, "PUT", f"/admin/v2/clusters/{remote}", urls)
    body = {"adminRoles": [], "allowedClusters": ["a", *remotes]}
    changed(admin, "POST", "/admin/v2/tenants/public", body)
    changed(admin, "POST", "/admin/v2/namespaces/public/default/replication", ["a", *remotes])
    return admin


def changed(admin: Admin, method: str, path: str, body: object) -> None:
    """Expects 204 or, as Apache Pulsar for some changes, an empty 200."""
    answer = admin(method, path, json=body)
    assert answer.is_success, answer.text


def report(admin: Admin, topic: str, state: State, reason: str = "", remote: str = "b", **more: Any) -> None:
    row = {"topic": topic, "remote": remote, "state": state, "reason": reason, "sinceMs": NOW_MS - 5000, **more}
    admin.done("PUT", "/admin/v2/replication/reports", json={"pipeline": "p", "isAll": False, "rows": [row]})


def replication(admin: Admin, path: str = f"{PATH}/stats") -> dict[str, Any]:
    found: dict[str, Any] = admin.get(path)["replication"]
    return found


def pass_minute(admin: Admin) -> None:
    admin.broker.clock.advance_ms(MINUTE_MS)  # type: ignore[attr-defined]
    admin.broker.tick()
    admin.commit()


def test_a_topic_without_replication_has_no_status(admin: Admin) -> None:
    admin.publish("t", b"x")
    assert replication(admin) == {}
    assert not [line for line in scrape(admin) if "replication" in line]


def test_gr4_before_the_first_report_replication_is_starting() -> None:
    admin = replicating()
    admin.publish("t", b"x", b"y")
    stats = replication(admin)["b"]
    assert set(stats) >= APACHE_FIELDS
    assert (stats["state"], stats["connected"], stats["replicationBacklog"]) == ("starting", False, 2)
    assert "no pipelines process" in stats["reason"]
    assert "outboundConnection" not in stats


def test_gr4_state_reason_and_last_error_are_in_the_stats() -> None:
    admin = replicating(("b", "c"))
    admin.publish("t", b"x")
    report(admin, TOPIC, State.MISMATCH, "partition 1 cannot be copied", error="it was late", errorMs=NOW_MS)
    report(admin, TOPIC, State.RUNNING, remote="c")
    stats = replication(admin)
    assert stats["b"]["state"] == "partition-mismatch"
    assert stats["b"]["reason"] == "partition 1 cannot be copied"
    assert stats["b"]["lastError"] == "it was late"
    assert stats["b"]["stateSince"] == "2023-11-14T22:13:15.000Z"
    assert (stats["b"]["connected"], stats["c"]["connected"]) == (False, True)
    assert stats["c"]["outboundConnection"] == "pulsar://c:6650"
    assert stats["c"]["outboundConnectedSince"] == stats["c"]["stateSince"]
    assert (stats["c"]["state"], stats["c"]["reason"]) == ("running", "")


def test_gr4_the_replication_subscription_is_not_listed() -> None:
    admin = replicating()
    admin.publish("t", b"x")
    admin.subscribe("t", "s")
    stats = admin.get(f"{PATH}/stats")
    assert list(stats["subscriptions"]) == ["s"]
    lines = scrape(admin)
    own = 'cluster="a",namespace="public/default",topic="persistent://public/default/t"'
    assert f"pulsar_subscriptions_count{{{own}}} 1" in lines
    assert f"pulsar_msg_backlog{{{own}}} 1" in lines
    assert not [line for line in lines if "pulsar.repl." in line]


@pytest.mark.parametrize(
    "name",
    [
        f"{PRODUCER_PREFIX}sender/persistent://public/default/t/17",
        f"{FOREIGN_PRODUCER_PREFIX}sender-->a",
        f"{FOREIGN_PRODUCER_PREFIX}sender",
    ],
)
def test_gr5_incoming_messages_are_counted_by_source_cluster(name: str) -> None:
    admin = replicating()
    admin.publish("t", *[b"own"] * 30)
    producer = admin.publish("t", b"copied", batch=2, name=name)
    head = MessageMetadata(producer_name=name, sequence_id=0, publish_time=NOW_MS).SerializeToString()
    blob = len(head).to_bytes(4, "big") + head + b"copied"
    for entry in range(1, 60):
        admin.broker.topics[TOPIC].publish(producer, [(entry << 16, (entry << 16) + 1, 2, blob, False, False)])
    admin.commit()
    copied_bytes = producer.bytes_in
    admin.broker.topics[TOPIC].producers.remove(producer)  # gone before its rates are measured
    pass_minute(admin)
    stats = admin.get(f"{PATH}/stats")
    sender = stats["replication"]["sender"]
    assert (sender["msgRateIn"], sender["msgThroughputIn"]) == (2.0, copied_bytes / 60)
    assert (sender["msgInCount"], sender["bytesInCount"]) == (120, copied_bytes)
    assert "state" not in sender and not sender["connected"], "nothing goes there"
    assert stats["replication"]["b"]["msgRateIn"] == 0
    assert stats["msgRateIn"] == 2.5, "all of it, as in Apache Pulsar"
    lines = scrape(admin)
    own = f'cluster="a",namespace="public/default",topic="{TOPIC}"'
    assert f'pulsar_replication_rate_in{{{own},remote_cluster="sender"}} 2.0' in lines
    assert f'pulsar_replication_disconnected_count{{{own},remote_cluster="sender"}} 0' in lines
    assert f"pulsar_rate_in{{{own}}} 0.5" in lines


def test_gr5_replicators_are_not_listed_as_publishers() -> None:
    admin = replicating()
    admin.publish("t", b"own")
    admin.publish("t", b"copied", name=f"{PRODUCER_PREFIX}sender/{TOPIC}/17")
    admin.publish("t", b"parked", name=f"{PRODUCER_PREFIX}parked/b/{TOPIC}/17")
    stats = admin.get(f"{PATH}/stats")
    assert [one["producerName"] for one in stats["publishers"]] == ["p"]
    assert set(stats["replication"]) == {"b", "sender"}
    assert stats["replication"]["sender"]["inboundConnection"] == "/127.0.0.1:50000"
    assert stats["replication"]["sender"]["inboundConnectedSince"] == "2023-11-14T22:13:20.000Z"
    assert f'pulsar_producers_count{{cluster="a",namespace="public/default",topic="{TOPIC}"}} 1' in scrape(admin)


def test_gr5_outgoing_messages_are_those_reported_by_the_pipeline() -> None:
    admin = replicating()
    admin.publish("t", b"x")
    report(admin, TOPIC, State.RUNNING)
    pass_minute(admin)
    report(admin, TOPIC, State.RUNNING, messagesOut=120, bytesOut=6000)
    pass_minute(admin)
    report(admin, TOPIC, State.RUNNING, messagesOut=120, bytesOut=6000)
    stats = admin.get(f"{PATH}/stats")
    assert (stats["replication"]["b"]["msgRateOut"], stats["replication"]["b"]["msgThroughputOut"]) == (2.0, 100.0)
    assert (stats["replication"]["b"]["msgOutCount"], stats["replication"]["b"]["bytesOutCount"]) == (120, 6000)
    assert (stats["msgRateOut"], stats["msgThroughputOut"]) == (2.0, 100.0)
    assert stats["replication"]["b"]["replicationDelayInSeconds"] == 120


def test_gr5_messages_that_expire_before_they_are_copied_are_counted() -> None:
    admin = replicating()
    admin.done("POST", "/admin/v2/namespaces/public/default/messageTTL", json=3600)
    admin.publish("t", *[b"x"] * 6)
    for _ in range(62):
        pass_minute(admin)
        if (rate := replication(admin)["b"]["msgRateExpired"]) > 0:
            break
    assert rate == 0.1
    assert replication(admin)["b"]["replicationBacklog"] == 0


def test_gr5_partitions_are_summed() -> None:
    admin = replicating(("b", "c"))
    admin.done("PUT", f"{PATH}/partitions", json=3)
    for index in range(3):
        admin.publish(f"t-partition-{index}", *[b"x"] * (index + 1))
    for index, state in enumerate((State.RUNNING, State.REFUSED, State.WAITING)):
        report(admin, f"{TOPIC}-partition-{index}", state, f"reason {index}")
        report(admin, f"{TOPIC}-partition-{index}", State.RUNNING, remote="c")
    stats = admin.get(f"{PATH}/partitioned-stats")
    total = stats["replication"]
    assert (total["b"]["replicationBacklog"], total["c"]["replicationBacklog"]) == (6, 6)
    assert (total["b"]["connected"], total["c"]["connected"]) == (False, True)
    assert (total["b"]["state"], total["b"]["reason"]) == ("refused-by-remote", "reason 1"), "the worst of them"
    each = [one["replication"]["b"] for one in stats["partitions"].values()]
    assert [one["replicationBacklog"] for one in each] == [1, 2, 3]
    assert [one["connected"] for one in each] == [True, False, False]


def test_gr5_metrics_of_each_topic_and_remote_cluster() -> None:
    admin = replicating(("b", "c"))
    admin.publish("t", b"x", b"y")
    admin.publish("u", b"x")
    report(admin, TOPIC, State.CATCHING_UP)
    lines = scrape(admin)
    check_format(lines)
    own = f'cluster="a",namespace="public/default",topic="{TOPIC}",remote_cluster="b"'
    for family in FAMILIES:
        assert len([line for line in lines if line.startswith(f"pulsar_replication_{family}{{")]) == 4, family
        assert f"# TYPE pulsar_replication_{family} gauge" in lines
    assert f"pulsar_replication_backlog{{{own}}} 2" in lines
    assert f"pulsar_replication_connected_count{{{own}}} 1" in lines
    assert f"pulsar_replication_disconnected_count{{{own}}} 0" in lines
    assert f'magnetar_replication_state{{{own},state="catching-up"}} 1' in lines
    other = own.replace('"b"', '"c"')
    assert f"pulsar_replication_disconnected_count{{{other}}} 1" in lines
    assert f'magnetar_replication_state{{{other},state="starting"}} 1' in lines


def test_gr5_namespace_metrics_where_topics_are_not_exposed() -> None:
    admin = replicating(exposeTopicLevelMetricsInPrometheus=False)
    admin.publish("t", b"x", b"y")
    admin.publish("u", b"x")
    report(admin, TOPIC, State.RUNNING)
    lines = scrape(admin)
    check_format(lines)
    own = 'cluster="a",namespace="public/default",remote_cluster="b"'
    assert f"pulsar_replication_backlog{{{own}}} 3" in lines
    assert f"pulsar_replication_connected_count{{{own}}} 1" in lines
    assert f"pulsar_replication_disconnected_count{{{own}}} 1" in lines
    assert f'magnetar_replication_state{{{own},state="running"}} 1' in lines
    assert f'magnetar_replication_state{{{own},state="starting"}} 1' in lines


# -- allowed clusters


@pytest.mark.parametrize("path", ["/admin/v2/namespaces/public/default", PATH])
def test_gr1_an_unknown_cluster_is_rejected(admin: Admin, path: str) -> None:
    admin.publish("t", b"x")
    reason = admin.reason(403, "POST", f"{path}/replication", json=["standalone", "nowhere"])
    assert reason == "Invalid cluster id: nowhere"


@pytest.mark.parametrize("path", ["/admin/v2/namespaces/public/default", PATH])
def test_gr1_a_cluster_not_allowed_for_the_tenant_is_rejected(admin: Admin, path: str) -> None:
    admin.publish("t", b"x")
    changed(admin, "PUT", "/admin/v2/clusters/b", {"serviceUrl": "http://b:8080"})
    reason = admin.reason(403, "POST", f"{path}/replication", json=["standalone", "b"])
    assert reason == "Cluster [b] is not in the list of allowed clusters list for tenant [public]"
    assert replication(admin) == {}
