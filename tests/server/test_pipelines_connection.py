"""The connection of a pipelines process, by which the broker knows at once that it is gone."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

import httpx

from magnetar import testing

TOPIC = "persistent://public/default/t"
WITHIN_S = 1.0


def test_b10_the_state_and_the_metrics_know_within_a_second_that_the_process_is_gone() -> None:
    with (
        testing.broker(clusterName="a", pipelinesEnabled=False) as broker,
        httpx.Client(base_url=broker.http_url, trust_env=False) as http,
    ):
        urls = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
        ask(http, "PUT", "clusters/b", urls)
        ask(http, "POST", "tenants/public", {"adminRoles": [], "allowedClusters": ["a", "b"]})
        ask(http, "PUT", "persistent/public/default/t")
        ask(http, "POST", "namespaces/public/default/replication", ["a", "b"])
        row = {"topic": TOPIC, "remote": "b", "state": "running"}
        ask(http, "PUT", "replication/reports", {"pipeline": "p1", "isAll": True, "rows": [row]})
        assert state(http) == ("running", "")
        watchers = broker.server.broker.replication._watchers
        before = len(watchers)
        with waiting_process(http, "p1"):
            until(lambda: len(watchers) > before, 30)
            assert state(http) == ("running", "")
        until(lambda: state(http)[0] == "stopped", WITHIN_S)
        assert state(http)[1] == "the pipelines process is gone"
        assert 'state="stopped"} 1' in http.get("/metrics/").text
        ask(http, "PUT", "replication/reports", {"pipeline": "p2", "isAll": True, "rows": [row]})
        assert state(http) == ("running", "")


def waiting_process(http: httpx.Client, pipeline: str) -> socket.socket:
    """A connection that waits for the next declaration."""
    version = http.get("/admin/v2/replication/declaration").json()["version"]
    address = urlsplit(str(http.base_url))
    connection = socket.create_connection((address.hostname, address.port))
    path = f"/admin/v2/replication/declaration?after={version}&timeoutMs=60000&pipeline={pipeline}"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def ask(http: httpx.Client, method: str, path: str, body: object = None) -> None:
    answer = http.request(method, f"/admin/v2/{path}", json=body, headers={"Content-Type": "application/json"})
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"


def state(http: httpx.Client) -> tuple[str, str]:
    [row] = http.get("/admin/v2/replication/status").json()
    return row["state"], row["reason"]


def until(is_true: object, within_s: float) -> None:
    assert callable(is_true)
    deadline_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s"
        time.sleep(0.01)
