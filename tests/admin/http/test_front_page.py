"""A bare GET on the HTTP port: a page for browsers, JSON for programs."""

from __future__ import annotations

import re

import pytest

from magnetar.version import __version__
from tests.admin.driver import Admin

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_programs_get_json(accept: str) -> None:
    response = Admin(clusterName="eu-west")("GET", "/", headers={"accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    page = response.json()
    assert (page["product"], page["version"], page["cluster"]) == ("Magnetar", __version__, "eu-west")
    assert page["serviceUrl"] == "pulsar://broker.test:6650"


def test_browsers_get_html() -> None:
    response = Admin(clusterName="eu-west")("GET", "/", headers={"accept": BROWSER})
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["vary"] == "Accept"
    assert response.text.startswith("<!DOCTYPE html>")
    for text in ("Magnetar", __version__, "eu-west", "pulsar://broker.test:6650", "magnetar topics list"):
        assert text in response.text


def test_the_page_needs_no_external_resources() -> None:
    page = Admin()("GET", "/", headers={"accept": BROWSER}).text
    assert re.findall(r"(?:src|href)=\"(?!/)[^\"]*", page) == []
    assert "<script" not in page and "<img" not in page


def test_every_link_leads_somewhere(admin: Admin) -> None:
    links = admin.get("/")["links"]
    page = admin("GET", "/", headers={"accept": BROWSER}).text
    assert {"/admin/v2/brokers/health", "/metrics/", "/admin/v2/persistent/public/default"} <= set(links.values())
    for path in links.values():
        assert admin("GET", path).status_code == 200, path
        assert f'href="{path}"' in page


def test_external_names_are_escaped() -> None:
    response = Admin()("GET", "/", headers={"accept": BROWSER, "host": '"><script>alert(1)</script>'})
    assert (response.status_code, response.headers["content-type"]) == (400, "application/json")


def test_head_has_no_body(admin: Admin) -> None:
    assert admin("HEAD", "/").status_code == 200
