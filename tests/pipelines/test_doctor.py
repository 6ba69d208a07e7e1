"""`magnetar doctor replication` against injected faults: the right cause comes first, and its command repairs it.

Two real brokers. Where a fault is visible without a pipeline, the test sends the reports of one.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar import testing
from magnetar.cli.main import main
from magnetar.client import AsyncClient, Client
from magnetar.client.errors import NotAuthorized
from magnetar.replication.model import State
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from tests.client.certificates import Certificates
from tests.client.fake_broker import fake_broker
from tests.client.fake_web import fake_web
from tests.client.tokens import token_with

NAMESPACE = "public/geo"
ORDERS = f"persistent://{NAMESPACE}/orders"
RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
OTHER_RECORD = {"type": "record", "name": "Order", "fields": [{"name": "other", "type": "string"}]}


class Sick:
    """Cluster `a` replicates a namespace to `b`; the doctor examines `a`."""

    def __init__(self, a: testing.TestBroker, b: testing.TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.a, self.b = a, b
        self._capsys = capsys
        a.run(lambda: a.server.broker.replication.no_process("pipelinesEnabled is false"))  # as standalone does

    def ask(self, broker: testing.TestBroker, method: str, path: str, body: object = None) -> Any:
        url = f"{broker.http_url}/admin/v2/{path}"
        headers = {"Content-Type": "application/json"}
        answer = httpx.request(method, url, json=body, headers=headers, trust_env=False, timeout=30)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content and answer.text[:1] in '[{"' else None

    def create(self, broker: testing.TestBroker, partitions: int = 0, topic: str = "orders") -> None:
        path = f"persistent/{NAMESPACE}/{topic}" + ("/partitions" if partitions else "")
        self.ask(broker, "PUT", path, partitions or None)

    def publish(self, *values: bytes) -> None:
        with Client(self.a.service_url) as client, client.producer(ORDERS) as producer:
            for value in values:
                producer.send(value)

    def tell(self, state: State = State.RUNNING, reason: str = "", topic: str = ORDERS) -> None:
        """Reports like a pipeline."""
        row = {"topic": topic, "remote": "b", "state": state.value, "reason": reason}
        self.ask(self.a, "PUT", "replication/reports", {"pipeline": "test", "isAll": False, "rows": [row]})

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        return main(list(words)), *self._capsys.readouterr()

    def causes(self, topic: str | None = ORDERS, remote: str = "b") -> list[dict[str, Any]]:
        words = () if topic is None else (topic,)
        code, out, err = self.run("doctor", "replication", *words, "--url", self.a.http_url, "--json")
        assert err == ""
        found = json.loads(out)["topics"]
        assert code == (1 if found else 0)
        return next((one["causes"] for one in found if one["remote"] in (remote, "-")), [])

    def first(self, topic: str | None = ORDERS) -> dict[str, Any]:
        causes = self.causes(topic)
        assert causes, "no cause was found"
        assert causes[0]["repair"].startswith("magnetar ")
        return causes[0]

    def repair(self, cause: dict[str, Any]) -> None:
        code, _, err = self.run(*shlex.split(cause["repair"])[1:])
        assert code == 0, err

    def address_of_b(self, **addresses: str) -> None:
        self.ask(self.a, "POST", "clusters/b", addresses)


@contextlib.contextmanager
def clusters(
    capsys: pytest.CaptureFixture[str], b_settings: dict[str, object] | None = None, **settings: object
) -> Iterator[Sick]:
    with (
        testing.broker(clusterName="a", pipelinesEnabled=False, **settings) as a,
        testing.broker(**{"clusterName": "b", "pipelinesEnabled": False, **(b_settings or {})}) as b,
    ):
        sick = Sick(a, b, capsys)
        sick.ask(a, "PUT", "clusters/b", {"serviceUrl": b.http_url, "brokerServiceUrl": b.service_url})
        sick.ask(a, "POST", "tenants/public", {"adminRoles": [], "allowedClusters": ["a", "b"]})
        sick.ask(a, "PUT", f"namespaces/{NAMESPACE}")
        sick.ask(b, "PUT", f"namespaces/{NAMESPACE}")
        sick.ask(a, "POST", f"namespaces/{NAMESPACE}/replication", ["a", "b"])
        yield sick


@pytest.fixture
def sick(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Sick]:
    """No topics are created in `b`, so that missing ones stay missing."""
    settings = {"createTopicToRemoteClusterForReplication": False, "brokerClientTokenFolders": str(tmp_path)}
    with clusters(capsys, **settings) as sick:
        yield sick


def test_a_copied_topic_has_no_cause(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    sick.tell()
    assert sick.causes() == []
    code, out, _ = sick.run("doctor", "replication", "--url", sick.a.http_url)
    assert (code, out) == (0, "no problems in 1 replicated topic\n")


def test_fault_pipeline_not_running(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    sick.publish(b"1", b"2")
    cause = sick.first()
    assert cause["kind"] == "pipeline-not-running"
    assert "pipelinesEnabled=false" in str(cause["evidence"])
    assert "a backlog of 2" in str(cause["evidence"])
    assert cause["repair"] == f"magnetar pipelines --url {sick.a.http_url}"
    code, out, _ = sick.run("doctor", "replication", "--url", sick.a.http_url)
    assert code == 1
    assert out.startswith(f"{ORDERS} to b\n")
    assert "first causes: pipeline-not-running" in out


def test_fault_remote_unreachable(sick: Sick) -> None:
    sick.create(sick.a)
    sick.address_of_b(serviceUrl="http://127.0.0.1:1", brokerServiceUrl="pulsar://127.0.0.1:1")
    sick.tell(State.UNREACHABLE, "cannot connect")
    cause = sick.first()
    assert cause["kind"] == "remote-unreachable"
    assert "pulsar://127.0.0.1:1" in str(cause["evidence"])
    assert cause["repair"].startswith("magnetar clusters update b ")


def test_fault_no_address(sick: Sick) -> None:
    sick.create(sick.a)
    sick.address_of_b(serviceUrl="")
    sick.tell(State.UNREACHABLE, "no address")
    assert sick.first()["kind"] == "no-address"


class Doorkeeper:
    """A cluster that rejects every client, over HTTP and over the binary protocol."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(401)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [
            threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}),
            threading.Thread(target=self._refuse),
        ]
        for thread in self._threads:
            thread.start()

    def _refuse(self) -> None:
        error = pb.CommandError(request_id=-1 & (1 << 64) - 1, error=pb.AuthenticationError, message="Unknown token")
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(encode_frame(pb.BaseCommand(type=pb.BaseCommand.ERROR, error=error)))

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join()


