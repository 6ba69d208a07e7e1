"""`magnetar replication`: status, enable, disable, pause and routes, against a real broker with scripted reports."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar import testing
from magnetar.cli.argument import NamespaceName
from magnetar.cli.replication.route import parse_mask, parse_scope
from magnetar.names import TopicName
from magnetar.replication.model import Mask, MaskKind, State
from tests.cli.conftest import CommandLine, Recorder

NUMBERS = count(1)
NAMESPACE = "geo/shop"


@pytest.fixture(scope="module")
def source() -> Iterator[testing.TestBroker]:
    """Cluster a, which creates no topics in b and c: neither is running."""
    with testing.broker(
        clusterName="a", createTopicToRemoteClusterForReplication=False, pipelinesEnabled=False
    ) as running:
        yield running


@pytest.fixture
def geo(source: testing.TestBroker, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    cli = CommandLine(source.http_url, capsys)
    if "b" not in cli.json("clusters", "list"):
        for cluster in "bc":
            cli.ok("clusters", "create", cluster, "--service-url", "http://nobody:8080")
        cli.ok("tenants", "create", "geo", "--allowed-clusters", "a,b,c")
        cli.ok("namespaces", "create", NAMESPACE)
        cli.ok("namespaces", "set-clusters", NAMESPACE, "--clusters", "a,b")
    return cli


@pytest.fixture
def topic(geo: CommandLine) -> str:
    name = f"{NAMESPACE}/t{next(NUMBERS)}"
    geo.ok("topics", "create", name)
    return name


def tell(source: testing.TestBroker, topic: str, state: State, reason: str = "", error: str = "") -> None:
    """Reports like a pipelines process."""
    row = {"topic": f"persistent://{topic}", "remote": "b", "state": state, "reason": reason, "error": error}
    body = {
        "pipeline": "p",
        "isAll": False,
        "rows": [{**row, "sinceMs": 1_700_000_000_000, "errorMs": 1_700_000_009_000}],
    }
    httpx.put(f"{source.http_url}/admin/v2/replication/reports", json=body).raise_for_status()


# -- status


def test_gr4_status_shows_state_and_reason(geo: CommandLine, source: testing.TestBroker, topic: str) -> None:
    tell(source, topic, State.WAITING, "the topic does not exist in the remote cluster", "404 at nobody:8080")
    (row,) = geo.json("replication", "status", topic)
    assert (row["topic"], row["remote"]) == (f"persistent://{topic}", "b")
    assert (row["state"], row["lastError"]) == ("waiting-for-remote-topic", "404 at nobody:8080")
    head, line, _, summary = geo.ok("replication", "status", topic).splitlines()
    assert head.split() == ["TOPIC", "REMOTE", "STATE", "SINCE", "BACKLOG", "BYTES", "DELAY", "S", "MSG/S", "REASON"]
    assert line.endswith(
        "the topic does not exist in the remote cluster; last error, at 2023-11-14T22:13:29Z: 404 at nobody:8080"
    )
    assert "waiting-for-remote-topic" in line and "2023-11-14T22:13:20Z" in line
    assert summary == "0 of 1 row copying, a backlog of 0"
    tell(source, topic, State.RUNNING)
    out = geo.ok("replication", "status", topic)
    assert "404" not in out, "an error that is over is only in the JSON"
    assert out.splitlines()[-1] == "1 of 1 row copying, a backlog of 0"


def test_status_of_a_namespace_a_remote_or_everything(geo: CommandLine, topic: str) -> None:
    full = f"persistent://{topic}"
    for words in ((), (NAMESPACE,), ("--remote", "b"), (NAMESPACE, "--remote", "b")):
        assert full in [row["topic"] for row in geo.json("replication", "status", *words)]
    geo.ok("topics", "create-partitioned-topic", f"{topic}-parts", "-p", "2")
    rows = geo.json("replication", "status", f"{topic}-parts")
    assert [row["topic"] for row in rows] == [f"{full}-parts-partition-{index}" for index in range(2)]
    nothing = geo("replication", "status", "public/default")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "nothing of public/default is replicated\n")
    assert geo("replication", "status", "--remote", "c").err == "nothing is replicated to c\n"
    assert geo.json("replication", "status", "--remote", "c") == []


def test_status_of_apache_pulsar_names_the_alternative(recorder: Recorder, recorded: CommandLine) -> None:
    recorder.will_answer("GET", "/admin/v2/replication/status", {"reason": "HTTP 404 Not Found"}, 404)
    assert "magnetar topics stats" in recorded.fails("replication", "status")


# -- on and off


@pytest.mark.parametrize("of_topic", [True, False])
def test_enable_and_disable(geo: CommandLine, topic: str, of_topic: bool) -> None:
    place = topic if of_topic else NAMESPACE
    assert geo.ok("replication", "enable", place, "--to", "c").endswith("is replicated to c\n")
    assert geo.ok("replication", "enable", place, "--to", "c").endswith("is already replicated to c\n")
    assert {row["remote"] for row in geo.json("replication", "status", topic)} == {"b", "c"}
    assert geo.ok("replication", "disable", place, "--to", "c").endswith("is no longer replicated to c\n")
    assert geo.ok("replication", "disable", place, "--to", "c").endswith("is not replicated to c\n")
    assert {row["remote"] for row in geo.json("replication", "status", topic)} == {"b"}


def test_gr1_a_rejected_enable_names_what_is_missing(geo: CommandLine) -> None:
    complaint = geo.fails("replication", "enable", "public/default", "--to", "nowhere")
    assert complaint == (
        "Invalid cluster id: nowhere (HTTP 403);"
        " `magnetar clusters create nowhere --service-url URL --broker-url URL` registers it"
    )
    complaint = geo.fails("replication", "enable", "public/default", "--to", "b")
    assert complaint.startswith(
        "Cluster [b] is not in the list of allowed clusters list for tenant [public] (HTTP 403)"
    )
    assert complaint.endswith("`magnetar tenants update public --allowed-clusters …,b` allows it")


# -- pausing


def test_pause_and_resume_a_topic(geo: CommandLine, source: testing.TestBroker, topic: str) -> None:
    tell(source, topic, State.RUNNING)
    geo.ok("replication", "pause", topic, "--to", "b")
    (row,) = geo.json("replication", "status", topic)
    assert row["state"] == "paused"
    geo.ok("replication", "resume", topic, "--to", "b")
    (row,) = geo.json("replication", "status", topic)
    assert row["state"] == "running"
    assert _own_policies(geo) == [], "nothing is left of it"
    assert geo("replication", "routes").err == "no route policies: messages are copied unchanged\n"


def test_a_paused_topic_keeps_its_namespaces_route_policy(geo: CommandLine, topic: str) -> None:
    geo.ok("replication", "set-route", NAMESPACE, "--to", "b", "--mask", "email", "--refused", "park")
    try:
        geo.ok("replication", "pause", topic, "--to", "b")
        masks = [{"field": "email", "kind": "hash", "text": ""}]
        assert _policy(geo, topic) == {"masks": masks, "refused": "park", "paused": True}
        geo.ok("replication", "resume", topic, "--to", "b")
        assert _own_policies(geo) == [f"{NAMESPACE}"]
        geo.ok("replication", "pause", NAMESPACE, "--to", "b")
        geo.ok("replication", "resume", topic, "--to", "b")
        assert _policy(geo, topic) == {"masks": masks, "refused": "park"}, "its namespace is paused, and it is not"
        assert _policy(geo, NAMESPACE)["paused"]
        geo.ok("replication", "pause", NAMESPACE, "--to", "b")
        assert _policy(geo, topic)["paused"], "the last word counts"
    finally:
        geo.ok("replication", "remove-route", topic, "--to", "b")
        assert "masks email" in geo.fails("replication", "remove-route", NAMESPACE, "--to", "b")
        geo.ok("replication", "remove-route", NAMESPACE, "--to", "b", "--force")
    assert _own_policies(geo) == []


def _policy(geo: CommandLine, place: str) -> Any:
    return geo.json("replication", "get-route", place, "--to", "b")


def _own_policies(geo: CommandLine) -> list[str]:
    return ["/".join(filter(None, (one["namespace"], one["topic"]))) for one in geo.json("replication", "routes")]


# -- routes


def test_set_get_list_and_remove_a_route(geo: CommandLine, topic: str) -> None:
    assert _policy(geo, topic) == {}
    assert geo("replication", "get-route", topic, "--to", "b").err == (
        f"no route policy: messages of persistent://{topic} are copied to b unchanged\n"
    )
    words = ("--where", "price > 10", "--mask", "email", "--mask", "name=fixed:a=b", "--mask", "iban=null")
    more = ("--rename", "{tenant}/{namespace}/{topic}-eu", "--refused", "skip", "--dead-letters")
    geo.ok("replication", "set-route", topic, "--to", "b", *words, *more)
    assert "email=hash, name=fixed:a=b, iban=null\n" in geo.ok("replication", "get-route", topic, "--to", "b")
    assert _policy(geo, topic) == {
        "where": "price > 10",
        "masks": [
            {"field": "email", "kind": "hash", "text": ""},
            {"field": "name", "kind": "fixed", "text": "a=b"},
            {"field": "iban", "kind": "null", "text": ""},
        ],
        "rename": "{tenant}/{namespace}/{topic}-eu",
        "refused": "skip",
        "deadLetters": True,
    }
    (line,) = [line for line in geo.ok("replication", "routes").splitlines() if topic in line]
    assert line.split(None, 2)[2] == (
        "--where 'price > 10' --mask email=hash --mask name=fixed:a=b --mask iban=null"
        " --rename {tenant}/{namespace}/{topic}-eu --refused skip --dead-letters"
    )
    geo.ok("replication", "pause", topic, "--to", "b")
    before = _policy(geo, topic)
    assert geo.ok("replication", "set-route", topic, "--to", "b", "--refused", "park").endswith("; it is paused\n")
    assert _policy(geo, topic) == {**before, "refused": "park"}, "what is not given is kept"
    removed = ("--remove-mask", "email", "--remove-mask", "name", "--remove-where", "--remove-rename")
    geo.ok("replication", "set-route", topic, "--to", "b", *removed, "--no-dead-letters")
    masks = [{"field": "iban", "kind": "null", "text": ""}]
    assert _policy(geo, topic) == {"masks": masks, "refused": "park", "paused": True}
    assert "--force" in geo.fails("replication", "remove-route", topic, "--to", "b")
    geo.ok("replication", "remove-route", topic, "--to", "b", "--force")
    assert _policy(geo, topic) == {}


def test_b1_a_topics_route_policy_does_not_hide_its_namespaces_mask(geo: CommandLine, topic: str) -> None:
    geo.ok("replication", "set-route", NAMESPACE, "--to", "b", "--mask", "email", "--where", "n > 1")
    try:
        geo.ok("replication", "set-route", topic, "--to", "b", "--refused", "park")
        masks = [{"field": "email", "kind": "hash", "text": ""}]
        assert _policy(geo, topic) == {"masks": masks, "where": "n > 1", "refused": "park"}
        geo.ok("replication", "set-route", topic, "--to", "b", "--remove-mask", "email", "--remove-where")
        assert _policy(geo, topic) == {"refused": "park"}
        (line,) = [line for line in geo.ok("replication", "routes").splitlines() if topic in line]
        assert line.split(None, 2)[2] == "--remove-where --remove-mask email --refused park"
    finally:
        geo.ok("replication", "remove-route", topic, "--to", "b")
        geo.ok("replication", "remove-route", NAMESPACE, "--to", "b", "--force")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("set-route", NAMESPACE, "--to", "b", "--mask", "=hash"), 2, "'=hash' has no field name"),
        (("set-route", NAMESPACE, "--to", "b", "--mask", "a=md5"), 2, "'a=md5' is not of the form field, field=hash"),
        (("set-route", NAMESPACE, "--to", "b", "--where", "a = 'x"), 1, "has a quote or a comment that is not closed"),
        (("set-route", NAMESPACE, "--to", "b", "--rename", "{cluster}"), 1, "{cluster}"),
        (("set-route", NAMESPACE, "--to", "b", "--refused", "panic"), 2, "panic"),
        (("set-route", NAMESPACE, "--to", "a", "--refused", "park"), 1, "cluster a is the local cluster"),
        (("set-route", NAMESPACE, "--to", "b"), 2, "nothing to set"),
        (("set-route", NAMESPACE, "--to", "b", "--remove-mask", "a"), 1, "nothing is masked"),
        (("set-route", NAMESPACE, "--to", "b", "--rename", "x", "--remove-rename"), 2, "cannot be combined"),
        (("pause", NAMESPACE, "--to", "nowhere"), 1, "cluster nowhere does not exist"),
        (("pause", "geo/missing", "--to", "b"), 1, "`magnetar namespaces create geo/missing`"),
        (("pause", f"{NAMESPACE}/missing", "--to", "b"), 1, "missing not found"),
        (("pause", NAMESPACE), 2, "--to"),
    ],
)
def test_route_errors(geo: CommandLine, words: tuple[str, ...], code: int, complaint: str) -> None:
    assert complaint in geo.fails("replication", *words, code=code)
    assert _own_policies(geo) == []


def test_a_scope_is_a_namespace_or_a_topic() -> None:
    assert parse_scope("a/b") == NamespaceName("a", "b")
    for text in ("t", "a/b/t", "persistent://a/b/t"):
        assert isinstance(parse_scope(text), TopicName)


def test_masks() -> None:
    assert parse_mask("a.b") == Mask("a.b", MaskKind.HASH)
    assert parse_mask("a=hash") == Mask("a", MaskKind.HASH)
    assert parse_mask("a=fixed:") == Mask("a", MaskKind.FIXED, "")


# -- clusters for replication


def test_gr1_a_cluster_with_its_security(geo: CommandLine, tmp_path: Path) -> None:
    urls = ("--service-url-tls", "https://d:8443", "--broker-url-tls", "pulsar+ssl://d:6651")
    file = tmp_path / "parameters"
    file.write_text("token:secret")
    secret = ("--auth-parameters-file", str(file))
    security = ("--auth-plugin", "AuthenticationToken", *secret, "--tls-enable")
    geo.ok("clusters", "create", "d", *urls, *security, "--tls-trust-certs-filepath", "/ca.pem")
    assert "give it again" in geo.fails("clusters", "update", "d", "--tls-allow-insecure")
    geo.ok("clusters", "update", "d", "--tls-allow-insecure", *secret)
    found = geo.json("clusters", "get", "d")
    assert found["authenticationPlugin"] == "AuthenticationToken"
    assert found["authenticationParameters"] == "token:(hidden)"
    assert found["brokerClientTrustCertsFilePath"] == "/ca.pem"
    assert found["brokerClientTlsEnabled"] and found["tlsAllowInsecureConnection"]
    geo.ok("clusters", "update", "d", "--tls-disable", "--tls-verify", *secret)
    found = geo.json("clusters", "get", "d")
    assert not found["brokerClientTlsEnabled"] and not found["tlsAllowInsecureConnection"]
    geo.ok("clusters", "delete", "d")


def test_gr1_allowed_clusters_of_a_namespace(geo: CommandLine) -> None:
    geo.ok("namespaces", "create", "geo/narrow")
    geo.ok("namespaces", "set-allowed-clusters", "geo/narrow", "--clusters", "a,b")
    assert geo.json("namespaces", "get-allowed-clusters", "geo/narrow") == ["a", "b"]
    complaint = geo.fails("replication", "enable", "geo/narrow", "--to", "c")
    assert "Cluster [c] is not in the list of allowed clusters list for namespace [geo/narrow]" in complaint
