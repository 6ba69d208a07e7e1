"""REST calls of geo-replication: declaration, reports, status and routes; and Pulsar's own paths."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

import magnetar.testing
from magnetar.bounds import LONG_POLLS
from magnetar.names import TopicName
from magnetar.replication.model import Declaration, DeclaredRoute, Report, Reports, RoutePolicy, State, Status
from tests.admin.driver import NOW_MS, Admin

REPLICATION = "/admin/v2/replication"
DECLARATION, STATUS, REPORTS = f"{REPLICATION}/declaration", f"{REPLICATION}/status", f"{REPLICATION}/reports"
ROUTES = f"{REPLICATION}/routes"
TOPICS = "/admin/v2/persistent/public/default"
EAST = {"serviceUrl": "http://east:8080", "brokerServiceUrl": "pulsar://east:6650"}
T = "persistent://public/default/t"


@pytest.fixture
def admin() -> Admin:
    admin = Admin()
    assert admin("PUT", "/admin/v2/clusters/east", json=EAST).status_code == 200
    admin.done("POST", "/admin/v2/tenants/public", json={"allowedClusters": ["standalone", "east"]})
    return admin


@pytest.fixture
def replicated(admin: Admin) -> Admin:
    assert admin("POST", "/admin/v2/namespaces/public/default/replication", json=["standalone", "east"]).is_success
    admin.done("PUT", f"{TOPICS}/t")
    admin.done("PUT", f"{TOPICS}/many/partitions", json=2)
    return admin


def declaration(admin: Admin) -> Declaration:
    return msgspec.json.decode(admin("GET", DECLARATION).content, type=Declaration)


def statuses(admin: Admin, query: str = "") -> dict[str, Status]:
    response = admin("GET", STATUS + query)
    assert response.status_code == 200, response.text
    found = msgspec.json.decode(response.content, type=list[Status])
    return {TopicName.parse(one.topic).local: one for one in found}


def report(admin: Admin, *rows: Report, is_all: bool = False) -> None:
    content = msgspec.json.encode(Reports("p1", is_all, list(rows)))
    assert admin("PUT", REPORTS, content=content).status_code == 204


# -- declaration


def test_gr1_the_declaration_is_what_was_set(replicated: Admin) -> None:
    found = declaration(replicated)
    assert (found.cluster, found.creates_topics, found.mismatch) == ("standalone", True, "pip370")
    assert found.topics == [
        DeclaredRoute("persistent://public/default/many", 2, "east"),
        DeclaredRoute(T, 0, "east"),
    ]
    assert (found.clusters["east"].service_url, found.clusters["east"].broker_service_url) == tuple(EAST.values())
    assert declaration(replicated.after_crash()).topics == found.topics


def test_gr2_the_declaration_includes_the_settings() -> None:
    admin = Admin(createTopicToRemoteClusterForReplication=False, partitionMismatch="stop")
    found = declaration(admin)
    assert (found.creates_topics, found.mismatch, found.topics, found.clusters) == (False, "stop", [], {})


@pytest.mark.parametrize("setting", ["createTopicToRemoteClusterForReplication", "partitionMismatch"])
def test_gr2_remote_topic_creation_is_a_static_setting(admin: Admin, setting: str) -> None:
    path = f"/admin/v2/brokers/configuration/{setting}/false"
    assert "only read at start" in admin.reason(412, "POST", path)


def test_a_waiting_request_returns_on_a_new_version(replicated: Admin) -> None:
    async def wait_and_change() -> tuple[float, Declaration, int]:
        transport = httpx.ASGITransport(replicated.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://broker.test") as client:
            version = (await client.get(DECLARATION)).json()["version"]
            query = {"after": version, "timeoutMs": 20_000}
            waiting = asyncio.create_task(client.get(DECLARATION, params=query))
            while not replicated.broker.replication._watchers:
                await asyncio.sleep(0.001)
            started = time.monotonic()
            for name in ("a", "b", "c"):
                assert (await client.put(f"{TOPICS}/{name}")).status_code == 204
            answer = await waiting
            return (
                time.monotonic() - started,
                msgspec.json.decode(answer.content, type=Declaration),
                len(replicated.broker.replication._watchers),
            )

    took_s, found, watchers = asyncio.run(wait_and_change())
    assert took_s < 5 and len(found.topics) == 5 and watchers == 0


def test_a_wait_without_a_change_returns_the_same_version(replicated: Admin) -> None:
    version = declaration(replicated).version
    assert replicated.get(f"{DECLARATION}?after={version}&timeoutMs=1")["version"] == version
    assert replicated.get(f"{DECLARATION}?after={version}&timeoutMs=0")["version"] == version
    assert not replicated.broker.replication._watchers


def test_a_request_with_an_old_version_does_not_wait(replicated: Admin) -> None:
    version = declaration(replicated).version
    started = time.monotonic()
    for after in ("", "1-2-3", version + "0"):
        assert replicated.get(f"{DECLARATION}?after={after}&timeoutMs=60000")["version"] == version
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("timeout", ["-1", "60001", "x", ""])
def test_bound_long_poll(admin: Admin, timeout: str) -> None:
    assert "timeoutMs" in admin.reason(400, "GET", f"{DECLARATION}?timeoutMs={timeout}")


def test_a_broker_stops_despite_a_waiting_request() -> None:
    with ThreadPoolExecutor(1) as thread:
        with magnetar.testing.broker() as broker:
            url = f"{broker.http_url}{DECLARATION}"
            version = httpx.get(url).json()["version"]
            query = {"after": version, "timeoutMs": "60000"}
            watchers = broker.server.broker.replication._watchers
            before = len(watchers)
            waiting = thread.submit(httpx.get, url, params=query, timeout=60)
            while len(watchers) == before:
                time.sleep(0.001)
            started = time.monotonic()
        answer = waiting.result(timeout=5)
        assert time.monotonic() - started < 1.5
    assert (answer.status_code, answer.json()["version"]) == (200, version)


# -- reports and status


def test_gr4_a_report_is_shown_with_the_brokers_facts(replicated: Admin) -> None:
    replicated.publish("t", b"1", b"2")
    replicated.publish("many-partition-1", b"3")
    found = statuses(replicated)
    assert list(found) == ["many-partition-0", "many-partition-1", "t"]
    assert [one.backlog for one in found.values()] == [0, 1, 2]
    assert {one.state for one in found.values()} == {State.STARTING}
    report(
        replicated,
        Report(T, "east", State.CATCHING_UP, since_ms=NOW_MS, error="late", error_ms=NOW_MS),
        Report(f"{T}-partition-0", "east", State.RUNNING),
        Report(T, "west", State.RUNNING),
        is_all=True,
    )
    found = statuses(replicated)
    assert [one.state for one in found.values()] == [State.STARTING, State.STARTING, State.CATCHING_UP]
    assert (found["t"].since_ms, found["t"].last_error, found["t"].backlog) == (NOW_MS, "late", 2)


def test_gr4_statuses_are_filtered_by_name(replicated: Admin) -> None:
    assert list(statuses(replicated, "?topic=t")) == ["t"]
    assert list(statuses(replicated, "?topic=persistent://public/default/many-partition-1")) == ["many-partition-1"]
    assert len(statuses(replicated, "?namespace=public/default&remote=east")) == 3
    for query in ("?remote=west", "?namespace=public/other", "?topic=none"):
        assert statuses(replicated, query) == {}
    assert "topic" in replicated.reason(400, "GET", f"{STATUS}?topic=a://b")
    assert "namespace" in replicated.reason(400, "GET", f"{STATUS}?namespace=public")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b'{"pipeline": "p", "isAll": true}',
        b'{"pipeline": "p", "isAll": true, "rows": [{"topic": "t", "remote": "east", "state": "sleeping"}]}',
        b'{"pipeline": "p", "isAll": true, "rows": [{"topic": "a://b", "remote": "east", "state": "running"}]}',
        b'{"pipeline": 1, "isAll": true, "rows": []}',
    ],
)
def test_an_invalid_report_is_rejected(replicated: Admin, body: bytes) -> None:
    replicated.reason(400, "PUT", REPORTS, content=body)
    assert "no pipelines process" in statuses(replicated)["t"].reason


# -- routes


def test_gr8_a_route_policy_is_set_shown_and_removed(replicated: Admin) -> None:
    of_namespace, of_topic = f"{ROUTES}/east/public/default", f"{ROUTES}/east/public/default/t"
    for path in (of_namespace, of_topic):
        assert replicated("GET", path).status_code == 204
        assert replicated.get(f"{path}?applied=true") == {}
    replicated.done("POST", of_namespace, json={"refused": "park"})
    replicated.done("POST", of_topic, json={"paused": True, "masks": [{"field": "a.b", "kind": "null"}]})
    for admin in (replicated, replicated.after_crash()):
        assert admin.get(of_namespace) == {"refused": "park"}
        assert admin.get(of_topic) == {"paused": True, "masks": [{"field": "a.b", "kind": "null", "text": ""}]}
        assert admin.get(f"{ROUTES}/east/public/default/many?applied=true") == {"refused": "park"}
        route_policies = {row.topic: row.policy for row in declaration(admin).topics}
        assert route_policies[T].paused and route_policies["persistent://public/default/many"].refused == "park"
    listed = replicated.get(ROUTES)
    assert [(one["remote"], one["namespace"], one["topic"]) for one in listed] == [
        ("east", "public/default", None),
        ("east", "public/default", "t"),
    ]
    replicated.done("DELETE", f"{of_topic}?force=true")
    replicated.done("DELETE", of_topic)
    assert replicated.get(f"{of_topic}?applied=true") == {"refused": "park"}
    replicated.done("POST", of_topic, json={})
    assert replicated("GET", of_topic).status_code == 204
    assert replicated.get(f"{of_topic}?applied=true") == {"refused": "park"}


EMAIL, PHONE = ({"field": field, "kind": "hash", "text": ""} for field in ("email", "phone"))


def test_gr8_setting_one_part_keeps_the_others(replicated: Admin) -> None:
    path = f"{ROUTES}/east/public/default/t"
    replicated.done("POST", path, json={"masks": [{"field": "email"}], "where": "n > 1", "rename": "x"})
    for change in ({"refused": "park"}, {"paused": True}, {"deadLetters": True}, {"masks": [{"field": "phone"}]}):
        replicated.done("POST", path, json=change)
    expected = {"masks": [EMAIL, PHONE], "where": "n > 1", "rename": "x", "refused": "park"}
    assert replicated.get(path) == {**expected, "paused": True, "deadLetters": True}
    replicated.done("POST", path, json={"rename": None, "refused": None, "deadLetters": None, "paused": None})
    assert replicated.after_crash().get(path) == {"masks": [EMAIL, PHONE], "where": "n > 1"}


def test_gr8_a_mask_or_a_filter_goes_by_its_own_word_only(replicated: Admin) -> None:
    path = f"{ROUTES}/east/public/default/t"
    replicated.done("POST", path, json={"masks": [{"field": "email"}, {"field": "phone"}], "where": "n > 1"})
    for change in ({"where": ""}, {"where": None}, {"masks": None}):
        replicated.reason(400, "POST", path, json=change)
    replicated.done("POST", path, json={"masks": []})
    refused = replicated.reason(412, "DELETE", path)
    assert "masks email, phone and has a filter" in refused and "force=true" in refused
    wrong = replicated.reason(400, "POST", path, json={"removeMasks": ["emial"], "paused": True})
    assert "'emial' cannot be removed: masked are email, phone" in wrong
    assert replicated.get(path) == {"masks": [EMAIL, PHONE], "where": "n > 1"}
    replicated.done("POST", path, json={"removeMasks": ["email"]})
    replicated.done("POST", path, json={"removeWhere": True})
    assert replicated.get(path) == {"masks": [PHONE]}
    replicated.done("DELETE", f"{path}?force=true")
    assert replicated.get(ROUTES) == []


@pytest.mark.parametrize(
    ("status", "path", "why"),
    [
        (412, "standalone/public/default", "is the local cluster"),
        (404, "mars/public/default", "cluster mars"),
        (404, "east/public/none", "Namespace"),
        (404, "east/none/default", "Namespace"),
        (404, "east/public/default/none", "Topic"),
        (400, "east/public/default/many-partition-0", "is a partition"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_route_needs_an_existing_source_and_remote(
    replicated: Admin, method: str, status: int, path: str, why: str
) -> None:
    assert why in replicated.reason(status, method, f"{ROUTES}/{path}", json={})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"where": "("}',
        b'{"where": 1}',
        b'{"rename": "fixed"}',
        b'{"rename": "{nobody}"}',
        b'{"masks": [{"field": ""}]}',
        b'{"refused": "explode"}',
        b'{"pause": true}',
    ],
)
def test_an_invalid_route_policy_is_rejected(replicated: Admin, body: bytes) -> None:
    replicated.reason(400, "POST", f"{ROUTES}/east/public/default", content=body)
    assert replicated.get(ROUTES) == []


def test_sp6_routes_that_merge_two_topics_are_rejected(replicated: Admin) -> None:
    admin = replicated
    for place in ("t", "many"):
        admin.done("POST", f"{ROUTES}/east/public/default/{place}", json={"rename": "x/y/{topic}"})
    response = admin("POST", f"{ROUTES}/east/public/default/many", json={"rename": "x/y/t"})
    assert response.status_code == 400
    for named in (T, "persistent://public/default/many", "persistent://x/y/t"):
        assert named in response.text
    admin.done("POST", f"{ROUTES}/east/public/default", json={"rename": "x/y/all-{topic}"})


def test_b2_a_clash_of_names_stops_two_topics_and_refuses_nothing_else(replicated: Admin) -> None:
    admin = replicated
    admin.done("POST", f"{ROUTES}/east/public/default", json={"rename": "{topic}-eu"})
    admin.done("PUT", f"{TOPICS}/t-eu")  # after the rename was set
    assert {TopicName.parse(row.topic).local for row in declaration(admin).topics if row.clash} == {"t", "t-eu"}
    admin.done("PUT", "/admin/v2/namespaces/public/other")
    for path in ("default/t", "default", "other", "default/many"):
        for change in ({"paused": True}, {"masks": [{"field": "email"}]}, {"where": "true"}, {"paused": False}):
            admin.done("POST", f"{ROUTES}/east/public/{path}", json=change)
    admin.done("POST", f"{ROUTES}/east/public/default/many", json={"rename": "{topic}-two"})
    refused = admin.reason(400, "POST", f"{ROUTES}/east/public/default/many", json={"rename": "t-eu"})
    assert "persistent://public/default/many and persistent://public/default/t" in refused
    admin.done("POST", f"{ROUTES}/east/public/default/t-eu", json={"rename": "t-other"})
    assert not any(row.clash for row in declaration(admin).topics)
    admin.reason(400, "POST", f"{ROUTES}/east/public/default/t-eu", json={"rename": None})


def test_b2_a_topic_made_for_renamed_copies_is_not_replicated_itself(replicated: Admin) -> None:
    admin = replicated
    admin.done("PUT", f"{TOPICS}/copy?copyOf=east/{T}")
    admin.done("PUT", f"{TOPICS}/copies/partitions?copyOf=east/{T}", json=2)
    for one in (admin, admin.after_crash()):
        assert [TopicName.parse(row.topic).local for row in declaration(one).topics] == ["many", "t"]
    assert admin.get(f"{TOPICS}/copy/properties") == {"magnetar.copyOf": f"east/{T}"}
    admin.done("POST", f"{TOPICS}/copy/replication", json=["standalone", "east"])
    assert "copy" in {TopicName.parse(row.topic).local for row in declaration(admin).topics}
    assert "copyOf has 5000" in admin.reason(400, "PUT", f"{TOPICS}/long?copyOf={'x' * 5000}")


PERSON = {"type": "record", "name": "P", "fields": [{"name": "country", "type": "string"}]}


def test_b9_a_condition_that_cannot_work_is_rejected_when_it_is_set(replicated: Admin) -> None:
    path = f"{ROUTES}/east/public/default/t"
    for where, reason in (
        ("country = = 'CH'", "error at 10, near '='"),
        ("contry(1) = 1", "calls contry, which is not a function that a condition may call"),
        ("sum(n) > 1", "calls sum, which is not a function"),
    ):
        assert reason in replicated.reason(400, "POST", path, json={"where": where})
    replicated.done("POST", path, json={"where": "land = 'CH'"})  # there is no schema yet
    body = {"type": "JSON", "schema": json.dumps(PERSON), "properties": {}}
    assert replicated("POST", "/admin/v2/schemas/public/default/t/schema", json=body).is_success
    wrong = replicated.reason(400, "POST", path, json={"where": "contry = 'CH'"})
    assert "unknown column contry; did you mean country: the columns of the value are country" in wrong
    assert replicated.get(path) == {"where": "land = 'CH'"}
    replicated.done("POST", path, json={"where": "Country = 'CH' AND __messageProperties['a'] IS NULL"})
    replicated.done("POST", f"{ROUTES}/east/public/default", json={"where": "other > 1"})


STREET = {"type": "record", "name": "A", "fields": [{"name": "street", "type": ["null", "string"]}]}
CUSTOMER = {
    "type": "record",
    "name": "C",
    "fields": [
        {"name": "email", "type": "string"},
        {"name": "homes", "type": {"type": "array", "items": STREET}},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}


def test_a_mask_of_a_field_that_the_schema_lacks_needs_force(replicated: Admin) -> None:
    """Otherwise a typing error copies the field in clear, and nothing says so."""
    path = f"{ROUTES}/east/public/default/t"
    replicated.done("POST", path, json={"masks": [{"field": "early"}]})  # there is no schema yet
    body = {"type": "JSON", "schema": json.dumps(CUSTOMER), "properties": {}}
    assert replicated("POST", "/admin/v2/schemas/public/default/t/schema", json=body).is_success
    for field in ("email", "homes.street", "labels.vip", "labels"):
        replicated.done("POST", path, json={"masks": [{"field": field}], "removeMasks": ["early"]})
        replicated.done("POST", path, json={"masks": [{"field": "early"}], "removeMasks": [field], "force": True})
    for field, near in (("emial", "; did you mean email"), ("Email", "; did you mean email"), ("email.x", "")):
        wrong = replicated.reason(412, "POST", path, json={"masks": [{"field": field}]})
        assert f"mask of field {field!r}: the schema of the topic has no such field{near}" in wrong
        assert "its fields are email, homes, labels" in wrong and "--force (force=true)" in wrong
    assert "homes.steet" in replicated.reason(412, "POST", path, json={"masks": [{"field": "homes.steet"}]})
    assert [mask["field"] for mask in replicated.get(path)["masks"]] == ["early"]
    replicated.done("POST", path, json={"paused": True})  # whatever is set already
    replicated.done("POST", f"{ROUTES}/east/public/default", json={"masks": [{"field": "emial"}]})


def test_a_route_policy_of_a_topic_that_does_not_exist_yet_belongs_on_its_namespace(replicated: Admin) -> None:
    wrong = replicated.reason(404, "POST", f"{ROUTES}/east/public/default/later", json={"masks": [{"field": "email"}]})
    assert wrong.endswith("/later not found: create it first, or set the route policy for namespace public/default")


# -- Pulsar's own paths


def test_gr1_replication_subscriptions_are_not_listed(replicated: Admin) -> None:
    replicated.subscribe("t", "s")
    assert replicated.get(f"{TOPICS}/t/subscriptions") == ["s"]
    assert list(replicated.get(f"{TOPICS}/t/stats")["subscriptions"]) == ["s"]
    assert replicated.get(f"{TOPICS}/many/subscriptions") == []
    assert sorted(replicated.get(f"{TOPICS}/t/internalStats")["cursors"]) == ["pulsar.repl.east", "s"]


def test_gr1_replication_subscriptions_are_internal(replicated: Admin) -> None:
    own = f"{TOPICS}/t/subscription/pulsar.repl.east"
    for path in (own, own + "?force=true", f"{TOPICS}/many/subscription/pulsar.repl.east"):
        assert "replication" in replicated.reason(412, "DELETE", path)
    for path in (own, f"{TOPICS}/t/subscription/pulsar.repl.west"):
        assert "reserved" in replicated.reason(412, "PUT", path)
    policy = {"maxRedeliverCount": 3}
    assert "no dead letters" in replicated.reason(412, "POST", f"{own}/deadLetterPolicy", json=policy)
    assert "pulsar.repl.east" in replicated.broker.topics[T].subscriptions
    everywhere = "/admin/v2/namespaces/public/default/unsubscribe/pulsar.repl.east"
    assert "replication" in replicated.reason(412, "POST", everywhere)


def test_gr1_a_replication_backlog_may_be_skipped(replicated: Admin) -> None:
    """As in Apache Pulsar, with the same paths."""
    replicated.publish("t", b"1", b"2", b"3")
    own = f"{TOPICS}/t/subscription/pulsar.repl.east"
    replicated.done("POST", f"{own}/skip/2")
    assert statuses(replicated)["t"].backlog == 1
    assert replicated("GET", f"{own}/position/1").content == b"3"
    replicated.done("POST", f"{own}/skip_all")
    assert statuses(replicated)["t"].backlog == 0


def test_gr3_a_topic_with_a_backlog_is_deleted_by_force_only(replicated: Admin) -> None:
    replicated.publish("t", b"1").peer.writable = True
    replicated.broker.topics[T].producers.close_all()
    assert "has 1 messages that cluster east does not have yet" in replicated.reason(412, "DELETE", f"{TOPICS}/t")
    replicated.done("DELETE", f"{TOPICS}/t?force=true")
    replicated.done("DELETE", f"{TOPICS}/many/partitions")
    assert declaration(replicated).topics == []


def test_gr1_a_topic_is_replicated_by_its_own_policy(admin: Admin) -> None:
    admin.publish("t", b"old")
    admin.done("POST", f"{TOPICS}/t/replication", json=["standalone", "east"])
    admin.publish("t", b"new")
    assert {name: one.backlog for name, one in statuses(admin).items()} == {"t": 1}
    admin.done("DELETE", f"{TOPICS}/t/replication")
    assert declaration(admin).topics == [] and statuses(admin) == {}


def test_gr9_a_replicated_subscription_is_declared(replicated: Admin) -> None:
    replicated.done("PUT", f"{TOPICS}/many/subscription/s", content=b'"latest"', params={"replicated": "true"})
    rows: dict[str, Any] = {row.topic: row for row in declaration(replicated).topics}
    assert rows["persistent://public/default/many"].subscriptions == ("s",)
    replicated.done("POST", f"{TOPICS}/many/subscription/s/replicatedSubscriptionStatus", json=False)
    assert not any(row.subscriptions for row in declaration(replicated).topics)


def test_a_default_route_policy_is_an_empty_object() -> None:
    """A broker of another version reads missing fields as defaults."""
    assert msgspec.json.encode(RoutePolicy()) == b"{}"


def test_bound_long_polls(admin: Admin) -> None:
    replication = admin.broker.replication
    watchers = [lambda number=number: None for number in range(LONG_POLLS.limit + 2)]  # type: ignore[misc]
    assert all(replication.watch(watcher) for watcher in watchers)
    path = f"/admin/v2/replication/declaration?after={replication.version}&timeoutMs=60000"
    assert f"{LONG_POLLS.limit} requests wait" in admin.reason(429, "GET", path)
    replication.unwatch(watchers[0])
    assert replication.watch(watchers[0])
