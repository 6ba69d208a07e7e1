"""REST calls of declared pipelines: records, their wanted state, runs, the process's own calls, and rights."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

import magnetar.testing
from magnetar.access.needs import Need, right_on_topic
from magnetar.access.principal import INTERNAL_ROLE, Principal
from magnetar.bounds import LONG_POLLS
from magnetar.declared.model import PipelinesDeclaration, Progress, RunReport, RunReports, RunState
from magnetar.names import TopicName
from tests.admin.driver import Admin
from tests.admin.roles import ADMIN, ROOT, STRANGER, ask, guarded, is_refused

PIPELINES = "/admin/v2/pipelines"
DECLARATION, REPORTS = f"{PIPELINES}/declaration", f"{PIPELINES}/reports"
DEFAULT = f"{PIPELINES}/public/default"
FIX = f"{DEFAULT}/fix"
LETTERS = "persistent://public/default/t-s-DLQ"
REDRIVE = {"verb": "redrive", "spec": {"sources": ["t-s-DLQ"]}}


@pytest.fixture
def admin() -> Admin:
    return Admin()


def declare(admin: Admin, path: str = FIX, body: Any = REDRIVE) -> dict[str, Any]:
    response = admin("PUT", path, json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def report(admin: Admin, state: RunState, **values: Any) -> None:
    found = admin.get(FIX)
    body = RunReports("p1", False, [RunReport(found["id"], found["run"], state, **values)])
    assert admin("PUT", REPORTS, content=msgspec.json.encode(body)).status_code == 204


# -- records


def test_sp3_sp7_a_pipeline_from_its_declaration_to_its_end(admin: Admin) -> None:
    found = declare(admin)
    assert (found["state"], found["wanted"], found["spec"]) == ("waiting", "running", {"sources": [LETTERS]})
    assert (found["namespace"], found["name"], found["verb"], found["run"]) == ("public/default", "fix", "redrive", 1)
    report(admin, RunState.RUNNING, progress=Progress(40, 100, {"quarantined": 2}, "sending"), rate=12.5)
    shown = admin.get(FIX)
    assert (shown["state"], shown["rate"], shown["process"]) == ("running", 12.5, "reporting")
    assert shown["progress"] == {"done": 40, "total": 100, "counts": {"quarantined": 2}, "note": "sending"}
    admin.done("POST", f"{FIX}/pause")
    report(admin, RunState.PAUSED)
    assert (admin.get(FIX)["state"], admin.get(FIX)["wanted"]) == ("paused", "paused")
    admin.done("POST", f"{FIX}/resume")
    report(admin, RunState.DONE, progress=Progress(100, 100))
    assert admin.get(FIX)["state"] == "done"
    (run,) = admin.get(f"{FIX}/runs")
    assert (run["run"], run["state"], run["progress"]) == (1, "done", {"done": 100, "total": 100})
    admin.done("DELETE", FIX)
    assert "pipeline public/default/fix does not exist" in admin.reason(404, "GET", FIX)


def test_sp3_cancel_and_run_again(admin: Admin) -> None:
    declare(admin)
    assert "cancel it first, or force" in admin.reason(409, "DELETE", FIX)
    admin.done("POST", f"{FIX}/cancel")
    assert admin.get(FIX)["state"] == "cancelled", "no process runs it"
    assert "is over: run 1 is cancelled" in admin.reason(409, "POST", f"{FIX}/pause")
    admin.done("POST", f"{FIX}/resume")
    assert (admin.get(FIX)["state"], admin.get(FIX)["run"]) == ("waiting", 2)
    admin.done("DELETE", f"{FIX}?force=true")


def test_sp3_a_second_redrive_of_a_topic_is_refused_and_names_the_first(admin: Admin) -> None:
    declare(admin)
    body = {"verb": "redrive", "spec": {"sources": ["public/default"]}}
    reason = admin.reason(409, "PUT", f"{DEFAULT}/second", json=body)
    assert "redrive public/default/fix runs on public/default" in reason and LETTERS in reason


def test_sp7_lists(admin: Admin) -> None:
    assert admin.get(PIPELINES) == admin.get(DEFAULT) == []
    admin.done("PUT", "/admin/v2/namespaces/public/other")
    declare(admin, f"{PIPELINES}/public/other/b")
    declare(admin)
    assert [one["name"] for one in admin.get(PIPELINES)] == ["fix", "b"]
    assert [one["name"] for one in admin.get(DEFAULT)] == ["fix"]


def test_sp7_records_survive_a_crash_once_the_request_is_answered(admin: Admin) -> None:
    declare(admin, body={**REDRIVE, "paused": True})
    again = admin.after_crash()
    assert (again.get(FIX)["state"], again.get(FIX)["wanted"]) == ("paused", "paused")


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "the request body is empty: verb and spec are expected"),
        (b"[]", 400, "invalid request body"),
        (b'{"verb": "redrive"}', 400, "spec"),
        (b'{"verb": "redrive", "spec": {"sources": ["x"]}, "a": 1}', 400, "unknown field `a`"),
        (b'{"verb": "copy", "spec": {}}', 412, "verb 'copy' is not one of redrive, process, archive"),
        (b'{"verb": "redrive", "spec": {"sources": ["x"], "y": 1}}', 412, "unknown field `y`"),
        (b'{"verb": "redrive", "spec": {"sources": ["x"], "rate": 1e999}}', 400, "invalid request body"),
        (b'{"verb": "redrive", "spec": {"sources": ["x"], "where": "a ="}}', 412, "where"),
        (b'{"verb": "redrive", "spec": ' + b"[" * 100_000 + b"}", 400, "invalid request body"),
    ],
)
def test_sp3_bad_bodies_have_a_reason(admin: Admin, body: bytes, status: int, reason: str) -> None:
    found = admin.reason(status, "PUT", FIX, content=body)
    assert reason in found or "condition" in found
    assert admin.get(PIPELINES) == []


def test_names_that_do_not_exist(admin: Admin) -> None:
    assert admin("PUT", f"{PIPELINES}/public/none/fix", json=REDRIVE).status_code == 404
    assert admin("GET", f"{PIPELINES}/public/none").status_code == 404
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/runs")):
        assert "does not exist" in admin.reason(404, method, FIX + path)
    assert "pipeline name" in admin.reason(412, "PUT", f"{DEFAULT}/a%20b", json=REDRIVE)


def test_a_namespace_with_a_pipeline_that_runs_is_deleted_by_force_only() -> None:
    admin = Admin(forceDeleteNamespaceAllowed=True)
    admin.done("PUT", "/admin/v2/namespaces/public/other")
    declare(admin, f"{PIPELINES}/public/other/fix")
    assert "has pipeline fix, which is not over" in admin.reason(409, "DELETE", "/admin/v2/namespaces/public/other")
    admin.done("DELETE", "/admin/v2/namespaces/public/other?force=true")
    assert admin.get(PIPELINES) == []


# -- the pipelines process


def test_sp7_the_process_gets_what_is_to_run(admin: Admin) -> None:
    declare(admin)
    found = msgspec.json.decode(admin("GET", DECLARATION).content, type=PipelinesDeclaration)
    assert [(one.full, one.run, one.wanted) for one in found.pipelines] == [("public/default/fix", 1, "running")]
    assert admin.get(f"{DECLARATION}?after={found.version}&timeoutMs=0")["version"] == found.version
    report(admin, RunState.FAILED, reason="no such function")
    assert admin.get(DECLARATION)["pipelines"] == []
    assert (admin.get(FIX)["reason"], admin.get(FIX)["failedRuns"]) == ("no such function", 1)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"pipeline": "p", "isAll": true, "rows": [{"id": 1}]}'])
def test_an_invalid_report_is_refused(admin: Admin, body: bytes) -> None:
    assert admin("PUT", REPORTS, content=body).status_code == 400


def test_sp7_a_waiting_process_learns_of_a_change() -> None:
    with (
        magnetar.testing.broker() as broker,
        ThreadPoolExecutor(1) as thread,
        httpx.Client(base_url=broker.http_url, trust_env=False) as http,
    ):
        version = http.get(DECLARATION).json()["version"]
        query = {"after": version, "timeoutMs": "60000"}
        watchers = broker.server.broker.pipelines._watchers
        before = len(watchers)
        waiting = thread.submit(httpx.get, f"{broker.http_url}{DECLARATION}", params=query, timeout=60)
        while len(watchers) == before:
            time.sleep(0.001)
        assert http.put(FIX, json=REDRIVE).status_code == 200
        found = waiting.result(timeout=10).json()
        assert [one["name"] for one in found["pipelines"]] == ["fix"] and found["version"] != version


def test_no_more_requests_wait_than_may(admin: Admin) -> None:
    pipelines = admin.broker.pipelines
    while pipelines.watch(lambda: None):
        assert len(pipelines._watchers) < 2 * LONG_POLLS.limit
    reason = admin.reason(429, "GET", f"{DECLARATION}?after={pipelines.version}")
    assert reason == f"{LONG_POLLS.limit} requests wait for the declaration already"


# -- rights


def body_of(spec: dict[str, Any], verb: str = "redrive") -> bytes:
    return msgspec.json.encode({"verb": verb, "spec": spec})


def test_sp3_a_tenant_admin_declares_what_stays_in_the_tenant() -> None:
    admin = guarded()
    path = f"{PIPELINES}/acme/n/fix"
    for spec, verb in (
        ({"sources": ["other/n/x-DLQ"]}, "redrive"),
        ({"sources": ["x-DLQ"], "to": "other/n/t"}, "redrive"),
        ({"sources": ["x-DLQ"], "function": "os:system"}, "redrive"),
        ({"topic": "t", "subscription": "s", "sql": "select 1"}, "process"),
        ({"topics": ["t"], "path": "/etc"}, "archive"),
    ):
        assert is_refused(ask(admin, ADMIN, "PUT", path, body_of(spec, verb))), spec
    allowed = body_of({"sources": ["x-DLQ"], "where": "__key = 'a'"})
    assert is_refused(ask(admin, STRANGER, "PUT", path, allowed))
    assert ask(admin, ADMIN, "PUT", path, allowed).status == 200
    shown = msgspec.json.decode(ask(admin, ADMIN, "GET", path).body)
    assert shown["declaredBy"] == ADMIN
    code = body_of({"sources": ["y-DLQ"], "function": "a:b"})
    assert ask(admin, ROOT, "PUT", f"{PIPELINES}/acme/n/b", code).status == 200


def test_sp7_the_process_publishes_on_behalf_of_the_author_as_long_as_the_run_lasts() -> None:
    admin = guarded()
    own = Principal(INTERNAL_ROLE, "internal")
    right = right_on_topic(Need.PRODUCE, TopicName.parse("persistent://acme/n/t"))
    authorization = admin.broker.authorization
    assert not authorization.allows(own, [right])
    path = f"{PIPELINES}/acme/n/fix"
    assert ask(admin, ADMIN, "PUT", path, body_of({"sources": ["x-DLQ"]})).status == 200
    assert authorization.allows(own, [right])
    assert not authorization.allows(own, [right_on_topic(Need.PRODUCE, TopicName.parse("persistent://other/n/t"))])
    assert ask(admin, ADMIN, "POST", f"{path}/cancel").status == 204
    assert not authorization.allows(own, [right])


def test_sp7_everyone_sees_the_pipelines_of_the_own_tenants() -> None:
    admin = guarded()
    assert ask(admin, ROOT, "PUT", f"{PIPELINES}/acme/n/fix", body_of({"sources": ["x-DLQ"]})).status == 200
    seen = {role: msgspec.json.decode(ask(admin, role, "GET", PIPELINES).body) for role in (ROOT, ADMIN, STRANGER)}
    assert [len(seen[role]) for role in (ROOT, ADMIN, STRANGER)] == [1, 1, 0]
    assert is_refused(ask(admin, STRANGER, "GET", f"{PIPELINES}/acme/n"))
    assert is_refused(ask(admin, ADMIN, "GET", DECLARATION))
    assert ask(admin, INTERNAL_ROLE, "GET", DECLARATION).status == 200


# -- metrics


def test_sp7_metrics(admin: Admin) -> None:
    assert "magnetar_pipeline" not in admin("GET", "/metrics/").text
    declare(admin)
    report(admin, RunState.RUNNING, progress=Progress(40, 100), rate=12.5)
    own = 'cluster="standalone",namespace="public/default",pipeline="fix",verb="redrive"'
    lines = admin("GET", "/metrics/").text.splitlines()
    assert f'magnetar_pipeline_state{{{own},state="running"}} 1' in lines
    assert f"magnetar_pipeline_done{{{own}}} 40" in lines
    assert f"magnetar_pipeline_expected{{{own}}} 100" in lines
    assert f"magnetar_pipeline_rate{{{own}}} 12.5" in lines
    assert f"magnetar_pipeline_failed_runs_total{{{own}}} 0" in lines
    assert "# TYPE magnetar_pipeline_failed_runs_total counter" in lines
