"""`magnetar pipelines`: the source selected by its options, and invalid options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.cli.main import main
from magnetar.pipelines import service
from magnetar.pipelines.output import Output
from magnetar.pipelines.replicate.sources import DeclaringSource, ListedSource, ReplicationSource
from magnetar.pipelines.replicate.verb import Replicate
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import Mask, MaskKind, Mismatch, Refusal, RoutePolicy


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[ReplicationSource, dict[str, Any]]]]:
    """The arguments of the run that would have started; what it opened is closed at the end of the test."""
    runs: list[tuple[ReplicationSource, dict[str, Any]]] = []
    opened: list[Replicate] = []

    def run(verbs: list[Replicate], **options: Any) -> int:
        verb = verbs[0]  # those of a broker have a second one, which needs no more than this
        opened.append(verb)
        verb.open()
        assert verb._source is not None
        runs.append((verb._source, {**options, "retry_max_s": verb._retry_max_s}))
        return 0

    monkeypatch.setattr(service, "run", run)
    monkeypatch.setenv("SECRET", "secret")
    monkeypatch.setenv("REMOTE", "t0k")
    yield runs
    for verb in opened:
        verb.stop()


def test_gr1_the_declaration_of_a_broker(started: list[tuple[ReplicationSource, dict[str, Any]]]) -> None:
    words = ["--url", "http://broker:8080/", "--service-url", "pulsar://broker:6650", "--master", "local[3]"]
    assert main(["pipelines", *words, "--token", "env:SECRET", "--log-level", "error", "--log-format", "json"]) == 0
    ((source, options),) = started
    assert isinstance(source, DeclaringSource)
    assert (source.endpoint.service_url, source.endpoint.admin_url) == ("pulsar://broker:6650", "http://broker:8080")
    assert source.endpoint.security is not None and source.endpoint.security.token == "secret"
    assert options == {"master": "local[3]", "retry_max_s": 10.0, "output": Output("error", "json")}


def test_gr7_from_any_cluster_to_others(started: list[tuple[ReplicationSource, dict[str, Any]]]) -> None:
    words = (
        "pipelines --from pulsar://a:6650 --admin-from http://a:8080 --cluster a --to b=pulsar://b:6650,http://b:8080"
        " --to c=pulsar+ssl://c:6651 --topics acme/shop --topics orders --mask email=null --rename"
        " {tenant}/{namespace}/{topic}-eu --refused park --no-create-topics --partition-mismatch stop"
        " --remote-token env:REMOTE --retry-max 5"
    )
    assert main([*words.split(), "--where", "__key = 'x'"]) == 0
    ((source, options),) = started
    assert isinstance(source, ListedSource)
    assert source.endpoint == ClusterEndpoint("a", "pulsar://a:6650", "http://a:8080")
    assert options == {"master": None, "retry_max_s": 5.0, "output": Output()}
    selection = source._selection
    assert (selection.namespaces, selection.topics) == (["acme/shop"], ["persistent://public/default/orders"])
    assert selection.policy == RoutePolicy(
        where="__key = 'x'",
        masks=(Mask("email", MaskKind.NULL),),
        rename="{tenant}/{namespace}/{topic}-eu",
        refused=Refusal.PARK,
    )
    assert (selection.creates_topics, selection.mismatch) == (False, Mismatch.STOP)
    b, c = selection.remotes["b"], selection.remotes["c"]
    assert (b.broker_service_url, b.service_url, b.authentication_parameters) == (
        "pulsar://b:6650",
        "http://b:8080",
        "t0k",
    )
    assert (c.broker_service_url_tls, c.broker_client_tls_enabled) == ("pulsar+ssl://c:6651", True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--to b=pulsar://b:6650", "--to needs --from"),
        ("--topics orders", "--topics needs --from"),
        ("--refused park", "--refused needs --from"),
        ("--no-create-topics", "--no-create-topics needs --from"),
        ("--partition-mismatch stop", "--partition-mismatch needs --from"),
        ("--cluster a", "--cluster needs --from"),
        ("--from pulsar://a:6650 --service-url pulsar://a:6650", "--service-url cannot be combined with --from"),
        ("--remote-trust-certs ca.pem", "--remote-trust-certs needs --from"),
        ("--where x --mask a", "--where needs --from"),
        (
            "--from pulsar://a:6650 --topics t --to b=pulsar://b:1 --remote-trust-certs ca.pem",
            "--remote-trust-certs needs a --to with pulsar+ssl://",
        ),
        ("--from pulsar://a:6650", "--from needs at least one --to and one --topics"),
        ("--from pulsar://a:6650 --topics t --to b", "--to b is not of the form NAME=pulsar://host:port"),
        ("--from pulsar://a:6650 --topics t --to b=pulsar://b:1 --mask a=upside", "is not of the form field"),
        ("--from pulsar://a:6650 --topics t --to b=pulsar://b:1 --rename {x}", "unknown field {x}"),
        ("--url pulsar://b:6650", "is a binary address"),
        ("--retry-max 0", "retry-max"),
        ("--token secret", "--token shows a secret to every user of this machine"),
        ("--from pulsar://a:1 --topics t --to b=pulsar://b:1 --remote-token s", "--remote-token shows a secret to"),
        ("--from pulsar://a:6650 --profile a", "--profile has an address of its own"),
    ],
)
def test_invalid_options(
    words: str, reason: str, started: list[tuple[ReplicationSource, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipelines", *words.split()]) != 0
    assert reason in capsys.readouterr().err
    assert started == []
