"""A declared pipeline, the broker that starts a process for it, and that process with its own Spark; all secured."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.client import EARLIEST, Client, Security
from magnetar.client.errors import Timeout
from magnetar.deadletter.properties import ORIGIN_MESSAGE_ID, REAL_SUBSCRIPTION, REAL_TOPIC
from tests.crash.killable import KillableBroker

WAIT_S = 120.0
ORDERS = "persistent://public/default/orders"
LETTERS = 10


@pytest.mark.timeout(300)
def test_sp3_sp7_the_broker_starts_a_process_that_works_with_the_rights_of_the_author(tmp_path: Path) -> None:
    secure = tmp_path / "secure"
    broker = KillableBroker(tmp_path / "data", ("pipelinesMaster=local[2]", "pipelinesLingerSeconds=0"))
    broker.options = ["--secure", str(secure)]
    broker.start()
    try:
        token = (secure / "admin.token").read_text().strip()
        security = Security(token=token, trust_certs_file=str(secure / "ca.pem"))
        with (
            Client(broker.service_url, security=security) as client,
            httpx.Client(
                base_url=f"{broker.http_url}/admin/v2/",
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                verify=ssl.create_default_context(cafile=str(secure / "ca.pem")),
                timeout=10,
                trust_env=False,
            ) as http,
        ):
            _publish_letters(client, http)
            path = "pipelines/public/default/fix"
            declared = http.put(path, json={"verb": "redrive", "spec": {"sources": ["orders-s-DLQ"]}})
            assert declared.is_success, declared.text
            assert (declared.json()["process"], declared.json()["state"]) == ("starting", "waiting")
            found = _wait_for_end(http, path)
            assert (found["state"], found["reason"], found["process"]) == ("done", "", "reporting")
            assert found["progress"]["done"] == found["progress"]["total"] == LETTERS
            assert _messages(client) == LETTERS
            assert [(one["run"], one["state"]) for one in http.get(f"{path}/runs").json()] == [(1, "done")]
            metrics = http.get(f"{broker.http_url}/metrics/").text
            assert 'pipeline="fix",verb="redrive",state="done"} 1' in metrics
    finally:
        broker.kill()


def _publish_letters(client: Client, http: httpx.Client) -> None:
    created = http.put("persistent/public/default/orders/subscription/s", content=b'"earliest"')
    assert created.is_success, created.text
    with client.producer("orders-s-DLQ") as producer:
        for number in range(LETTERS):
            origin = {REAL_TOPIC: ORDERS, REAL_SUBSCRIPTION: "s", ORIGIN_MESSAGE_ID: f"1:{number}:-1"}
            producer.send(b"%d" % number, properties=origin)


def _wait_for_end(http: httpx.Client, path: str) -> dict[str, Any]:
    deadline_s = time.monotonic() + WAIT_S
    while True:
        found: dict[str, Any] = http.get(path).json()
        if found["state"] in ("done", "failed", "cancelled"):
            return found
        assert time.monotonic() < deadline_s, found
        time.sleep(0.2)


def _messages(client: Client) -> int:
    count = 0
    with client.reader("orders", EARLIEST) as reader:
        try:
            while True:
                reader.read(2)
                count += 1
        except Timeout:
            return count
