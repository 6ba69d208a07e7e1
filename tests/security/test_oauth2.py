"""OAuth 2 with client credentials: one exchange per life of a token, and a secret that only the issuer sees."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from magnetar.client.errors import InvalidArgument
from magnetar.security import oauth2
from magnetar.security.credentials import Credentials, Security
from magnetar.security.oauth2 import OAuth2

SECRET = "s3cret-of-the-client"


class Issuer:
    """An issuer on loopback: discovery, and tokens that are numbered."""

    def __init__(self, answer: dict[str, Any], status: int) -> None:
        self.forms: list[dict[str, list[str]]] = []
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(200, {"token_endpoint": f"{issuer.url}/token"})

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.forms.append(parse_qs(content))
                self._reply(status, {"access_token": f"token-{len(issuer.forms)}", **answer})

            def _reply(self, code: int, body: object) -> None:
                content = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@contextlib.contextmanager
def issuing(status: int = 200, **answer: Any) -> Iterator[Issuer]:
    issuer = Issuer(answer, status)
    thread = threading.Thread(target=issuer.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.server.shutdown()
        thread.join()
        issuer.server.server_close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "client_credentials", "client_id": "me", "client_secret": SECRET, "more": 1}))
    return file


def test_a_token_is_fetched_once_until_it_is_about_to_expire(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(oauth2.time, "monotonic", lambda: now_s)
    with issuing(expires_in=100) as issuer:
        params = {"issuerUrl": issuer.url, "privateKey": key.as_uri(), "audience": "urn:a", "scope": "s"}
        security = Security.from_pulsar({"authPluginClassName": "oauth2", "authParams": json.dumps(params)})
        assert security.credentials() == Credentials("token", b"token-1")
        now_s += 89
        assert security.authorization() == "Bearer token-1"
        now_s += 1
        assert security.authorization() == "Bearer token-2"
    assert issuer.forms[0] == {
        "grant_type": ["client_credentials"],
        "client_id": ["me"],
        "client_secret": [SECRET],
        "audience": ["urn:a"],
        "scope": ["s"],
    }
    assert SECRET not in repr(security)


def test_a_key_in_the_parameters_is_not_shown() -> None:
    with issuing() as issuer:
        params = json.dumps({"issuer_url": issuer.url, "client_id": "me", "client_secret": SECRET})
        security = Security.from_pulsar({"authPluginClassName": "AuthenticationOAuth2", "authParams": params})
        assert security.authorization() == "Bearer token-1"
        assert "private_key=(hidden)" in repr(security)


@pytest.mark.parametrize("url", ["http://issuer.example", "issuer.example", "https://", "file:///etc/passwd"])
def test_a_secret_is_sent_encrypted_or_not_at_all(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not of the form https://host"):
        OAuth2(issuer_url=url, private_key="key.json")


@contextlib.contextmanager
def slow_issuer(first: bytes, then: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """Answers with bytes that do not end."""
    stop = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(first)
                while not stop.wait(pause_s):
                    self.request.sendall(then)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stop.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: ", b""])
def test_an_issuer_that_never_ends_its_answer(key: Path, first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "TIMEOUT_S", 0.5)
    with slow_issuer(first, b"H", 0.05) as url, pytest.raises(InvalidArgument) as raised:
        OAuth2(issuer_url=url, private_key=str(key)).token()
    assert raised.value.text == f"no token from {url}: no answer within 0.5 s" or not first


def test_a_slow_issuer_holds_up_no_other_login(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "TIMEOUT_S", 3.0)
    with slow_issuer(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.05) as url, issuing() as issuer:
        slow = OAuth2(issuer_url=url, private_key=str(key))

        def wait() -> None:
            with contextlib.suppress(InvalidArgument):
                slow.token()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while slow not in oauth2._tokens or not oauth2._tokens[slow].lock.locked():
            assert thread.is_alive()
        assert OAuth2(issuer_url=issuer.url, private_key=str(key)).token() == "token-1"
        assert thread.is_alive()
        thread.join()


def test_the_answer_of_an_issuer_has_a_limit(key: Path) -> None:
    text = "openid-configuration has more than 1048576 bytes"
    with (
        slow_issuer(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536) as url,
        pytest.raises(InvalidArgument, match=text),
    ):
        OAuth2(issuer_url=url, private_key=str(key)).token()


def test_tokens_of_a_number_of_logins_are_kept(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "TOKENS_MAX", 2)
    monkeypatch.setattr(oauth2, "_tokens", type(oauth2._tokens)())
    with issuing() as issuer:
        logins = [OAuth2(issuer_url=issuer.url, private_key=str(key), scope=scope) for scope in "abac"]
        assert [login.token() for login in logins] == ["token-1", "token-2", "token-1", "token-3"]
        assert [login.scope for login in oauth2._tokens] == ["a", "c"]


@pytest.mark.parametrize(
    ("issuer", "endpoint", "text"),
    [
        ("https://issuer.example", "http://127.0.0.1:8080/token", "is on this machine, and the issuer is not"),
        ("https://issuer.example", "https://localhost/token", "is on this machine, and the issuer is not"),
        ("https://issuer.example", "http://issuer.example/token", "is not of the form https://host"),
        ("https://issuer.example", "https://tokens.example/token", ""),
        ("http://127.0.0.1:8080", "http://localhost:8081/token", ""),
    ],
)
def test_an_issuer_elsewhere_leads_to_no_port_of_this_machine(issuer: str, endpoint: str, text: str) -> None:
    expected = pytest.raises(InvalidArgument, match=text) if text else contextlib.nullcontext()
    with expected:
        OAuth2(issuer_url=issuer, private_key="key.json")._check_endpoint(endpoint)


@pytest.mark.parametrize("status", [302, 401, 500])
def test_a_refusal_has_no_secret_in_it(key: Path, status: int) -> None:
    with issuing(status, Location="http://elsewhere") as issuer:
        found = OAuth2(issuer_url=issuer.url, private_key=str(key))
        with pytest.raises(InvalidArgument, match=f"/token: HTTP {status}") as raised:
            found.token()
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "private_key is not JSON"),
        ('{"client_id": "me"}', "missing required field `client_secret`"),
        ('{"type": "other", "client_id": "a", "client_secret": "b"}', "is of type 'other'"),
    ],
)
def test_an_unusable_key_is_refused_before_anything_is_sent(tmp_path: Path, content: str | None, text: str) -> None:
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    security = Security(oauth2=OAuth2(issuer_url="https://issuer.invalid", private_key=str(file)))
    with pytest.raises(InvalidArgument) as raised:
        security.check()
    assert text in raised.value.text
