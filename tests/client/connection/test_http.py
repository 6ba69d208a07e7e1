"""The HTTP transport, blocking and for asyncio: addresses, tokens, redirects, time limits and error statuses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from magnetar.client import Security
from magnetar.client.connection import http_redirect
from magnetar.client.connection.http import (
    REASON_LENGTH_MAX,
    AsyncHttpTransport,
    HttpTransport,
    check_status,
    reason_of,
)
from magnetar.client.errors import (
    Conflict,
    ConnectionLost,
    NotAuthenticated,
    NotSupported,
    ServerFailure,
    Timeout,
    Unreachable,
)
from tests.client.fake_web import fake_web


class Awaited:
    """The transport for asyncio with blocking calls, so that both pass the same tests."""

    def __init__(self, urls: list[str], security: Security | None, timeout_s: float) -> None:
        self._arguments = (urls, security, timeout_s)

    def request(self, method: str, path: str, what: str) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = AsyncHttpTransport(*self._arguments)
            try:
                return await transport.request(method, path, what)
            finally:
                await transport.close()

        return asyncio.run(send())


@pytest.fixture(params=[HttpTransport, Awaited])
def transport(request: pytest.FixtureRequest) -> type[HttpTransport]:
    kind: type[HttpTransport] = request.param
    return kind


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_the_next_address_is_tried(transport: type[HttpTransport]) -> None:
    with closed_port() as closed, fake_web({"a": 1}) as web:
        assert transport([closed, web.url], None, 5).request("GET", "/x", "asking").json() == {"a": 1}
        assert web.received == [("/x", None)]


def test_all_addresses_are_named_when_none_can_be_reached(transport: type[HttpTransport]) -> None:
    with closed_port() as one, closed_port() as two, pytest.raises(Unreachable) as caught:
        transport([one, two], None, 5).request("GET", "/", "asking")
    assert f"cannot connect to {one}: " in caught.value.text and f"cannot connect to {two}: " in caught.value.text


def test_a_token_file_is_read_for_each_request(transport: type[HttpTransport], tmp_path: Path) -> None:
    file = tmp_path / "token"
    with fake_web({}) as web:
        file.write_text("first")
        client = transport([web.url], Security(token_file=file), 5)
        client.request("GET", "/", "asking")
        file.write_text("second")
        client.request("GET", "/", "asking")
        file.unlink()
        with pytest.raises(ConnectionLost, match="cannot be read"):
            client.request("GET", "/", "asking")
        assert [token for _, token in web.received] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("by", ["token", "token_file"])
def test_a_redirect_takes_a_token_only_to_addresses_that_were_given(
    transport: type[HttpTransport], tmp_path: Path, by: str
) -> None:
    file = tmp_path / "token"
    file.write_text("canary")
    security = Security(token="canary") if by == "token" else Security(token_file=file)
    with fake_web({}) as other, fake_web({}, status=307, headers={"Location": other.url + "{path}"}) as web:
        with pytest.raises(NotSupported, match="credentials are not sent there") as refusal:
            transport([web.url], security, 5).request("GET", "/x?secret=1", "asking")
        assert other.received == [] and "canary" not in refusal.value.text and "secret" not in refusal.value.text
        assert transport([web.url, other.url], security, 5).request("GET", "/x", "asking").status_code == 200
        assert other.received == [("/x", "Bearer canary")]


@pytest.mark.parametrize(
    ("location", "is_followed"),
    [
        ("/x?a=1", True),
        ("/x?a=1&authoritative=true", True),
        ("/x", False),
        ("/x?a=2", False),
        ("/x?a=1&force=true", False),
        ("/y?a=1", False),
        ("/x/../y?a=1", False),
    ],
)
def test_a_redirect_to_an_address_that_was_not_given_keeps_the_request(
    transport: type[HttpTransport], location: str, is_followed: bool
) -> None:
    """A remote cluster had any request of its choice sent to the broker's own port."""
    with fake_web({}) as other, fake_web({}, status=307, headers={"Location": other.url + location}) as web:
        client = transport([web.url], None, 5)
        if is_followed:
            assert client.request("GET", "/x?a=1", "asking").status_code == 200
            assert other.received == [(location, None)]
            return
        with pytest.raises(NotSupported, match="which is not an address that was given, with another path") as refusal:
            client.request("GET", "/x?a=1", "asking")
        assert other.received == [] and "a=1" not in refusal.value.text


