"""Each page in a real browser: what it shows, what can be done there, and that nothing of a message is markup."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Browser, expect

from magnetar import testing
from tests.console.conftest import LETTERS, Shown
from tests.console.processes import PICTURES, TAKES_PICTURES
from tests.console.summaries import EVIL

ORDERS = "/topics/persistent/public/default/orders"
DEAD_LETTERS = "/dead-letters/persistent/public/default/orders-billing-DLQ"


def test_the_overview_has_every_number_with_its_unit(shown: Shown) -> None:
    page = shown.open("/")
    tiles = page.locator(".tiles")
    for text in ("10,000", "18,250 msg/s", "8.7 MiB/s", "4,210 messages", "48.8 GiB", "1 d 2 h"):
        expect(tiles).to_contain_text(text)
    expect(page.locator(".attention")).to_contain_text(EVIL)
    expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
    page.get_by_role("link", name="public/default", exact=True).click()
    expect(page).to_have_url(re.compile(r"/topics\?namespace=public%2Fdefault"))


def test_topics_are_searched_sorted_and_paged(shown: Shown) -> None:
    page = shown.open("/topics")
    expect(page.locator(".paging")).to_contain_text("1 to 50 of 10,000 topics")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next").click()
    shown.loaded()
    expect(page.locator(".paging")).to_contain_text("51 to 100 of 10,000 topics")
    page.get_by_role("link", name="Sort by Backlog").click()
    shown.loaded()
    expect(page.locator("tbody tr").first).to_contain_text("sensor-09999")
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Backlog")
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.keyboard.press("Enter")
    shown.loaded()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("public/default/orders")


def test_a_search_without_a_result_says_what_to_do(shown: Shown) -> None:
    page = shown.open("/topics?search=%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    expect(page.locator(".empty")).to_contain_text("No topic matches")


def test_a_topic_has_its_subscriptions_and_messages(shown: Shown) -> None:
    page = shown.open(ORDERS)
    section = page.get_by_role("region", name="Subscription billing<script>alert(1)</script>")
    expect(section).to_contain_text("No consumer is connected")
    expect(section).to_contain_text("5 messages")
    messages = page.locator("article")
    expect(messages).to_have_count(5)
    expect(messages.filter(has_text="Payload: text")).to_contain_text(f"{EVIL} as text")
    json = messages.filter(has_text='"order": 0')
    expect(json).to_contain_text("Payload: JSON")
    expect(json.locator("dl")).to_have_count(2)
    for part in json.locator("dl").all():
        expect(part).to_contain_text(EVIL)
    expect(messages.filter(has_text="Payload: bytes")).to_contain_text("000000  00 07 0e")
    expect(page.locator("article").first).to_contain_text(re.compile(r"\d\d:\d\d:\d\d CES?T"))


def test_messages_are_chosen_by_position(shown: Shown) -> None:
    page = shown.open(f"{ORDERS}?from=start&position=4")
    expect(page.locator("article")).to_have_count(2)
    expect(page.locator("article").first).to_contain_text("Payload: bytes")
    page.get_by_role("link", name="Older").click()
    shown.loaded()
    expect(page.locator("article").first).to_contain_text('"order": 0')


def test_what_does_not_exist_is_said(shown: Shown) -> None:
    page = shown.open("/topics/persistent/public/default/no-such-topic")
    expect(page.get_by_role("alert").first).to_contain_text("HTTP 404")
    page = shown.open("/topics/nonsense/public/default/x")
    expect(page.locator(".empty")).to_contain_text("There is no topic of this name")


def test_dead_letters_by_reason_with_filters_and_pages(shown: Shown) -> None:
    page = shown.open("/dead-letters")
    page.get_by_role("link", name="public/default/orders-billing-DLQ").click()
    shown.loaded()
    expect(page.get_by_role("table", name="Dead letters by reason")).to_contain_text("70 messages")
    letters = page.get_by_role("table", name="Dead letters", exact=True)
    expect(letters.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next").click()
    shown.loaded()
    page.get_by_role("link", name="Next").click()
    shown.loaded()
    expect(letters.locator("tbody tr")).to_have_count(LETTERS - 100)
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page.get_by_label("Text in key").fill("order 17 ")
    page.get_by_role("button", name="Filter").click()
    shown.loaded()
    expect(letters.locator("tbody tr")).to_have_count(1)
    expect(letters).to_contain_text(EVIL)


def test_one_dead_letter(shown: Shown) -> None:
    page = shown.open(DEAD_LETTERS)
    page.get_by_role("table", name="Dead letters", exact=True).get_by_role("link").first.click()
    shown.loaded()
    expect(page.get_by_role("region", name="Error text")).to_contain_text(f"no amount in order 0 {EVIL}")
    expect(page.get_by_role("region", name="Payload", exact=True)).to_contain_text(EVIL.replace('"', ""))
    expect(page.locator("#content")).to_contain_text("REAL_TOPIC")
    expect(page.get_by_role("button", name="Redrive 1 dead letter")).to_be_visible()


def test_a_redrive_asks_with_the_number_and_wants_it_typed(shown: Shown, broker: testing.TestBroker) -> None:
    page = shown.open(DEAD_LETTERS)
    page.get_by_role("button", name=f"Redrive {LETTERS} dead letters").click()
    dialog = page.get_by_role("alertdialog")
    expect(dialog).to_contain_text(f"{LETTERS} dead letters of persistent://public/default/orders-billing-DLQ")
    dialog.get_by_role("button", name=f"Redrive {LETTERS}").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"Type {LETTERS}")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert _redrives(broker) == []
    page.get_by_role("button", name=f"Redrive {LETTERS} dead letters").click()
    page.get_by_role("alertdialog").get_by_role("textbox").fill(str(LETTERS))
    page.get_by_role("alertdialog").get_by_role("button", name=f"Redrive {LETTERS}").click()
    expect(page.get_by_role("table", name="Redrives of this topic")).to_contain_text("redrive-")
    (found,) = _redrives(broker)
    assert found["spec"]["sources"] == ["persistent://public/default/orders-billing-DLQ"]
    httpx.post(f"{broker.http_url}/admin/v2/pipelines/public/default/{found['name']}/cancel", json={})


def _redrives(broker: testing.TestBroker) -> list[dict[str, dict[str, object]]]:
    found: list[dict[str, dict[str, object]]] = httpx.get(f"{broker.http_url}/admin/v2/pipelines").json()
    return found


def test_without_summaries_there_are_lists_of_names(browser: Browser, plain_url: str) -> None:
    context = browser.new_context()
    shown = Shown(context.new_page(), plain_url)
    page = shown.open("/")
    expect(page.locator("#content")).to_contain_text("public/default")
    page = shown.open("/topics?search=orders")
    expect(page.locator("#content")).to_contain_text("public/default/orders")
    shown.is_unharmed()
    context.close()


# -- the frame


def test_the_theme_is_chosen_and_kept(shown: Shown) -> None:
    page = shown.open("/topics")
    button = page.get_by_role("button", name="Theme: Auto")
    button.click()
    page.get_by_role("button", name="Theme: Light").click()
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))
    shown.open("/")
    expect(page.get_by_role("button", name="Theme: Dark")).to_be_visible()
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))


def test_the_keyboard_reaches_everything(shown: Shown) -> None:
    page = shown.open("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('content').contains(document.activeElement)")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_navigation_of_a_phone_is_a_drawer(browser: Browser, console_url: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    shown = Shown(context.new_page(), console_url)
    page = shown.open("/")
    link = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics")
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Navigation").click()
    expect(page.locator("#menu")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Navigation").click()
    link.click()
    shown.loaded()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    context.close()


@pytest.mark.parametrize("path", ["/", "/topics", ORDERS, "/dead-letters", DEAD_LETTERS])
def test_names_for_screen_readers_and_no_sideways_scrolling(browser: Browser, console_url: str, path: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    shown = Shown(context.new_page(), console_url)
    page = shown.open(path)
    assert page.evaluate(_UNNAMED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en-US"
    context.close()


_UNNAMED = """[...document.querySelectorAll('input, select, button, a[href], table, nav, form')].filter((one) => {
  const named = one.getAttribute('aria-label') || one.textContent.trim() || one.closest('label')?.textContent.trim()
    || one.querySelector('caption');
  return !named && one.type !== 'hidden';
}).map((one) => one.outerHTML.slice(0, 200))"""


# -- pictures


@pytest.mark.skipif(not TAKES_PICTURES, reason="pictures are taken with MAGNETAR_CONSOLE_PICTURES=1")
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_pictures(browser: Browser, console_url: str, look: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    size = {"width": 390, "height": 844} if look == "phone" else {"width": 1280, "height": 800}
    scheme = "dark" if look == "dark" else "light"
    context = browser.new_context(viewport=size, color_scheme=scheme, timezone_id="Europe/Berlin")
    shown = Shown(context.new_page(), console_url)
    names = {"overview": "/", "topics": "/topics", "topic": ORDERS, "dead-letter-topics": "/dead-letters",
             "dead-letters": DEAD_LETTERS}  # fmt: skip
    for name, path in names.items():
        shown.open(path).wait_for_timeout(300)
        shown.page.screenshot(path=PICTURES / f"{name}-{look}.png")
    shown.page.get_by_role("table", name="Dead letters", exact=True).get_by_role("link").first.click()
    shown.loaded()
    shown.page.wait_for_timeout(300)
    shown.page.screenshot(path=PICTURES / f"dead-letter-{look}.png")
    context.close()
