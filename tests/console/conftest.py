"""One browser, one broker with messages, one secured broker and a console of each, for all tests of this folder.

All that use them are in one group of pytest-xdist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from magnetar import testing
from magnetar.client import Client
from tests.console.processes import ARGUMENTS, CHROMIUM, NO_CHROMIUM, TAKES_PICTURES, RunningConsole, console
from tests.console.summaries import EVIL, summarized

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PUBLIC = "/admin/v2/persistent/public/default"
LETTERS = 105


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"console_url", "secure_url", "plain_url"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("console"))


@pytest.fixture(scope="package")
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker() as running:
        _fill(running)
        yield running


def _fill(broker: testing.TestBroker) -> None:
    with Client(broker.service_url) as client:
        with client.producer("orders") as producer:
            for number in range(3):
                properties = {"source": "shop", EVIL: EVIL}
                producer.send(b'{"order": %d, "note": "%s"}' % (number, EVIL.encode()), key=EVIL, properties=properties)
            producer.send(bytes(range(0, 250, 7)), key="binary")
            producer.send(f"{EVIL} as text".encode())
        with client.producer("orders-billing-DLQ") as producer:
            for number in range(LETTERS):
                producer.send(
                    b'{"order": %d, "note": "%s"}' % (number, EVIL.encode()), key=EVIL, properties=_died(number)
                )
    name = "billing" if TAKES_PICTURES else "billing%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    url = f"{broker.http_url}{PUBLIC}/orders/subscription/{name}"
    assert httpx.put(url, json="earliest").status_code < 300


def _died(number: int) -> dict[str, str]:
    return {
        "REAL_TOPIC": "persistent://public/default/orders",
        "REAL_SUBSCRIPTION": "billing",
        "ORIGIN_MESSAGE_ID": f"2:{number}",
        "DEATH_REASON": "Expired" if number % 3 == 0 else "MaxRedeliveries",
        "DEATH_ERROR": f"ValueError: no amount in order {number} {EVIL}",
        "DEATH_CONSUMER": "worker-1",
        "RECONSUMETIMES": "3",
    }


@pytest.fixture(scope="package")
def console_url(broker: testing.TestBroker) -> Iterator[str]:
    """A console of a cluster with summaries."""
    with summarized(broker.http_url) as url, console(url) as running:
        yield running.url


@pytest.fixture(scope="package")
def plain_url(broker: testing.TestBroker) -> Iterator[str]:
    """A console of a broker without summaries of its own, or with few topics."""
    with console(broker.http_url) as running:
        yield running.url


class Secured:
    def __init__(self, broker: testing.TestBroker, console: RunningConsole) -> None:
        self.broker = broker
        self.url = console.url


@pytest.fixture(scope="package")
def secure_url() -> Iterator[Secured]:
    with testing.broker(secure=True) as broker:
        words = ("--trust-certs", broker.trust_certs_file)
        with console(broker.http_url, words) as running:
            yield Secured(broker, running)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make setup")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield running
        running.close()


class Shown:
    """A page, and what went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        page.on("console", lambda message: self._heard(message))
        page.on("request", lambda request: self._asked(request.url))

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "status of 401" not in message.text:
            self.faults.append(message.text)

    def _asked(self, url: str) -> None:
        own = self.url.partition("://")[2]
        if not url.partition("://")[2].startswith(own) and not url.startswith("data:"):
            self.faults.append(f"asked for {url}")

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path)
        self.loaded()
        return self.page

    def loaded(self) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(".loading")).to_have_count(0, timeout=15_000)

    def is_unharmed(self) -> None:
        """Script of messages did not run, and nothing was asked of another host."""
        assert self.page.evaluate("window.hacked") is None
        assert self.faults == []


@pytest.fixture
def shown(browser: Browser, console_url: str) -> Iterator[Shown]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, timezone_id="Europe/Berlin")
    found = Shown(context.new_page(), console_url)
    yield found
    found.is_unharmed()
    context.close()
