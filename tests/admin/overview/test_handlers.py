"""The overview and the page of topics, over HTTP: numbers, what needs attention, and who sees what."""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import Any

import msgspec
import pytest

from magnetar.admin.overview import snapshot as snapshot_module
from magnetar.admin.overview.model import AttentionKind
from magnetar.broker.catalog.record import ClusterRecord
from magnetar.deadletter.properties import DEATH_REASON
from magnetar.declared.model import RunReport, RunReports, RunState
from magnetar.health import Facts
from magnetar.names import TopicName
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import MessageMetadata
from tests.admin.driver import NOW_MS, Admin
from tests.admin.roles import ADMIN, ROOT, STRANGER, ask, guarded

ORDERS = "persistent://public/default/orders"
LETTERS = "persistent://public/default/orders-billing-DLQ"
MINUTE_MS = 60_000


def overview(admin: Admin) -> dict[str, Any]:
    found: dict[str, Any] = admin.get("/admin/v2/brokers/overview")
    return found


def topics(admin: Admin, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = admin.get(f"/admin/v2/brokers/topics?{query}")
    return found


def later(admin: Admin, ms: int = 3000) -> dict[str, Any]:
    """The overview of another snapshot."""
    admin.broker.clock.advance_ms(ms)  # type: ignore[attr-defined]
    return overview(admin)


def of_kind(found: dict[str, Any], kind: AttentionKind) -> list[dict[str, Any]]:
    return [one for one in found["attention"] if one["kind"] == kind.value]


def dead_letter(admin: Admin, reason: str, topic: str = LETTERS, *, batch: bool = False) -> None:
    admin.publish(topic, name="filler")
    opened = admin.broker.topics[topic]
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=admin.broker.now_ms())
    metadata.properties.add(key=DEATH_REASON, value=reason)
    producer = opened.producers.by_name["filler"]
    opened.publish(producer, [(0, 0, 1, build_blob(metadata, b"x"), False, False)])
    admin.commit()


# -- numbers


def test_an_empty_broker() -> None:
    found = overview(Admin())
    assert (found["cluster"], found["time"], found["uptimeS"]) == ("standalone", NOW_MS, 0.0)
    assert found["health"] == {"state": "ok", "checks": []}
    assert found["totals"]["topics"] == 0 and found["attention"] == []
    assert [one["name"] for one in found["namespaces"]] == ["public/default"]
    assert len(found["deadLetters"]["hours"]) == 24


def test_totals_are_those_of_the_topics() -> None:
    admin = Admin()
    admin.subscribe(ORDERS, "billing", permits=2)
    admin.publish(ORDERS, b"1", b"2", b"3")
    admin.done("PUT", "/admin/v2/persistent/public/default/many/partitions", json=3)
    for index in range(3):
        admin.unsubscribe_idle(admin.subscribe(f"persistent://public/default/many-partition-{index}", "s"))
        admin.publish(f"persistent://public/default/many-partition-{index}", b"x" * 10)
    totals = overview(admin)["totals"]
    assert {name: totals[name] for name in ("topics", "partitionedTopics", "subscriptions", "backlog")} == {
        "topics": 2, "partitionedTopics": 1, "subscriptions": 2, "backlog": 6,
    }  # fmt: skip
    assert (totals["unacked"], totals["consumers"], totals["producers"]) == (2, 1, 4)
    page = topics(admin)
    assert [(one["topic"].rpartition("/")[2], one["partitions"], one["backlog"]) for one in page["topics"]] == [
        ("many", 3, 3),
        ("orders", 0, 3),
    ]
    stats = admin.get("/admin/v2/persistent/public/default/orders/stats")
    assert page["topics"][1]["storedBytes"] == stats["storageSize"]
    assert totals["storedBytes"] == sum(one["storedBytes"] for one in page["topics"])


def test_rates_are_those_since_the_snapshot_before() -> None:
    admin = Admin()
    admin.publish(ORDERS, b"1")
    overview(admin)
    admin.publish(ORDERS, *[b"x"] * 20)
    totals = later(admin, 4000)["totals"]
    assert totals["rateIn"] == 5.0
    assert later(admin)["totals"]["rateIn"] == 0.0


def test_rates_are_those_of_the_last_minute_where_no_snapshot_was_taken() -> None:
    admin = Admin()
    admin.publish(ORDERS, *[b"x"] * 120)
    admin.broker.clock.advance_ms(MINUTE_MS)  # type: ignore[attr-defined]
    admin.broker.tick()
    assert overview(admin)["totals"]["rateIn"] == 2.0


