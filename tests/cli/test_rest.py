"""HTTP requests: addresses, encoding, and every failure of a broker as one line on stderr."""

from __future__ import annotations

import socket
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.main import main
from magnetar.cli.rest import NoResponse, Rest, checked_url, path_of
from magnetar.testing import TestBroker
from tests.cli.conftest import CommandLine, Recorder


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1))
def test_names_in_a_path_round_trip(segments: list[str]) -> None:
    path = path_of(tuple(segments))
    assert path.isascii()
    assert not set(path) & set("?# ")
    parts = path.split("/")[1:]
    assert not {".", ".."} & set(parts)
    assert [unquote(part) for part in parts] == segments


def test_unusual_names_reach_the_broker(cli: CommandLine) -> None:
    name = "acme shop/ä?#%2F+&;=.."
    topic = "public/default/a b+c%2Fd?e#ü.."
    cli.ok("topics", "create", topic)
    assert f"persistent://{topic}" in cli.json("topics", "list", "public/default")
    for subscription in (name, ".", ".."):
        cli.ok("subscriptions", "create", topic, subscription)
    assert [one["name"] for one in cli.json("subscriptions", "list", topic)] == sorted([name, ".", ".."])
    cli.ok("topics", "delete", topic, "--force")


def test_a_port_with_tls_where_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    """`magnetar standalone` has no such port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert main(["tenants", "list", "--url", f"https://127.0.0.1:{taken.getsockname()[1]}"]) == 1
    assert "magnetar standalone" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8080", "--url localhost:8080 is not of the form http://host:port"),
        ("http://", "--url http:// is not of the form http://host:port"),
        ("", "--url  is not of the form http://host:port"),
        ("http://h:99999", "--url http://h:99999 has a port outside 0 to 65535"),
        (
            "pulsar://localhost:6650",
            "--url pulsar://localhost:6650 is a binary address; expected an HTTP address such as http://localhost:8080",
        ),
    ],
)
def test_an_invalid_address_is_a_usage_error(capsys: pytest.CaptureFixture[str], url: str, message: str) -> None:
    assert main(["tenants", "list", "--url", url]) == 2
    assert capsys.readouterr() == ("", f"magnetar: {message}\n")


def test_a_trailing_slash_in_the_address_is_harmless(running: TestBroker) -> None:
    assert checked_url("http://h:1/") == "http://h:1"
    with Rest(running.http_url + "/") as rest:
        assert "public" in rest.get("tenants")


def test_a_port_where_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["tenants", "list", "--url", url]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"magnetar: cannot connect to {url}: ")
    assert err.count("start a broker with `magnetar standalone`") == 1
    assert err.count("\n") == 1


def test_the_binary_port_is_not_http(running: TestBroker) -> None:
    with Rest(running.service_url.replace("pulsar://", "http://")) as rest, pytest.raises(NoResponse) as caught:
        rest.get("tenants")
    assert "it may be the binary port" in str(caught.value)


def test_the_environment_variable_sets_the_address(
    running: TestBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAGNETAR_URL", running.http_url)
    assert main(["tenants", "list"]) == 0
    assert "public\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "kind", "body", "message"),
    [
        (409, "application/json", b'{"reason": "This topic\\nalready exists"}', "This topic already exists (HTTP 409)"),
        (409, "application/json", b"{}", "Conflict for GET /admin/v2/tenants (HTTP 409)"),
        (500, "text/plain", b"it is\nbroken", "it is broken (HTTP 500)"),
        (502, "text/html", b"<html>proxy</html>", "Bad Gateway for GET /admin/v2/tenants (HTTP 502)"),
        (503, "", b"", "Service Unavailable for GET /admin/v2/tenants (HTTP 503)"),
        (500, "application/json", b"{", "{ (HTTP 500)"),
    ],
)
def test_an_error_shows_the_brokers_reason(
    recorder: Recorder, recorded: CommandLine, status: int, kind: str, body: bytes, message: str
) -> None:
    recorder.will_answer("GET", "/admin/v2/tenants", body, status=status, kind=kind)
    assert recorded.fails("tenants", "list") == message


def test_a_malformed_response(recorder: Recorder, recorded: CommandLine) -> None:
    recorder.will_answer("GET", "/admin/v2/tenants", b"[")
    assert "returned invalid JSON" in recorded.fails("tenants", "list")


def test_a_redirect_to_another_scheme_is_not_followed(recorder: Recorder, recorded: CommandLine) -> None:
    """For http:// no certificates are loaded, so https:// must not be used silently."""
    recorder.will_redirect("GET", "/admin/v2/tenants", "https://127.0.0.1:1/admin/v2/tenants")
    message = recorded.fails("tenants", "list")
    assert message.endswith(": both have to be encrypted, or neither; give that address instead")


def test_a_redirect_to_the_owner_of_a_topic_is_followed(
    running: TestBroker, recorder: Recorder, recorded: CommandLine
) -> None:
    """A cluster redirects requests about a topic to its owner, with method and body."""
    path = "/admin/v2/persistent/public/default/moved/partitions"
    recorder.will_redirect("PUT", path, running.http_url + path)
    recorded.ok("topics", "create-partitioned-topic", "moved", "-p", "2")
    with Rest(running.http_url) as rest:
        assert rest.get("persistent", "public", "default", "moved", "partitions")["partitions"] == 2
