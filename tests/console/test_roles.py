"""Logins in a browser: a role sees and does what the broker allows it, and nothing after its logout."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from magnetar.client import Client
from magnetar.security.credentials import Security
from tests.console.conftest import Secured, Shown

DEAD_LETTERS = "/dead-letters/persistent/public/default/orders-billing-DLQ"


@pytest.fixture(scope="module")
def filled(secure_url: Secured) -> Secured:
    broker = secure_url.broker
    security = Security(token=broker.token("admin"), trust_certs_file=broker.trust_certs_file)
    properties = {"REAL_TOPIC": "persistent://public/default/orders", "REAL_SUBSCRIPTION": "billing"}
    with Client(broker.service_url, security=security) as client, client.producer("orders-billing-DLQ") as producer:
        producer.send(b"secret payload", properties=properties)
    return secure_url


@pytest.fixture
def page(browser: Browser, filled: Secured) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def log_in(page: Page, at: Secured, role: str, path: str = "/") -> Shown:
    shown = Shown(page, at.url)
    page.goto(at.url + path)
    page.get_by_label("Token").fill(at.broker.token(role))
    page.get_by_role("button", name="Log in").click()
    shown.loaded()
    assert "ey" not in page.url
    return shown


def test_an_administrator_logs_in_and_out(page: Page, filled: Secured) -> None:
    shown = log_in(page, filled, "admin", DEAD_LETTERS)
    expect(page.locator(".role")).to_have_text("admin")
    expect(page.get_by_role("button", name="Redrive 1 dead letter")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    second = page.context.new_page()
    second.goto(filled.url + "/topics")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(second.get_by_label("Token")).to_be_visible(timeout=10_000)  # all pages of the session end
    shown.is_unharmed()


def test_a_role_without_rights_sees_and_does_nothing(page: Page, filled: Secured) -> None:
    shown = log_in(page, filled, "stranger", DEAD_LETTERS)
    expect(page.get_by_role("alert").first).to_contain_text("Not allowed for role 'stranger'")
    expect(page.get_by_role("button", name="Redrive")).to_have_count(0)
    assert "secret" not in page.content()
    for path in ("/dead-letters", "/topics/persistent/public/default/orders-billing-DLQ"):
        shown.open(path)
        expect(page.get_by_role("alert").first).to_contain_text("Not allowed for role 'stranger'")
        assert "secret" not in page.content()
    for path in ("/", "/topics"):  # the broker's summaries have only what a role may see
        shown.open(path)
        expect(page.get_by_role("main")).to_contain_text("There are no topics yet")
        assert "orders" not in page.get_by_role("main").inner_text()


def test_a_role_that_may_consume_reads_and_does_not_redrive(page: Page, filled: Secured) -> None:
    broker = filled.broker
    url = f"{broker.http_url}/admin/v2/namespaces/public/default/permissions/reader"
    headers = {"Authorization": f"Bearer {broker.token('admin')}"}
    trust = ssl.create_default_context(cafile=broker.trust_certs_file)
    assert httpx.post(url, json=["consume"], headers=headers, verify=trust).status_code < 300
    log_in(page, filled, "reader", DEAD_LETTERS)
    table = page.get_by_role("table", name="Dead letters", exact=True)
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Redrive")).to_have_count(0)
    expect(page.locator("#content")).not_to_contain_text("HTTP 403")


def test_a_token_that_the_broker_refuses_is_not_a_login(page: Page, filled: Secured) -> None:
    page.goto(filled.url)
    page.get_by_label("Token").fill("ey.no.token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("The broker refuses this token")
