"""A cluster's record that names a file which cannot be opened, in a real broker."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest

import magnetar.testing

WAIT_S = 30.0


def test_a_pipe_in_a_record_holds_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    west = {
        "brokerServiceUrlTls": "pulsar+ssl://127.0.0.1:1",
        "brokerClientTlsEnabled": True,
        "brokerClientTrustCertsFilePath": str(pipe),
    }
    with (
        magnetar.testing.broker(clusterName="a") as broker,
        httpx.Client(base_url=f"{broker.http_url}/admin/v2/", trust_env=False) as rest,
    ):

        def done(method: str, path: str, body: object = None) -> str:
            answer = rest.request(method, path, json=body, headers={"Content-Type": "application/json"})
            assert answer.is_success, answer.text
            return answer.text

        done("PUT", "clusters/west", west)
        done("POST", "tenants/public", {"allowedClusters": ["a", "west"], "adminRoles": []})
        done("POST", "namespaces/public/default/replication", ["a", "west"])
        done("PUT", "persistent/public/default/t")
        deadline_s = time.monotonic() + WAIT_S
        while "it is not a regular file" not in caplog.text:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert done("GET", "brokers/health") == "ok"
        done("POST", "namespaces/public/default/replication", ["a"])
        done("POST", "tenants/public", {"allowedClusters": ["a"], "adminRoles": []})
        done("DELETE", "clusters/west")