def test_a_topic_that_is_not_loaded_stays_so() -> None:
    admin = Admin()
    admin.publish(ORDERS, b"1")
    reborn = admin.after_crash()
    assert overview(reborn)["totals"]["unloaded"] == 1
    assert topics(reborn)["topics"][0]["state"] == "unloaded"
    assert reborn.broker.topics == {}


def test_a_snapshot_lasts_for_two_seconds() -> None:
    admin = Admin()
    before = overview(admin)
    admin.publish(ORDERS, b"1")
    assert overview(admin) == before
    assert later(admin)["totals"]["topics"] == 1


# -- topics


def test_topics_are_searched_sorted_and_cut() -> None:
    admin = Admin()
    for index in range(1, 6):
        admin.publish(f"persistent://public/default/t{index}", *[b"x"] * index)
    admin.publish("persistent://public/default/Other", b"")
    by_size = topics(admin, "sort=storedBytes&limit=2&search=T")
    assert by_size["total"] == 6, "in any case of letters: Other too"
    assert [one["topic"][-2:] for one in by_size["topics"]] == ["t5", "t4"]
    second = topics(admin, "sort=storedBytes&limit=2&offset=2&search=T")["topics"]
    assert [one["topic"][-2:] for one in second] == ["t3", "t2"]
    assert [one["topic"][-2:] for one in topics(admin, "sort=storedBytes&order=asc")["topics"]][:2] == ["er", "t1"]
    names = [one["topic"] for one in topics(admin, "order=desc")["topics"]]
    assert names == sorted(names, reverse=True)
    assert topics(admin, "namespace=public/none") == {"total": 0, "topics": []}


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "offset=-1", "sort=size", "order=up", "limit=x"])
def test_a_wrong_parameter_is_refused(query: str) -> None:
    assert "parameter" in Admin().reason(400, "GET", f"/admin/v2/brokers/topics?{query}")


# -- subscriptions that do not move


def test_a_backlog_without_a_consumer() -> None:
    admin = Admin()
    admin.unsubscribe_idle(admin.subscribe(ORDERS, "billing"))
    admin.publish(ORDERS, b"1", b"2")
    (one,) = overview(admin)["attention"]
    assert one == {
        "severity": "warning",
        "kind": "no-consumer",
        "subject": f"billing of {ORDERS}",
        "text": "has no consumer; 2 messages in its backlog",
        "command": f"magnetar subscriptions list {ORDERS}",
        "topic": ORDERS,
        "subscription": "billing",
    }
    assert topics(admin)["topics"][0]["state"] == "stuck"


def test_partitions_with_the_same_trouble_are_one_line() -> None:
    admin = Admin()
    admin.done("PUT", "/admin/v2/persistent/public/default/many/partitions", json=3)
    for index in range(3):
        full = f"persistent://public/default/many-partition-{index}"
        admin.unsubscribe_idle(admin.subscribe(full, "s"))
        admin.publish(full, b"x")
    (one,) = overview(admin)["attention"]
    assert one["text"] == "has no consumer; 3 messages in its backlog of 3 partitions"
    assert one["topic"] == "persistent://public/default/many"


def test_a_paused_subscription_comes_first_with_its_command() -> None:
    admin = Admin()
    admin.subscribe(ORDERS, "billing")
    admin.publish(ORDERS, b"1")
    admin("POST", "/admin/v2/persistent/public/default/orders/subscription/billing/pause", json={"reason": "too many"})
    (one,) = overview(admin)["attention"]
    assert (one["severity"], one["kind"]) == ("error", "paused-subscription")
    assert one["text"].startswith("is paused: too many") and one["command"].startswith("magnetar subscriptions resume")


def test_a_consumer_that_asks_for_nothing_is_found_after_a_minute() -> None:
    admin = Admin()
    admin.subscribe(ORDERS, "billing")
    admin.publish(ORDERS, b"1")
    assert overview(admin)["attention"] == []
    assert later(admin, MINUTE_MS - 1000)["attention"] == []
    (one,) = later(admin)["attention"]
    assert one["kind"] == "idle-consumers" and "ask for no messages" in one["text"]


