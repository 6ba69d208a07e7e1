"""An attacker's cluster, declared in a real broker, gets neither files of the machine nor the broker's own login."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import magnetar.testing
from magnetar.broker.catalog.record import ClusterRecord
from magnetar.wire import schema_pb2 as pb
from tests.client.fake_broker import FakeBroker, fake_broker

TOKEN = "eyJhbGciOiJSUzI1NiJ9.service-account-token-of-the-pod.sig"
WAIT_S = 30.0


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def replicate(broker: magnetar.testing.TestBroker, record: ClusterRecord) -> None:
    """By a record as it may be stored from before; REST refuses the file itself."""
    broker.run(lambda: broker.server.broker.catalog.save_cluster("evil", record))
    with httpx.Client(base_url=f"{broker.http_url}/admin/v2/", trust_env=False) as rest:
        for method, path, body in (
            ("POST", "tenants/public", {"allowedClusters": ["a", "evil"], "adminRoles": []}),
            ("POST", "namespaces/public/default/replication", ["a", "evil"]),
            ("PUT", "persistent/public/default/t", None),
        ):
            answer = rest.request(method, path, json=body, headers={"Content-Type": "application/json"})
            assert answer.is_success, answer.text


def sent_to(evil: FakeBroker) -> bytes:
    return b"".join(command.SerializeToString() for command in evil.received)


def test_a_file_outside_the_folders_is_sent_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret, allowed = tmp_path / "token", tmp_path / "allowed"
    secret.write_text(TOKEN)
    allowed.mkdir()
    (allowed / "link").symlink_to(secret)
    for path in (secret, allowed / "link", f"{allowed}/../token"):
        caplog.clear()
        with (
            fake_broker() as evil,
            magnetar.testing.broker(clusterName="a", brokerClientTokenFolders=str(allowed)) as broker,
        ):
            record = ClusterRecord(broker_service_url=evil.url, authentication_plugin="token")
            record.authentication_parameters = f"file://{path}"
            replicate(broker, record)
            until(lambda: "cannot create 1 topics in cluster evil" in caplog.text)
            assert TOKEN.encode() not in sent_to(evil)
        assert "is not " in caplog.text and TOKEN not in caplog.text


def test_a_file_below_a_folder_is_the_login(tmp_path: Path) -> None:
    """Shows that the test above could fail."""
    (tmp_path / "token").write_text(TOKEN)
    with (
        fake_broker() as there,
        magnetar.testing.broker(clusterName="a", brokerClientTokenFolders=str(tmp_path)) as broker,
    ):
        record = ClusterRecord(broker_service_url=there.url, authentication_plugin="token")
        record.authentication_parameters = f"file://{tmp_path}/token"
        replicate(broker, record)
        until(lambda: TOKEN.encode() in sent_to(there))


@pytest.mark.parametrize(
    ("trusted", "is_sent"),
    [("good", False), ("evil", True), ("evil=pulsar://127.0.0.1:1", False), ("evil={url}", True)],
)
def test_the_broker_s_own_credentials_go_to_clusters_that_the_settings_name(trusted: str, is_sent: bool) -> None:
    with fake_broker() as evil:
        settings = {
            "clusterName": "a",
            "brokerClientAuthenticationPlugin": "token",
            "brokerClientAuthenticationParameters": f"token:{TOKEN}",
            "replicationTrustedClusters": trusted.format(url=evil.url),
        }
        with magnetar.testing.broker(**settings) as broker:
            replicate(broker, ClusterRecord(broker_service_url=evil.url))
            until(lambda: any(command.type == pb.BaseCommand.CONNECT for command in evil.received))
            until(lambda: len(evil.received) > 1)
            assert (TOKEN.encode() in sent_to(evil)) == is_sent
