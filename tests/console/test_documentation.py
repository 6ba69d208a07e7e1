"""The documentation beside the pages: the site of the wheel, if it has one, and nothing outside of its folder."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from magnetar import docs_site
from magnetar.console.options import ConsoleOptions
from magnetar.console.rest.admin import BrokerAccess
from magnetar.console.web.gate import Gate
from magnetar.console.web.session import Sessions

PORT = 8090


def get(path: str, **headers: str) -> httpx.Response:
    """From a console whose broker is not there."""

    async def answer() -> httpx.Response:
        options = ConsoleOptions(url="http://127.0.0.1:1", port=PORT)
        broker = BrokerAccess(options.url, options.security)
        sessions = Sessions(broker, lambda session: None)
        gate = Gate(Starlette(), options, broker, sessions, lambda page: None, lambda: True)
        transport = httpx.ASGITransport(app=gate)  # type: ignore[arg-type]
        try:
            async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}") as client:
                return await client.get(path, headers=headers)
        finally:
            await gate.close()

    with ThreadPoolExecutor(1) as thread:  # Playwright's loop may run in this one
        return thread.submit(lambda: asyncio.run(answer())).result()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    monkeypatch.setattr(docs_site, "_FOLDER", folder)
    return folder


def test_the_site_is_served_without_a_login_and_with_the_nonce_of_the_answer(site: Path) -> None:
    (site / "concepts").mkdir(parents=True)
    (site / "concepts" / "index.html").write_text("<script>search()</script>")
    (site / "index.html").write_text("<h1>Magnetar</h1>")
    assert "<h1>Magnetar</h1>" in get("/docs/").text
    found = get("/docs/concepts/")
    nonce = found.headers["content-security-policy"].partition("'nonce-")[2].partition("'")[0]
    assert nonce and found.text == f'<script nonce="{nonce}">search()</script>'
    assert get("/docs/no-such-page/").status_code == 404
    assert get("/docs/", host="evil.example").status_code == 403


def test_nothing_outside_of_its_folder_is_served(site: Path) -> None:
    site.mkdir()
    (site / "index.html").write_text("")
    (site.parent / "secret.txt").write_text("secret")
    for path in ("/docs/../secret.txt", "/docs/%2e%2e/secret.txt", "/docs/..%2fsecret.txt", "/docs//../secret.txt"):
        assert "secret" not in get(path).text, path


def test_a_package_without_the_site_has_no_such_page(site: Path) -> None:
    assert get("/docs/").status_code == 503  # as any other page: the broker is not there