def test_messages_that_consumers_keep_are_found_after_five_minutes() -> None:
    admin = Admin()
    admin.subscribe(ORDERS, "billing", permits=5)
    admin.publish(ORDERS, b"1")
    admin.broker.pump()
    assert overview(admin)["attention"] == []
    assert later(admin, 4 * MINUTE_MS)["attention"] == []
    (one,) = later(admin, MINUTE_MS)["attention"]
    assert one["text"].startswith("does not move for 5 min: its consumers hold 1 message and acknowledge none")


def test_a_subscription_that_moves_is_fine() -> None:
    admin = Admin()
    consumer = admin.subscribe(ORDERS, "billing", permits=1)
    admin.publish(ORDERS, *[b"x"] * 9)
    admin.broker.pump()
    for entry_id in range(5):
        assert later(admin, 2 * MINUTE_MS)["attention"] == []
        assert consumer.subscription is not None
        consumer.subscription.ack(entry_id)
        consumer.subscription.flow(consumer, 1)
        admin.broker.pump()


def test_a_blocked_subscription() -> None:
    admin = Admin(maxUnackedMessagesPerSubscription=2)
    admin.subscribe(ORDERS, "billing", permits=10)
    admin.publish(ORDERS, *[b"x"] * 5)
    while admin.broker.has_work:
        admin.broker.pump()
    (one,) = overview(admin)["attention"]
    assert one["kind"] == "blocked-subscription" and one["severity"] == "error"


# -- dead letters


def test_dead_letters_by_reason_and_hour() -> None:
    admin = Admin()
    for reason in ("TypeError", "TypeError", "MaxRedeliverCount"):
        dead_letter(admin, reason)
    found = overview(admin)
    assert found["deadLetters"]["byReason"] == [
        {"reason": "TypeError", "waiting": 2},
        {"reason": "MaxRedeliverCount", "waiting": 1},
    ]
    assert found["deadLetters"]["hours"][-1]["reasons"] == {"TypeError": 2, "MaxRedeliverCount": 1}
    assert found["deadLetters"]["uncounted"] == 0 and found["totals"]["deadLettersWaiting"] == 3
    (one,) = of_kind(found, AttentionKind.DEAD_LETTERS)
    assert one["text"] == "3 dead letters wait, 3 new within the last hour" and one["severity"] == "error"
    assert one["command"] == f"magnetar deadletters stats {LETTERS}"


def test_old_dead_letters_are_a_warning_and_handled_ones_are_gone() -> None:
    admin = Admin()
    for reason in ("A", "B", "A"):
        dead_letter(admin, reason)
    overview(admin)
    found = later(admin, 2 * 60 * MINUTE_MS)
    (one,) = of_kind(found, AttentionKind.DEAD_LETTERS)
    assert (one["severity"], one["text"]) == ("warning", "3 dead letters wait")
    assert sum(sum(one["reasons"].values()) for one in found["deadLetters"]["hours"]) == 3
    consumer = admin.subscribe(LETTERS, "repair", permits=10)
    assert consumer.subscription is not None
    consumer.subscription.ack(0)
    assert later(admin)["deadLetters"]["byReason"] == [{"reason": "A", "waiting": 1}, {"reason": "B", "waiting": 1}]
    for entry_id in (1, 2):
        consumer.subscription.ack(entry_id)
    found = later(admin, 25 * 60 * MINUTE_MS)
    assert found["deadLetters"]["byReason"] == [] and found["totals"]["deadLettersWaiting"] == 0
    assert not any(one["reasons"] for one in found["deadLetters"]["hours"])


def test_reasons_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "LETTERS_READ_MAX", 30)
    admin = Admin()
    for _ in range(70):
        dead_letter(admin, "A")
    counted = [sum(one["waiting"] for one in found["deadLetters"]["byReason"]) for found in (overview(admin), later(admin), later(admin))]  # fmt: skip  # noqa: E501
    assert counted == [30, 60, 70]


def test_waiting_dead_letters_are_on_the_row_of_their_topic() -> None:
    admin = Admin()
    admin.unsubscribe_idle(admin.subscribe(ORDERS, "billing"))
    dead_letter(admin, "A")
    rows = topics(admin, "sort=deadLetters")["topics"]
    assert [(one["topic"], one["deadLetters"]) for one in rows] == [(ORDERS, 1), (LETTERS, 1)]


# -- the rest of the broker