def test_fault_authentication(sick: Sick) -> None:
    sick.create(sick.a)
    with contextlib.closing(Doorkeeper()) as keeper:
        sick.address_of_b(
            serviceUrl=f"http://127.0.0.1:{keeper.http.server_port}",
            brokerServiceUrl=f"pulsar://127.0.0.1:{keeper.listener.getsockname()[1]}",
        )
        sick.tell(State.REFUSED, "Unknown token")
        cause = sick.first()
    assert cause["kind"] == "authentication"
    assert "Unknown token" in str(cause["evidence"])
    assert cause["repair"].startswith("magnetar clusters update b --auth-plugin ")


def test_fault_authentication_with_an_expired_token(sick: Sick, tmp_path: Path) -> None:
    sick.create(sick.a)
    file = tmp_path / "token"
    file.write_text(token_with({"sub": "copier", "exp": 1_700_000_000}))
    with contextlib.closing(Doorkeeper()) as keeper:
        sick.address_of_b(
            serviceUrl=f"http://127.0.0.1:{keeper.http.server_port}",
            brokerServiceUrl=f"pulsar://127.0.0.1:{keeper.listener.getsockname()[1]}",
            authenticationPlugin="token",
            authenticationParameters=f"file://{file}",
        )
        sick.tell(State.REFUSED, "Unknown token")
        cause = sick.first()
    assert cause["kind"] == "authentication"
    assert "the token expired at 2023-11-14" in str(cause["evidence"])
    assert f"a new token in {file}" in cause["what"]
    assert file.read_text() not in json.dumps(cause)


