"""Where a request may be sent although its address was not given."""

from __future__ import annotations

import socket

import pytest

from magnetar.client.connection.http_redirect import leads_to_this_machine, why_not


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "127.8.9.10", "0", "0.0.0.0", "::", "::1", "0:0:0:0:0:0:0:1",
     "::ffff:127.0.0.1", "localhost", "LocalHost"],
)  # fmt: skip
def test_every_spelling_of_this_machine_is_known(host: str) -> None:
    assert leads_to_this_machine(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "8.8.8.8", "2001:db8::1", "127.0.0.1.", "", "a..b", "x" * 300, "a\0b"])
def test_other_hosts_and_what_is_none_are_not(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def resolved_here(name: str, *words: object) -> object:
        """No test asks a server of names."""
        return resolve(name, None, flags=socket.AI_NUMERICHOST)

    monkeypatch.setattr(socket, "getaddrinfo", resolved_here)
    assert not leads_to_this_machine(host)


def test_a_name_is_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", ("10.0.0.7", 0)), (2, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words: found)
    assert leads_to_this_machine("rebound.example")
    del found[1]
    assert not leads_to_this_machine("rebound.example")


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        ("/a/b", "/a/b"),
        ("/a%20b", "/a b"),
        ("/a%2fb", "/a%2Fb"),
        ("/a?x=1&y=2", "/a?x=1&y=2"),
        ("/a?x=1&authoritative=false", "/a?authoritative=true&x=1"),
        ("/a?x=", "/a?x="),
    ],
)
def test_the_same_request_is_sent_elsewhere(asked: str, target: str) -> None:
    assert why_not("http://10.0.0.1:1" + asked, "http://10.0.0.2:2" + target) == ""


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        ("/a/b", "/a/b/"),
        ("/a/b", "/a%2Fb"),
        ("/a%2Fb", "/a/b"),
        ("/a/%2E%2E", "/a/.."),
        ("/a", "/b"),
        ("/a", "/a?x=1"),
        ("/a?x=1", "/a"),
        ("/a?x=1", "/a?x=1&x=2"),
        ("/a?x=", "/a"),
        ("/a", "/a?x"),
    ],
)
def test_another_request_is_not(asked: str, target: str) -> None:
    assert why_not("http://10.0.0.1:1" + asked, "http://10.0.0.2:2" + target) == "with another path or query"


def test_this_machine_sends_requests_to_itself() -> None:
    assert why_not("http://127.0.0.2:1/a", "http://localhost:2/a") == ""
    assert why_not("http://10.0.0.1:1/a", "http://127.1:2/a") == "but one of this machine"