def test_checks_that_are_not_ok_need_attention() -> None:
    admin = Admin()
    admin.vitals.now = Facts("serving", disk_held="no space", faults=2)
    found = overview(admin)
    assert found["health"]["state"] == "failed"
    assert [(one["severity"], one["kind"], one["command"]) for one in found["attention"]] == [
        ("error", "disk", "magnetar brokers disk"),
        ("warning", "health", "magnetar brokers status"),
    ]


def test_damage_is_named() -> None:
    admin = Admin()
    admin.publish(ORDERS, b"1")
    admin.broker.damage.note("topic", ORDERS, "a block cannot be read")
    found = overview(admin)
    (one,) = of_kind(found, AttentionKind.DAMAGE)
    assert one["command"] == "magnetar doctor topics public/default" and "a block cannot be read" in one["text"]
    assert topics(admin)["topics"][0]["state"] == "damaged"


def test_a_failed_pipeline() -> None:
    admin = Admin()
    spec = {"sources": ["orders-billing-DLQ"]}
    admin("PUT", "/admin/v2/pipelines/public/default/fix", json={"verb": "redrive", "spec": spec})
    (record,) = admin.broker.pipelines.all()
    failed = RunReport(record.id, record.run, RunState.FAILED, "no such topic")
    admin.broker.pipelines.receive(RunReports("p", True, [failed]))
    found = overview(admin)
    assert found["pipelines"] == {"states": {"failed": 1}}
    (one,) = of_kind(found, AttentionKind.PIPELINE)
    assert one["text"] == "redrive failed: no such topic"
    assert one["command"] == "magnetar pipelines show public/default fix"


def test_routes_that_are_stuck() -> None:
    admin = Admin()
    admin.broker.catalog.save_cluster("west", ClusterRecord("http://west:8080"))
    admin.done("POST", "/admin/v2/tenants/public", json={"allowedClusters": ["standalone", "west"]})
    admin.publish(ORDERS, b"1")
    assert admin("POST", "/admin/v2/namespaces/public/default/replication", json=["standalone", "west"]).is_success
    admin.broker.replication.no_process("Spark is not installed")
    admin.publish(ORDERS, b"2")
    found = later(admin, 10 * MINUTE_MS)
    assert found["replication"]["states"] == {"stopped": 1}
    assert found["replication"]["worst"][0]["backlog"] == 1
    (one,) = of_kind(found, AttentionKind.REPLICATION)
    assert one["command"] == f"magnetar doctor replication {ORDERS}" and "Spark is not installed" in one["text"]


# -- commands


def everything_wrong() -> Admin:
    """A broker with something of most kinds, under names that a shell would take apart."""
    admin = Admin()
    for topic in (ORDERS, "persistent://public/default/a b;c"):
        for subscription in ("billing", "--force", "it's $HOME"):
            admin.unsubscribe_idle(admin.subscribe(topic, subscription))
        admin.publish(topic, b"1")
        name = TopicName.parse(topic)
        paused = admin.broker.topics[topic].subscriptions["--force"]
        paused.pause("too many")  # type: ignore[attr-defined]
        admin.broker.damage.note("topic", name.full, "unreadable")
    admin.broker.damage.note("cluster", "west", "unreadable")
    dead_letter(admin, "A")
    admin.vitals.now = Facts("serving", disk_low="little space", faults=1, loop_lag_s=2.0, damaged=("x",))
    spec = {"sources": ["orders-billing-DLQ"]}
    admin("PUT", "/admin/v2/pipelines/public/default/fix", json={"verb": "redrive", "spec": spec})
    (record,) = admin.broker.pipelines.all()
    admin.broker.pipelines.receive(RunReports("p", True, [RunReport(record.id, record.run, RunState.FAILED)]))
    return admin


def test_every_command_is_one_of_ours() -> None:
    from magnetar.cli.app import command_for

    attention = overview(everything_wrong())["attention"]
    assert len({one["kind"] for one in attention}) >= 6
    root: Any = command_for([])
    for one in attention:
        program, *words = shlex.split(one["command"])
        assert program == "magnetar"
        context = root.make_context("magnetar", list(words), resilient_parsing=False)
        group_name, group, rest = root.resolve_command(context, [*context._protected_args, *context.args])
        inner = group.make_context(group_name, list(rest), parent=context)
        name, command, rest = group.resolve_command(inner, [*inner._protected_args, *inner.args])
        parsed = command.make_context(name, list(rest), parent=inner)
        if "subscription" in parsed.params and "subscription" in one:
            assert parsed.params["subscription"] == one["subscription"]