def test_fault_missing_token_file(sick: Sick, tmp_path: Path) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    addresses = {"serviceUrl": sick.b.http_url, "brokerServiceUrl": sick.b.service_url}
    sick.address_of_b(**addresses, authenticationPlugin="token", authenticationParameters=f"file://{tmp_path}/none")
    sick.tell(State.REFUSED, f"token_file '{tmp_path}/none' cannot be read")
    cause = sick.first()
    assert cause["kind"] == "authentication"
    assert f"'{tmp_path}/none' cannot be read" in str(cause["evidence"])
    sick.tell()
    assert sick.causes() == [], "the pipeline runs where the file is"


def test_hidden_credentials_are_not_said_to_be_wrong(sick: Sick) -> None:
    """The doctor does not have them: what the pipelines process reports counts."""
    sick.create(sick.a)
    token = token_with({"sub": "copier"})
    with contextlib.closing(Doorkeeper()) as keeper:
        sick.address_of_b(
            serviceUrl=f"http://127.0.0.1:{keeper.http.server_port}",
            brokerServiceUrl=f"pulsar://127.0.0.1:{keeper.listener.getsockname()[1]}",
            authenticationPlugin="token",
            authenticationParameters=f"token:{token}",
        )
        sick.tell(State.RUNNING)
        _, out, err = sick.run("doctor", "replication", ORDERS, "--url", sick.a.http_url, "--json")
    assert "authentication" not in [cause["kind"] for one in json.loads(out)["topics"] for cause in one["causes"]]
    assert token not in out + err


@pytest.mark.parametrize("where", ["http", "binary", "both"])
def test_fault_tls_with_an_unknown_authority(sick: Sick, tmp_path: Path, where: str) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    theirs, ours = Certificates(tmp_path / "theirs"), Certificates(tmp_path / "ours")
    sick.create(sick.a)
    tls = {place: (theirs if where in (place, "both") else ours).server() for place in ("http", "binary")}
    with fake_web({}, status=404, tls=tls["http"]) as web, fake_broker(tls=tls["binary"]) as fake:
        addresses = {"serviceUrlTls": web.url, "brokerServiceUrlTls": fake.url, "brokerClientTlsEnabled": True}
        sick.ask(sick.a, "POST", "clusters/b", {**addresses, "brokerClientTrustCertsFilePath": str(ours.file)})
        sick.tell(State.UNREACHABLE, "the certificate is not trusted")
        cause = sick.first()
        assert cause["kind"] == "tls"
        assert "the certificate is not trusted" in str(cause["evidence"])
        words = "clusters update b --tls-trust-certs-filepath PATH-OF-AUTHORITIES --url"
        assert cause["repair"] == f"magnetar {words} {sick.a.http_url}"


