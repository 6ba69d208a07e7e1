"""Following what is declared: by a broker that comes and goes, and by a list of topics."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

import magnetar.testing
from magnetar.client import Security
from magnetar.client.connection.http import HttpTransport
from magnetar.client.errors import ConnectionLost, InvalidArgument
from magnetar.errors import InvalidName
from magnetar.pipelines import declared_sources
from magnetar.pipelines.declared_sources import (
    DeclaringSource,
    ListedSource,
    Selection,
    SourceFailed,
)
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of
from magnetar.replication.model import ClusterAddress, Declaration, Mismatch, Report, Reports, State
from tests.client.fake_web import fake_web

WAIT_S = 15.0


@pytest.fixture
def broker() -> Iterator[magnetar.testing.TestBroker]:
    with magnetar.testing.broker(clusterName="a") as running:
        yield running


def ask(broker: magnetar.testing.TestBroker, method: str, path: str, body: object = None) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.request(method, f"{broker.http_url}/admin/v2/{path}", json=body, headers=headers, trust_env=False)
    assert answer.is_success, answer.text


def replicate(broker: magnetar.testing.TestBroker, topic: str) -> None:
    ask(broker, "PUT", "clusters/b", {"serviceUrl": "http://127.0.0.1:9", "brokerServiceUrl": "pulsar://127.0.0.1:9"})
    ask(broker, "POST", "tenants/public", {"allowedClusters": ["a", "b"], "adminRoles": []})
    ask(broker, "POST", "namespaces/public/default/replication", ["a", "b"])
    ask(broker, "PUT", f"persistent/public/default/{topic}")


def test_gr1_a_declaration_follows_every_change_and_reports_arrive(broker: magnetar.testing.TestBroker) -> None:
    told: queue.SimpleQueue[Declaration] = queue.SimpleQueue()
    source = DeclaringSource(broker.http_url)
    assert source.endpoint.service_url == broker.service_url
    source.follow(told.put)
    first = told.get(timeout=WAIT_S)
    assert (first.cluster, first.topics) == ("a", [])
    assert source.endpoint.name == "a"
    replicate(broker, "orders")
    while not (topics := told.get(timeout=WAIT_S).topics):
        pass
    assert [(row.topic, row.partitions, row.remote) for row in topics] == [
        ("persistent://public/default/orders", 0, "b")
    ]
    assert source.report(Reports("p", True, [Report(topics[0].topic, "b", State.WAITING, "why")]))
    url = f"{broker.http_url}/admin/v2/replication/status"
    (status,) = httpx.get(url, trust_env=False).json()
    assert (status["state"], status["reason"]) == ("waiting-for-remote-topic", "why")
    source.stop()


def test_a_broker_that_is_away_is_asked_again_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "magnetar.pipelines.declared_sources")
    answers = iter([ConnectionLost("away")] * 3)
    told: queue.SimpleQueue[Declaration] = queue.SimpleQueue()
    with magnetar.testing.broker(clusterName="a") as broker:
        really = declared_sources._ask

        def ask_or_fail(http: HttpTransport, version: str) -> Declaration | None:
            for error in answers:
                raise error
            return really(http, version)

        monkeypatch.setattr(declared_sources, "_ask", ask_or_fail)
        monkeypatch.setattr(declared_sources, "_PAUSE_FIRST_S", 0.01)
        source = DeclaringSource(broker.http_url, service_url=broker.service_url)
        source.follow(told.put)
        assert told.get(timeout=WAIT_S).cluster == "a"
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 2 and "away" in said[0] and said[1].endswith("is back"), "once, not for every try"
        source.stop()


def test_a_source_that_does_not_answer_at_the_start_is_an_error() -> None:
    with pytest.raises(SourceFailed, match=r"http://127\.0\.0\.1:9 does not say"):
        DeclaringSource("http://127.0.0.1:9")


def test_gr7_a_list_has_topics_and_namespaces_and_sees_them_grow(
    broker: magnetar.testing.TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_sources, "_REFRESH_S", 0.05)
    ask(broker, "PUT", "namespaces/public/all")
    ask(broker, "PUT", "persistent/public/all/grown/partitions", 2)
    remotes = {"b": ClusterAddress(broker_service_url="pulsar://b:6650")}
    selection = Selection(words=("public/all", "named", "absent"), remotes=remotes)
    source = ListedSource(ClusterEndpoint("a", broker.service_url, broker.http_url), selection)
    told: queue.SimpleQueue[Declaration] = queue.SimpleQueue()
    source.follow(told.put)

    def rows() -> dict[str, tuple[int, int]]:
        return {
            row.topic.rpartition("/")[2]: (row.partitions, row.grown_from) for row in told.get(timeout=WAIT_S).topics
        }

    assert rows() == {"grown": (2, 0)}
    ask(broker, "PUT", "persistent/public/default/named")
    while (found := rows()) != {"grown": (2, 0), "named": (0, 0)}:
        assert found == {"grown": (2, 0)}
    ask(broker, "POST", "persistent/public/all/grown/partitions", 3)
    while (found := rows())["grown"] != (3, 2):
        assert found["grown"] == (2, 0)
    assert source.report(Reports("p", True, []))
    source.stop()


def test_gr7_a_list_that_can_never_be_asked_for_is_an_error_at_once() -> None:
    endpoint = ClusterEndpoint("a", "pulsar://127.0.0.1:9", "nonsense")
    source = ListedSource(endpoint, Selection(words=("public/default",), remotes={}))
    with pytest.raises(InvalidArgument, match="nonsense"):
        source.follow(lambda _: None)


def test_a_token_file_is_read_again_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with fake_web({}) as web, HttpTransport([web.url], Security(token_file=file), 5) as http:
        http.request("GET", "/", "asking")
        file.write_text("second")
        http.request("GET", "/", "asking")
        file.unlink()
        with pytest.raises(ConnectionLost, match="cannot be read"):
            http.request("GET", "/", "asking")
        assert [authorization for _, authorization in web.heard] == ["Bearer first", "Bearer second"]


def test_nothing_that_is_declared_shows_a_token() -> None:
    address = ClusterAddress(broker_service_url="pulsar://b:1", authentication_plugin="token")
    secret = msgspec.structs.replace(address, authentication_parameters="token:s3cret")
    declaration = Declaration("1", "a", True, Mismatch.PIP370, {"b": secret}, [])
    for shown in (
        repr(secret),
        str(declaration),
        f"{Selection(words=(), remotes={'b': secret})}",
        repr(endpoint_of("b", secret)),
    ):
        assert "pulsar://b:1" in shown and "s3cret" not in shown
    assert "file:///run/token" in repr(msgspec.structs.replace(address, authentication_parameters="file:///run/token"))


@pytest.mark.parametrize("word", ["bad domain://x", "public/", "a/b/c/d"])
def test_a_word_that_is_no_name_is_refused(word: str) -> None:
    with pytest.raises(InvalidName):
        Selection(words=(word,), remotes={})
