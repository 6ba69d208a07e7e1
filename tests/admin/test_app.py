"""Common behaviour of all paths: error format, unsupported calls, limits, and durability of changes."""

from __future__ import annotations

import logging

import pytest

from magnetar.admin.routes import BODY_SIZE_MAX, ROUTES, Route
from tests.admin.driver import Admin


def test_a_trailing_slash_changes_nothing(admin: Admin) -> None:
    assert admin.get("/admin/v2/clusters") == admin.get("/admin/v2/clusters/") == ["standalone"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/v2/something/else"),
        ("PATCH", "/admin/v2/tenants/public"),
        ("GET", "/admin/v4"),
        ("GET", "/admin/"),
    ],
)
def test_an_unsupported_admin_call_is_reported_as_unsupported(admin: Admin, method: str, path: str) -> None:
    reason = admin.reason(501, method, path)
    assert reason == f"{method} {path.rstrip('/')} is not supported yet"


def test_other_paths_are_not_found(admin: Admin) -> None:
    assert admin.reason(404, "GET", "/nothing/here") == "path /nothing/here not found"
    admin.reason(405, "POST", "/")
    admin.reason(404, "GET", "/administrator")
    admin.reason(405, "POST", "/metrics/")
    admin.reason(405, "PUT", "/lookup/v2/topic/persistent/public/default/t")


def test_bound_request_body(admin: Admin) -> None:
    path = "/admin/v2/persistent/public/default/t/partitions"
    assert str(BODY_SIZE_MAX) in admin.reason(413, "PUT", path, content=b" " * BODY_SIZE_MAX + b"1")
    admin.done("PUT", path, content=b" " * (BODY_SIZE_MAX - 1) + b"1")


def test_an_unexpected_error_is_logged_and_returned_with_a_reason(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(admin.broker.catalog, "create", broken)
    with caplog.at_level(logging.ERROR):
        reason = admin.reason(500, "PUT", "/admin/v2/persistent/public/default/t")
    assert "ZeroDivisionError" in reason and "secret" not in reason
    (record,) = caplog.records
    assert record.exc_info is not None and str(record.exc_info[1]) == "secret detail"


def test_a_change_that_cannot_become_durable_is_not_acknowledged(admin: Admin) -> None:
    admin.storage.fail_next(OSError("disk full"))
    assert "OSError" in admin.reason(500, "PUT", "/admin/v2/persistent/public/default/t")
    assert admin.after_crash().existing() == ([], {})


def test_every_change_waits_for_the_disk_and_no_query_does(admin: Admin) -> None:
    path = "/admin/v2/persistent/public/default/t"
    admin.done("PUT", path)
    assert admin.commits == 1
    admin.reason(409, "PUT", path)
    assert admin.commits == 2  # its existence must survive a crash too
    admin.get(f"{path}/stats")
    admin.get("/admin/v2/tenants")
    assert admin.commits == 2


# Queries with a body, hence not GET; or changes kept in memory only.
QUESTIONS = (
    "/version",
    "/compatibility",
    "/analyzeBacklog",
    "/backlogSize",
    "/replication/reports",
    "/pipelines/reports",  # the end of a run is reported again until the declaration leaves it out
    "/replication/cursors",
)


def test_the_table_marks_every_change() -> None:
    for route in ROUTES:
        asks = route.method == "GET" or (route.method in ("POST", "PUT") and route.path.endswith(QUESTIONS))
        assert route.changes or asks, route.path
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_head_is_answered_like_get(admin: Admin) -> None:
    assert admin("HEAD", "/status.html").status_code == 200


CHANGING_GETS = [route for route in ROUTES if route.method == "GET" and route.changes]


@pytest.mark.parametrize("route", CHANGING_GETS, ids=lambda route: route.path)
def test_head_never_changes_anything(admin: Admin, route: Route) -> None:
    admin.done("PUT", "/admin/v2/persistent/public/default/t")
    admin.publish("t", b"x")
    values = {"{domain}": "persistent", "{tenant}": "public", "{namespace}": "default", "{topic}": "new"}
    path = route.path
    for name, value in {**values, "{subscription}": "s", "{messagePosition}": "1"}.items():
        path = path.replace(name, value)
    for place in (path, path.replace("/new/", "/t/")):
        response = admin("HEAD", f"{place}?checkAllowAutoCreation=true")
        assert response.status_code == 405
        assert "GET" in response.headers["allow"] and "HEAD" not in response.headers["allow"]
    assert admin.existing() == (["persistent://public/default/t"], {})
    assert admin.broker.topics["persistent://public/default/t"].subscriptions == {}


def test_a_method_that_is_not_allowed_names_those_that_are(admin: Admin) -> None:
    response = admin("DELETE", "/status.html")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
