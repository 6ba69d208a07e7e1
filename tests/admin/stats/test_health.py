"""Health over HTTP: statuses and bodies of Pulsar's checks and of the probes."""

from __future__ import annotations

import pytest

from magnetar.admin.needs import OPEN
from magnetar.admin.routes import ROUTES
from magnetar.health import Facts
from tests.admin.driver import Admin

PATH = "/admin/v2/brokers"
ADDRESS = "broker.test:8080"


def test_a_healthy_broker(admin: Admin) -> None:
    for path, text in (
        (f"{PATH}/health", "ok"),
        (f"{PATH}/health?topicVersion=V1", "ok"),
        (f"{PATH}/health?topicVersion=V2", "ok"),
        (f"{PATH}/health?brokerId={ADDRESS}", "ok"),
        (f"{PATH}/ready", "ok"),
        ("/status.html", "OK"),
    ):
        response = admin("GET", path)
        assert (response.status_code, response.text) == (200, text)
    assert "topicVersion" in admin.reason(400, "GET", f"{PATH}/health?topicVersion=V3")
    assert "elsewhere" in admin.reason(404, "GET", f"{PATH}/health?brokerId=elsewhere:8080")
    for path in ("/health/live", "/health/ready"):
        found = admin.get(path)
        assert (found["status"], found["reason"]) == ("ok", "")
        assert found["checks"]["timers"] == {"state": "ok"}


def test_a_failed_write_is_the_health_check_s_alone(admin: Admin) -> None:
    admin.vitals.failed_write = "a write was not durable within 10 s"
    assert admin.reason(503, "GET", f"{PATH}/health") == "a write was not durable within 10 s"
    assert admin.get("/health/live")["status"] == admin.get("/health/ready")["status"] == "ok"


def test_a_broker_that_stops_is_alive_and_not_ready(admin: Admin) -> None:
    admin.vitals.now = Facts("stopping")
    for path in (f"{PATH}/health", f"{PATH}/ready", "/status.html"):
        assert admin.reason(503, "GET", path) == "the broker is stopping"
    refused = admin("GET", "/health/ready")
    assert (refused.status_code, refused.json()["status"]) == (503, "failed")
    assert refused.json()["checks"]["phase"] == {"state": "failed", "reason": "the broker is stopping"}
    assert admin("GET", "/health/live").status_code == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_a_probe_fails_where_a_restart_would_help(admin: Admin, path: str) -> None:
    admin.vitals.now = Facts("serving", timer_overdue_s=100.0, damaged=("persistent://public/default/t",))
    response = admin("GET", path)
    assert response.status_code == 503
    assert response.json()["reason"] == (
        "timers do not run: one has been due for 100.0 s;"
        " 1 thing cannot be read: brokers/damaged or the broker's log names it"
    )
    assert response.headers["content-type"] == "application/json"


def test_a_warning_is_shown_and_does_not_fail(admin: Admin) -> None:
    admin.vitals.now = Facts("serving", disk_low="12 % of the disk are left")
    assert admin("GET", f"{PATH}/health").text == "ok"
    assert admin.get("/health/ready") | {"checks": {}} == {
        "status": "warning",
        "reason": "12 % of the disk are left",
        "checks": {},
    }


def test_what_is_open_to_everybody_names_nothing_of_a_tenant(admin: Admin) -> None:
    names = ("topic persistent://acme/n/t", "subscription s of persistent://acme/n/t", "tenant acme")
    admin.vitals.now = Facts("stopping", damaged=names)
    for route in ROUTES:
        if route.needs is OPEN:
            text = admin(route.method, route.path).text
            assert "the broker is stopping" in text and "acme" not in text, route.path


def test_responses_are_counted(admin: Admin) -> None:
    admin.get("/health/live")
    admin.reason(404, "GET", "/nowhere")
    assert admin.vitals.responses == {200: 1, 404: 1}