def test_fault_tls_with_a_certificate_for_another_host_and_a_plain_text_port(sick: Sick, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    sick.create(sick.a)
    with fake_broker(tls=certificates.server("broker.example")) as fake, fake_broker() as plain:
        for url, kind in ((fake.url, "tls"), (plain.url.replace("pulsar:", "pulsar+ssl:"), "remote-unreachable")):
            trusted = {"brokerClientTlsEnabled": True, "brokerClientTrustCertsFilePath": str(certificates.file)}
            sick.ask(sick.a, "POST", "clusters/b", {"brokerServiceUrlTls": url, **trusted})
            sick.tell(State.UNREACHABLE, "no")
            cause = sick.first()
            assert cause["kind"] == kind
            assert cause["repair"].startswith("magnetar clusters update b --service-url-tls https://HOST:PORT")


def test_fault_not_authorized(sick: Sick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role may not even look up the topic."""
    sick.create(sick.a)
    sick.create(sick.b)
    token = token_with({"sub": "copier"})
    file = tmp_path / "token"
    file.write_text(token)
    addresses = {"serviceUrl": sick.b.http_url, "brokerServiceUrl": sick.b.service_url}
    sick.address_of_b(**addresses, authenticationPlugin="token", authenticationParameters=f"file://{file}")
    sick.tell(State.REFUSED, "not authorized")

    async def refuse(client: AsyncClient, topic: str) -> int | None:
        raise NotAuthorized("Client is not authorized to Get Partition Metadata")

    monkeypatch.setattr(AsyncClient, "partition_count", refuse)
    cause = sick.first()
    assert cause["kind"] == "not-authorized"
    assert "not authorized to Get Partition Metadata" in str(cause["evidence"])
    words = f"namespaces grant-permission {NAMESPACE} --role copier --actions produce --url {sick.b.http_url}"
    assert cause["repair"] == f"magnetar {words} --token file:///PATH-OF-ADMINISTRATORS-TOKEN"
    assert token not in json.dumps(cause)


def test_fault_remote_tenant_missing(sick: Sick) -> None:
    sick.ask(sick.a, "PUT", "tenants/acme", {"adminRoles": [], "allowedClusters": ["a", "b"]})
    sick.ask(sick.a, "PUT", "namespaces/acme/shop")
    sick.ask(sick.a, "POST", "namespaces/acme/shop/replication", ["a", "b"])
    sick.ask(sick.a, "PUT", "persistent/acme/shop/orders")
    topic = "persistent://acme/shop/orders"
    sick.tell(State.REFUSED, "no such namespace", topic)
    causes = sick.causes(topic)
    assert [cause["kind"] for cause in causes] == ["remote-tenant-missing", "remote-namespace-missing"]
    for cause in causes:
        sick.repair(cause)
    assert sick.first(topic)["kind"] == "remote-topic-missing"


def test_fault_remote_namespace_missing(sick: Sick) -> None:
    sick.create(sick.a)
    sick.ask(sick.b, "DELETE", f"namespaces/{NAMESPACE}")
    sick.tell(State.REFUSED, "Namespace does not exist")
    cause = sick.first()
    assert cause["kind"] == "remote-namespace-missing"
    sick.repair(cause)
    assert sick.first()["kind"] == "remote-topic-missing"


@pytest.mark.parametrize("partitions", [0, 3])
def test_fault_remote_topic_missing(sick: Sick, partitions: int) -> None:
    sick.create(sick.a, partitions)
    parts = [f"{ORDERS}-partition-{index}" for index in range(partitions)] or [ORDERS]
    for part in parts:
        sick.tell(State.WAITING, "the topic does not exist", part)
    cause = sick.first()
    assert cause["kind"] == "remote-topic-missing"
    assert "createTopicToRemoteClusterForReplication is false" in str(cause["evidence"])
    sick.repair(cause)
    for part in parts:
        sick.tell(topic=part)
    assert sick.causes() == []


@pytest.mark.parametrize(("here", "there"), [(3, 2), (2, 0), (0, 2)])
def test_fault_different_partitions(sick: Sick, here: int, there: int) -> None:
    sick.create(sick.a, here)
    sick.create(sick.b, there)
    parts = [f"{ORDERS}-partition-{index}" for index in range(here)] or [ORDERS]
    for part in parts:
        sick.tell(State.MISMATCH, "shapes", part)
    cause = sick.first()
    assert cause["kind"] == "partition-mismatch"
    assert "partition" in str(cause["evidence"])
    sick.repair(cause)
    for part in parts:
        sick.tell(topic=part)
    after = [one["kind"] for one in sick.causes()]
    assert after == [] if here == 3 else "partition-mismatch" not in after


def test_fault_rejected_schema(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    for broker, record in ((sick.a, RECORD), (sick.b, OTHER_RECORD)):
        body = {"type": "AVRO", "schema": json.dumps(record), "properties": {}}
        sick.ask(broker, "POST", f"schemas/{NAMESPACE}/orders/schema", body)
    publish_with_schema(sick)
    sick.tell(State.REFUSED, "refused")
    cause = sick.first()
    assert cause["kind"] == "schema-refused"
    assert "version 0 (AVRO)" in str(cause["evidence"])
    sick.repair(cause)
    sick.tell()
    assert sick.causes() == []


def publish_with_schema(sick: Sick) -> None:
    import pulsar
    from pulsar.schema import AvroSchema

    client = pulsar.Client(sick.a.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = client.create_producer(ORDERS, schema=AvroSchema(None, schema_definition=RECORD))
        producer.send({"id": 1})
    finally:
        client.close()


def test_fault_remote_quota(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    sick.ask(sick.b, "PUT", f"persistent/{NAMESPACE}/orders/subscription/slow")
    with Client(sick.b.service_url) as client, client.producer(ORDERS) as producer:
        producer.send(bytes(5000))
    quota = {"limit": 1000, "limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    sick.ask(sick.b, "POST", f"namespaces/{NAMESPACE}/backlogQuota", quota)
    sick.ask(sick.b, "GET", "brokers/backlog-quota-check")
    sick.tell(State.REFUSED, "quota")
    cause = sick.first()
    assert cause["kind"] == "remote-quota"
    sick.repair(cause)
    sick.tell()
    assert sick.causes() == []


def test_fault_deduplication_off(sick: Sick, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a remote cluster that identifies itself as Apache Pulsar."""
    sick.create(sick.a)
    sick.create(sick.b)
    sick.tell(State.REFUSED, "deduplication is off")
    assert sick.first()["kind"] == "refused-by-remote"

    async def apache(client: AsyncClient, topic: str) -> str:
        return "Pulsar Server"

    monkeypatch.setattr(AsyncClient, "server_version", apache)
    cause = sick.first()
    assert cause["kind"] == "deduplication-off"
    sick.repair(cause)
    sick.tell()
    assert sick.causes() == []


def test_fault_loop_of_an_address_that_leads_back(sick: Sick) -> None:
    sick.create(sick.a)
    sick.address_of_b(serviceUrl=sick.a.http_url, brokerServiceUrl=sick.a.service_url)
    sick.tell()
    cause = sick.first()
    assert cause["kind"] == "loop"
    assert "is this cluster" in cause["what"]
    assert sick.first(None)["kind"] == "loop", "although the topic is copied, as it seems"


def test_fault_loop_of_two_clusters_with_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    with clusters(capsys, {"clusterName": "a"}) as sick:
        sick.create(sick.a)
        sick.tell()
        cause = sick.first()
    assert cause["kind"] == "loop"
    assert "the same name" in cause["what"]


def test_fault_loop_of_one_cluster_with_two_names(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    urls = {"serviceUrl": sick.b.http_url, "brokerServiceUrl": sick.b.service_url}
    sick.ask(sick.a, "PUT", "clusters/c", urls)
    sick.tell()
    assert sick.causes() == [], "no topic goes to c"
    sick.ask(sick.a, "POST", "tenants/public", {"adminRoles": [], "allowedClusters": ["a", "b", "c"]})
    sick.ask(sick.a, "POST", f"namespaces/{NAMESPACE}/replication", ["a", "b", "c"])
    cause = sick.first()
    assert (cause["kind"], "b and c are the same cluster" in cause["what"]) == ("loop", True)
    sick.repair(cause)
    sick.tell()
    assert sick.causes() == []


def test_b2_fault_name_clash(sick: Sick) -> None:
    """The repair gives the topic another name, and keeps its mask."""
    sick.ask(sick.a, "POST", f"replication/routes/b/{NAMESPACE}", {"rename": "{topic}-eu"})
    for topic in ("orders", "orders-eu"):
        sick.create(sick.a, topic=topic)
    sick.ask(sick.a, "POST", f"replication/routes/b/{NAMESPACE}/orders", {"masks": [{"field": "email"}]})
    sick.create(sick.b, topic="orders-eu")
    sick.create(sick.b, topic="orders-a")
    sick.tell(State.STOPPED, "topics orders and orders-eu would both be …")
    cause = sick.first()
    assert cause["kind"] == "name-clash"
    for name in (ORDERS, f"{ORDERS}-eu"):
        assert name in str(cause["evidence"])
    sick.repair(cause)
    sick.tell()
    assert sick.causes() == []
    (policy,) = [row.policy for row in sick.a.server.broker.replication.declaration().topics if row.topic == ORDERS]
    assert [mask.field for mask in policy.masks] == ["email"]


def test_fault_paused(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    sick.ask(sick.a, "POST", f"replication/routes/b/{NAMESPACE}", {"paused": True})
    sick.tell()
    cause = sick.first()
    assert cause["kind"] == "paused"
    sick.repair(cause)
    assert sick.causes() == []


@pytest.mark.parametrize("is_of_topic", [False, True])
def test_fault_message_too_large(capsys: pytest.CaptureFixture[str], is_of_topic: bool) -> None:
    b_settings: dict[str, object] = {} if is_of_topic else {"maxMessageSize": 50_000}
    with clusters(capsys, b_settings, createTopicToRemoteClusterForReplication=False) as sick:
        sick.create(sick.a)
        sick.create(sick.b)
        if is_of_topic:
            sick.ask(sick.b, "POST", f"persistent/{NAMESPACE}/orders/maxMessageSize", 50_000)
        sick.publish(bytes(100_000))
        sick.tell(State.REFUSED, "refused")
        cause = sick.first()
        assert cause["kind"] == "message-too-large"
        assert "has 100000 bytes, the limit there is 50000" in str(cause["evidence"])
        sick.repair(cause)


def test_fault_remote_topic_terminated(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    sick.ask(sick.b, "POST", f"persistent/{NAMESPACE}/orders/terminate")
    sick.tell(State.REFUSED, "terminated")
    cause = sick.first()
    assert cause["kind"] == "remote-topic-terminated"
    sick.repair(cause)
    assert sick.first()["kind"] == "remote-topic-missing"


def test_fault_subscription_missing(sick: Sick) -> None:
    sick.create(sick.a)
    sick.create(sick.b)
    topic = sick.a.server.broker.topics[ORDERS]
    sick.a.run(lambda: topic.end_replication("pulsar.repl.b"))  # type: ignore[union-attr]
    sick.tell()
    cause = sick.first()
    assert cause["kind"] == "subscription-missing"
    sick.repair(cause)
    sick.tell()
    assert sick.causes() == []


def test_fault_not_declared(sick: Sick) -> None:
    sick.ask(sick.a, "PUT", "persistent/public/default/orders")
    cause = sick.first("orders")
    assert cause["kind"] == "not-declared"
    sick.repair(cause)
    assert sick.first("orders")["kind"] == "pipeline-not-running"


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_topic_of_renamed_copies_needs_no_repair(sick: Sick, partitions: int) -> None:
    path = f"persistent/{NAMESPACE}/from-b" + ("/partitions" if partitions else "")
    sick.ask(sick.a, "PUT", f"{path}?copyOf=b/persistent://{NAMESPACE}/orders", partitions or None)
    code, out, err = sick.run("doctor", "replication", f"{NAMESPACE}/from-b", "--url", sick.a.http_url)
    assert (code, err) == (0, "")
    assert f"holds copies of {ORDERS} of cluster b: it is not sent back, no repair is needed" in out
    assert "enable" not in out


def test_a_missing_topic_is_an_error(sick: Sick) -> None:
    code, out, err = sick.run("doctor", "replication", "nowhere", "--url", sick.a.http_url)
    assert (code, out) == (1, "")
    assert "not found" in err


def test_with_several_faults_the_first_to_repair_comes_first(sick: Sick) -> None:
    sick.create(sick.a, 3)
    sick.create(sick.b, 2)
    sick.ask(sick.a, "POST", f"replication/routes/b/{NAMESPACE}", {"paused": True})
    assert [cause["kind"] for cause in sick.causes()] == ["paused", "pipeline-not-running", "partition-mismatch"]


def test_the_number_of_examined_topics_is_limited(sick: Sick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.cli.doctor.replication.EXAMINED_MAX", 2)
    for index in range(4):
        sick.create(sick.a, topic=f"t{index}")
    code, out, _ = sick.run("doctor", "replication", "--url", sick.a.http_url, "--json")
    found = json.loads(out)
    assert (code, len(found["topics"]), found["declared"]) == (1, 2, 4)
    assert found["remarks"] == ["2 more topics are not copied and were not examined"]
