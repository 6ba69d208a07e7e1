"""Raw requests to a console: other sites cannot act, cookies and headers protect, a session has its own token."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.console.conftest import Secured

WEB_SOCKET = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
              "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


def test_every_page_has_the_headers_that_browsers_obey(plain_url: str) -> None:
    for path in ("/", "/login", "/topics", "/no-such-page", "/favicon.ico"):
        headers = httpx.get(plain_url + path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_each_script_of_a_page_has_the_nonce_of_its_answer(plain_url: str) -> None:
    first, second = httpx.get(plain_url + "/"), httpx.get(plain_url + "/")
    nonces = set(re.findall(r'<script nonce="([-\w]+)"', first.text))
    assert len(nonces) == 1
    assert nonces.pop() in first.headers["content-security-policy"]
    assert "<script>" not in first.text
    assert first.headers["content-security-policy"] != second.headers["content-security-policy"]


def test_nothing_is_loaded_from_another_host(plain_url: str) -> None:
    text = httpx.get(plain_url + "/").text
    assert re.findall(r"(?:src|href)=\"https?://", text) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8090"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_another_site_is_refused(plain_url: str, headers: dict[str, str]) -> None:
    assert httpx.get(plain_url + "/", headers=headers).status_code == 403


def test_a_link_of_another_site_may_lead_here(plain_url: str) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert httpx.get(plain_url + "/", headers=headers).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/"), ("PUT", "/topics"), ("DELETE", "/"), ("OPTIONS", "/")])
def test_other_methods_are_refused(plain_url: str, method: str, path: str) -> None:
    assert httpx.request(method, plain_url + path, headers={"origin": plain_url}).status_code == 405


def test_a_form_needs_our_origin(secure_url: Secured) -> None:
    token = {"token": secure_url.broker.token("admin")}
    assert httpx.post(f"{secure_url.url}/login", data=token).status_code == 403
    evil = httpx.post(f"{secure_url.url}/login", data=token, headers={"origin": "http://evil.example"})
    assert evil.status_code == 403
    assert "set-cookie" not in evil.headers


def test_a_session_cookie_is_for_no_script_and_no_other_site(plain_url: str) -> None:
    cookie = httpx.get(plain_url + "/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert cookie.startswith(f"magnetar_console_{plain_url.rpartition(':')[2]}=")


def test_sockets_are_for_pages_of_the_same_session(plain_url: str) -> None:
    with httpx.Client(base_url=plain_url) as own, httpx.Client(base_url=plain_url) as other:
        page = re.search(r"'client_id': '([-0-9a-f]{36})'", own.get("/").text)
        assert page is not None
        other.get("/")
        address = f"{SOCKET}&client_id={page[1]}&implicit_handshake=false"
        ours = {**WEB_SOCKET, "origin": plain_url}
        assert other.get(address, headers=ours).status_code == 403
        assert own.get(address, headers={**WEB_SOCKET, "origin": "http://evil.example"}).status_code == 403
        assert own.get(address, headers=WEB_SOCKET).status_code == 403  # without an Origin
        assert httpx.get(plain_url + address, headers=ours).status_code == 403
        assert own.get("/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 403


def test_a_login_is_needed_where_the_broker_wants_one(secure_url: Secured) -> None:
    url = secure_url.url
    for path in ("/", "/topics", "/dead-letters"):
        reply = httpx.get(url + path)
        assert reply.status_code == 303
        assert reply.headers["location"].startswith("/login?next=")
        assert "set-cookie" not in reply.headers
    wrong = httpx.post(f"{url}/login", data={"token": "ey.wrong.token"}, headers={"origin": url})
    assert wrong.status_code == 401
    assert "ey.wrong.token" not in wrong.text
    assert "The broker refuses this token" in wrong.text


def test_a_login_begins_a_new_session_and_logout_ends_it(secure_url: Secured) -> None:
    url, token = secure_url.url, secure_url.broker.token("admin")
    with httpx.Client(base_url=url, headers={"origin": url}) as client:
        seen = []
        for _ in range(2):
            reply = client.post("/login?next=%2Ftopics", data={"token": token})
            assert reply.headers["location"] == "/topics"
            assert "HttpOnly; SameSite=Strict" in reply.headers["set-cookie"]
            assert token not in reply.headers["set-cookie"]
            seen.append(reply.headers["set-cookie"].partition(";")[0])
        assert seen[0] != seen[1]
        earlier = {"cookie": seen[0]}
        assert httpx.get(url + "/", headers=earlier).status_code == 303
        page = client.get("/")
        assert page.status_code == 200
        assert token not in page.text
        assert client.post("/logout").headers["location"] == "/login"
        assert httpx.get(url + "/", headers={"cookie": seen[1]}).status_code == 303


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil.example", "/logout"])
def test_a_login_leads_to_our_own_pages_only(secure_url: Secured, target: str) -> None:
    url, token = secure_url.url, secure_url.broker.token("admin")
    query = {"next": target}
    reply = httpx.post(f"{url}/login", params=query, data={"token": token}, headers={"origin": url})
    assert reply.headers["location"] == "/"