def test_one_kind_does_not_hide_the_others() -> None:
    admin = Admin()
    for index in range(150):
        topic = f"persistent://public/default/t{index:03}"
        admin.unsubscribe_idle(admin.subscribe(topic, "s"))
        admin.publish(topic, *[b"x"] * (index % 7 + 1))
    dead_letter(admin, "A")
    found = overview(admin)
    assert len(of_kind(found, AttentionKind.NO_CONSUMER)) == 20 and of_kind(found, AttentionKind.DEAD_LETTERS)
    assert found["attentionLeftOut"] == 130
    assert found["attention"][1]["text"].startswith("has no consumer; 7 messages"), "the largest"


# -- who sees what


def seen(admin: Admin, role: str, path: str = "overview") -> dict[str, Any]:
    response = ask(admin, role, "GET", f"/admin/v2/brokers/{path}")
    assert response.status == 200, response.body
    found: dict[str, Any] = json.loads(response.body)
    return found


def names_of(found: dict[str, Any]) -> set[str]:
    return {one["name"] for one in found["namespaces"]}


def test_a_role_sees_the_namespaces_that_it_may_list() -> None:
    admin = guarded()
    assert names_of(seen(admin, ROOT)) == {"acme/default", "acme/n", "public/default", "public/n"}
    assert names_of(seen(admin, ADMIN)) == {"acme/default", "acme/n"}
    nothing = seen(admin, STRANGER)
    assert names_of(nothing) == set() and nothing["totals"]["topics"] == 0 and nothing["attention"] == []
    assert seen(admin, STRANGER, "topics")["total"] == 0
    assert {one["topic"].split("/")[2] for one in seen(admin, ADMIN, "topics")["topics"]} == {"acme"}


def test_a_permission_counts_at_once() -> None:
    admin = guarded()
    assert names_of(seen(admin, STRANGER)) == set()
    catalog = admin.broker.catalog
    record = msgspec.structs.replace(catalog.namespaces["acme/n"], permissions={STRANGER: ["produce"]})
    catalog.save_namespace("acme/n", record)
    assert names_of(seen(admin, STRANGER)) == {"acme/n"}
    catalog.save_namespace("acme/n", msgspec.structs.replace(record, permissions={}))
    assert names_of(seen(admin, STRANGER)) == set()


def test_reasons_need_consume_and_pipelines_the_administrator() -> None:
    admin = guarded()
    dead_letter(admin, "secret of a message", "persistent://acme/n/t-s-DLQ")
    admin.broker.pipelines.declare("acme/n", "fix", "redrive", {"sources": ["t-s-DLQ"]})
    catalog = admin.broker.catalog
    permissions = {"producer": ["produce"], "consumer": ["consume"]}
    catalog.save_namespace("acme/n", msgspec.structs.replace(catalog.namespaces["acme/n"], permissions=permissions))
    found = {role: seen(admin, role) for role in ("producer", "consumer", ADMIN)}
    assert [found[role]["totals"]["deadLettersWaiting"] for role in found] == [1, 1, 1]
    assert [len(found[role]["deadLetters"]["byReason"]) for role in found] == [0, 1, 1]
    assert [bool(found[role]["pipelines"]["states"]) for role in found] == [False, False, True]
    assert "secret" not in json.dumps(found["producer"])


def test_damage_of_others_is_not_shown() -> None:
    admin = guarded()
    admin.broker.damage.note("topic", "persistent://public/n/t", "unreadable")
    admin.broker.damage.note("tenant", "public", "unreadable")
    assert len(of_kind(seen(admin, ROOT), AttentionKind.DAMAGE)) == 2
    assert of_kind(seen(admin, ADMIN), AttentionKind.DAMAGE) == []


# -- time


def test_the_loop_has_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of no length, other tasks run between any two topics."""
    from magnetar.admin.http import time_slice

    monkeypatch.setattr(time_slice, "SLICE_S", 0.0)
    admin = Admin()
    for index in range(50):
        admin.publish(f"persistent://public/default/t{index}", b"x")
    turns = 0

    async def run() -> None:
        nonlocal turns
        import httpx

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(admin.app), base_url="http://broker.test:8080"
        ) as client:
            asked = asyncio.ensure_future(client.get("/admin/v2/brokers/overview"))
            while not asked.done():
                turns += 1
                await asyncio.sleep(0)
            assert asked.result().status_code == 200

    asyncio.run(run())
    assert turns > 50