def test_all_redirects_of_a_request_are_compared_with_what_was_asked(transport: type[HttpTransport]) -> None:
    with (
        fake_web({}) as last,
        fake_web({}, status=307, headers={"Location": last.url + "/y"}) as second,
        fake_web({}, status=307, headers={"Location": second.url + "{path}"}) as first,
    ):
        with pytest.raises(NotSupported, match=f"redirects to {last.url}, .* with another path"):
            transport([first.url], None, 5).request("GET", "/x", "asking")
        assert len(second.received) == 1 and last.received == []


def test_a_redirect_within_the_addresses_that_were_given_goes_to_any_path(transport: type[HttpTransport]) -> None:
    with fake_web({}) as other, fake_web({}, status=307, headers={"Location": other.url + "/y"}) as web:
        assert transport([web.url, other.url], None, 5).request("GET", "/x", "asking").status_code == 200
        assert other.received == [("/y", None)]


def test_a_redirect_from_elsewhere_does_not_lead_to_this_machine(
    transport: type[HttpTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_redirect, "leads_to_this_machine", lambda host: host == "localhost")
    with fake_web({}) as other:
        here = other.url.replace("127.0.0.1", "localhost")
        with fake_web({}, status=307, headers={"Location": here + "{path}"}) as web:
            with pytest.raises(NotSupported, match="which is not an address that was given, but one of this machine"):
                transport([web.url], None, 5).request("GET", "/x", "asking")
            assert other.received == []
            monkeypatch.setattr(http_redirect, "leads_to_this_machine", lambda host: True)
            assert transport([web.url], None, 5).request("GET", "/x", "asking").status_code == 200


def test_redirects_are_limited_and_keep_the_scheme(transport: type[HttpTransport]) -> None:
    loop, other = {"Location": "{path}"}, {"Location": "https://127.0.0.1:1/x"}
    with (
        fake_web({}, status=307, headers=loop) as web,
        pytest.raises(ServerFailure, match=r"asking at .* was redirected more than 20 times"),
    ):
        transport([web.url], None, 5).request("GET", "/x", "asking")
    with (
        fake_web({}, status=307, headers=other) as web,
        pytest.raises(NotSupported, match="both have to be encrypted, or neither"),
    ):
        transport([web.url], None, 5).request("GET", "/x", "asking")


def test_a_server_that_does_not_respond_is_a_timeout(transport: type[HttpTransport]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Timeout, match=rf"asking at {url} took longer than 0\.1 s"):
            transport([url], None, 0.1).request("GET", "/", "asking")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (httpx.Response(409, json={"reason": "it\nexists"}), "it exists"),
        (httpx.Response(409, json={}), ""),
        (httpx.Response(500, text="it is broken"), "it is broken"),
        (httpx.Response(502, html="<html>proxy</html>"), ""),
        (httpx.Response(500, text="x" * 5000), "x" * REASON_LENGTH_MAX),
    ],
)
def test_the_reason_of_an_error(response: httpx.Response, reason: str) -> None:
    assert reason_of(response) == reason


@pytest.mark.parametrize(("status", "error"), [(401, NotAuthenticated), (409, Conflict), (500, ServerFailure)])
def test_an_error_status_has_its_class(status: int, error: type[Exception]) -> None:
    with (
        fake_web({"reason": "no"}, status=status) as web,
        HttpTransport([web.url], None, 5) as http,
        pytest.raises(error, match=r"^asking: no$"),
    ):
        check_status(http.request("GET", "/", "asking"), "asking")
