"""The declaration of a broker that becomes unreachable and returns."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import magnetar.testing
from magnetar.client import Security
from magnetar.client.connection.http import HttpTransport
from magnetar.client.errors import ConnectionLost
from magnetar.pipelines import declared_sources
from magnetar.pipelines.declared_sources import BrokerSource, DeclaringBroker, SourceFailed
from magnetar.replication.model import Declaration, Report, Reports, State
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
    declared: queue.SimpleQueue[Declaration] = queue.SimpleQueue()
    source = BrokerSource(DeclaringBroker(broker.http_url), "replication", Declaration)
    assert source.endpoint.service_url == broker.service_url
    source.follow(declared.put)
    first = declared.get(timeout=WAIT_S)
    assert (first.cluster, first.topics) == ("a", [])
    assert source.endpoint.name == "a"
    replicate(broker, "orders")
    while not (topics := declared.get(timeout=WAIT_S).topics):
        pass
    assert [(row.topic, row.partitions, row.remote) for row in topics] == [
        ("persistent://public/default/orders", 0, "b")
    ]
    assert source.report(Reports("p", True, [Report(topics[0].topic, "b", State.WAITING, "why")]))
    url = f"{broker.http_url}/admin/v2/replication/status"
    (status,) = httpx.get(url, trust_env=False).json()
    assert (status["state"], status["reason"]) == ("waiting-for-remote-topic", "why")
    source.stop()


def test_an_unreachable_broker_is_retried_until_it_returns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "magnetar.pipelines.declared_sources")
    answers = iter([ConnectionLost("away")] * 3)
    declared: queue.SimpleQueue[Declaration] = queue.SimpleQueue()
    with magnetar.testing.broker(clusterName="a") as broker:
        source = BrokerSource(DeclaringBroker(broker.http_url, broker.service_url), "replication", Declaration)
        request = source._request

        def request_or_fail(http: HttpTransport, version: str) -> Declaration | None:
            for error in answers:
                raise error
            return request(http, version)

        monkeypatch.setattr(source, "_request", request_or_fail)
        monkeypatch.setattr(declared_sources, "_PAUSE_FIRST_S", 0.01)
        source.follow(declared.put)
        assert declared.get(timeout=WAIT_S).cluster == "a"
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 2 and "away" in said[0] and said[1].endswith("is back"), "once, not for every try"
        source.stop()


def test_an_unreachable_source_at_the_start_is_an_error() -> None:
    with pytest.raises(SourceFailed, match=r"binary address at http://127\.0\.0\.1:9 failed"):
        BrokerSource(DeclaringBroker("http://127.0.0.1:9"), "replication", Declaration)


def test_a_token_file_is_read_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with fake_web({}) as web, HttpTransport([web.url], Security(token_file=file), 5) as http:
        http.request("GET", "/", "asking")
        file.write_text("second")
        http.request("GET", "/", "asking")
        file.unlink()
        with pytest.raises(ConnectionLost, match="cannot be read"):
            http.request("GET", "/", "asking")
        assert [authorization for _, authorization in web.received] == ["Bearer first", "Bearer second"]
