"""Geo-replication to and from Apache Pulsar with TLS, tokens and authorization.

Valid credentials copy each message once, invalid ones are reported with the cause and the repair, and no output
contains a token.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pulsar
import pytest
import trustme
from apache import HOST, ISSUED, REFRESH_S, SUPER_USER, Secured, signed
from clusters import FOREVER, Ours, path_of, until

from magnetar.cli.main import main

pytestmark = pytest.mark.timeout(300)

WAIT_S = 90.0
APACHE = "apache"
"""Our broker's name for the cluster."""

_PROGRAM = str(Path(sys.executable).parent / "magnetar")
_TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_SECURED_FROM = "standalone"
_numbers = count()
_told: list[str] = []
"""All output of the tests so far."""


# -- setup


def declared(secured: Secured, **changes: object) -> dict[str, object]:
    """Valid credentials as a cluster declaration, with changes."""
    return {
        "serviceUrlTls": secured.https_url,
        "brokerServiceUrlTls": secured.url,
        "brokerClientTlsEnabled": True,
        "brokerClientTrustCertsFilePath": str(secured.authority_file),
        "authenticationPlugin": _TOKEN,
        "authenticationParameters": f"token:{secured.token()}",
        **changes,
    }


def know(ours: Ours, data: dict[str, object]) -> None:
    method = "POST" if APACHE in ours.ask("GET", "clusters") else "PUT"
    ours.ask(method, f"clusters/{APACHE}", data)
    ours.ask("POST", "tenants/public", {"adminRoles": [SUPER_USER], "allowedClusters": [ours.name, APACHE]})


@pytest.fixture
def namespace(ours: Ours, secured: Secured) -> Iterator[str]:
    """A namespace in both clusters: empty, not yet replicated, with deduplication in Apache Pulsar."""
    name = f"public/secure-{next(_numbers)}"
    ours.make_namespace(name)
    secured.ask("PUT", f"namespaces/{name}", {})
    secured.ask("POST", f"namespaces/{name}/retention", FOREVER)
    secured.ask("POST", f"namespaces/{name}/deduplication", True)
    yield name
    ours.ask("POST", f"namespaces/{name}/replication", [ours.name])


def replicate(ours: Ours, namespace: str) -> None:
    ours.ask("POST", f"namespaces/{namespace}/replication", [ours.name, APACHE])


@pytest.fixture(scope="session")
def client(secured: Secured) -> Iterator[pulsar.Client]:
    """The official client."""
    client = pulsar.Client(
        secured.url,
        authentication=pulsar.AuthenticationToken(secured.token()),
        tls_trust_certs_file_path=str(secured.authority_file),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    yield client
    client.close()


class Remote:
    """Apache Pulsar as seen by its clients."""

    def __init__(self, secured: Secured, client: pulsar.Client) -> None:
        self._secured = secured
        self._client = client

    def values(self, topic: str) -> list[bytes]:
        """All stored values; none if the topic does not exist."""
        namespace = topic.removeprefix("persistent://").rpartition("/")[0]
        if topic not in self._secured.ask("GET", f"persistent/{namespace}"):
            return []
        reader = self._client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(30_000).data())
        reader.close()
        return found

    def has(self, topic: str, values: list[bytes]) -> None:
        """Waits for the values: each once, and in order."""
        with contextlib.suppress(pytest.fail.Exception):
            until(lambda: len(self.values(topic)) >= len(values), "", WAIT_S)
        assert self.values(topic) == values

    def publish(self, topic: str, values: list[bytes]) -> None:
        producer = self._client.create_producer(topic)
        for value in values:
            producer.send_async(value, None)
        producer.flush()
        producer.close()


@pytest.fixture
def remote(secured: Secured, client: pulsar.Client) -> Remote:
    return Remote(secured, client)


def row_of(ours: Ours, topic: str) -> dict[str, Any]:
    rows = ours.ask("GET", "replication/status", topic=topic, remote=APACHE)
    _told.append(json.dumps(rows))
    return dict(rows[0]) if rows else {}


def is_running(ours: Ours, topic: str) -> bool:
    row = row_of(ours, topic)
    return bool(row) and row["state"] == "running" and not row["backlog"]


def becomes(ours: Ours, topic: str, state: str, word: str) -> None:
    """Waits for a state whose reason contains the word."""

    def is_so() -> bool:
        row = row_of(ours, topic)
        return bool(row) and row["state"] == state and word in row["reason"].lower()

    with contextlib.suppress(pytest.fail.Exception):
        until(is_so, "", 30)
    row = row_of(ours, topic)
    assert (row["state"], word in row["reason"].lower()) == (state, True), row


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int, as_json: bool = True) -> Any:
    capsys.readouterr()
    found = main([*words, *(["--json"] if as_json else [])])
    out, err = capsys.readouterr()
    _told.extend((out, err))
    assert found == code, f"{out}\n{err}"
    return json.loads(out) if as_json else out


def causes(ours: Ours, topic: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Causes reported by the doctor."""
    words = ("doctor", "replication", topic, "--url", ours.http_url)
    run(capsys, *words, code=1, as_json=False)
    return list(run(capsys, *words, code=1)["topics"][0]["causes"])


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


# -- from our broker to Apache Pulsar


def declared_kinds(secured: Secured, folder: Path) -> dict[str, dict[str, object]]:
    """Every valid kind of credentials."""
    file = folder / "token"
    file.write_text(secured.token() + "\n")
    certificate = f"tlsCertFile:{secured.folder}/client.pem,tlsKeyFile:{secured.folder}/client-key.pem"
    plain = {"serviceUrl": f"http://{HOST}:{secured.http_port}", "brokerServiceUrl": f"pulsar://{HOST}:{secured.port}"}
    return {
        "token": declared(secured),
        "file": declared(secured, authenticationParameters=f"file://{file}"),
        "certificate": declared(
            secured,
            authenticationPlugin="org.apache.pulsar.client.impl.auth.AuthenticationTls",
            authenticationParameters=certificate,
        ),
        "settings": declared(
            secured, brokerClientTrustCertsFilePath="", authenticationPlugin="", authenticationParameters=""
        ),
        "without-tls": declared(secured, brokerClientTlsEnabled=False, **plain),
    }


@pytest.mark.parametrize("kind", ["token", "file", "certificate", "settings", "without-tls"])
def test_gr7_our_broker_replicates_to_a_secured_cluster(
    ours: Ours,
    secured: Secured,
    remote: Remote,
    namespace: str,
    tmp_path: Path,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, parts = f"persistent://{namespace}/orders", f"persistent://{namespace}/parts"
    know(ours, declared_kinds(secured, tmp_path)[kind])
    replicate(ours, namespace)
    ours.create(topic)
    ours.create(parts, 2)
    ours.publish(topic, numbers(0, 50))
    ours.publish(f"{parts}-partition-1", numbers(0, 10))
    remote.has(topic, numbers(0, 50))
    remote.has(f"{parts}-partition-1", numbers(0, 10))
    assert secured.ask("GET", f"{path_of(parts)}/partitions")["partitions"] == 2
    until(lambda: is_running(ours, topic), "replication is running")
    ours.publish(topic, numbers(50, 100))
    remote.has(topic, numbers(0, 100))
    until(lambda: is_running(ours, topic), "replication is running")
    assert run(capsys, "doctor", "replication", topic, "--url", ours.http_url, code=0)["topics"] == []


def test_gr1_the_cluster_is_declared_with_commands(
    ours: Ours, secured: Secured, remote: Remote, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"persistent://{namespace}/orders"
    file = tmp_path / "token"
    file.write_text(secured.token())
    options = {
        "--service-url-tls": secured.https_url,
        "--broker-url-tls": secured.url,
        "--auth-plugin": _TOKEN,
        "--auth-parameters": f"file://{file}",
        "--tls-trust-certs-filepath": str(secured.authority_file),
        "--url": ours.http_url,
    }
    words = [word for option in options.items() for word in option]
    without = {"authenticationPlugin": "", "authenticationParameters": ""}
    know(ours, {"serviceUrl": "http://127.0.0.1:9", "brokerServiceUrl": "pulsar://127.0.0.1:9", **without})
    run(capsys, "clusters", "update", APACHE, "--tls-enable", *words, code=0, as_json=False)
    place = (namespace, "--to", APACHE, "--url", ours.http_url)
    run(capsys, "replication", "enable", *place, code=0, as_json=False)
    ours.create(topic)
    ours.publish(topic, numbers(0, 10))
    remote.has(topic, numbers(0, 10))


def test_gr9_subscription_positions_are_replicated_to_a_secured_cluster(
    ours: Ours, secured: Secured, remote: Remote, namespace: str
) -> None:
    topic = f"persistent://{namespace}/followed"
    know(ours, declared(secured))
    replicate(ours, namespace)
    ours.create(topic)
    consumer = ours.client.subscribe(topic, "moves", replicate_subscription_state_enabled=True)
    ours.publish(topic, numbers(0, 50))
    for _ in range(30):
        consumer.acknowledge(consumer.receive(10_000))
    remote.has(topic, numbers(0, 50))
    until(lambda: backlog(secured, topic, "moves") == 20, "the position is replicated", 30)
    consumer.close()


def backlog(secured: Secured, topic: str, subscription: str) -> int | None:
    """None if the subscription does not exist."""
    stats = secured.ask("GET", f"{path_of(topic)}/stats?getPreciseBacklog=true")
    found = stats["subscriptions"].get(subscription)
    return None if found is None else int(found["msgBacklog"])


def faults(secured: Secured, folder: Path) -> dict[str, tuple[dict[str, object], str, str, str]]:
    """Declaration, expected state, a word of its reason, and the doctor's first cause."""
    other = folder / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    wrong = signed({"sub": SUPER_USER}, b"another secret of 32 characters.")
    expired, nobody = secured.token(expires_in_s=-60), secured.token("nobody")
    return {
        "wrong": ({"authenticationParameters": f"token:{wrong}"}, "refused-by-remote", "authent", "authentication"),
        "expired": ({"authenticationParameters": f"token:{expired}"}, "refused-by-remote", "expired", "authentication"),
        "nobody": (
            {"authenticationParameters": f"token:{nobody}"},
            "refused-by-remote",
            "not authorized",
            "not-authorized",
        ),
        "authority": (
            {"brokerClientTrustCertsFilePath": str(other)},
            "unreachable",
            "the certificate is not trusted",
            "tls",
        ),
    }


@pytest.mark.parametrize("fault", ["wrong", "expired", "nobody", "authority"])
def test_gr5_rejected_credentials_are_reported_and_replication_resumes_after_the_repair(
    ours: Ours,
    secured: Secured,
    remote: Remote,
    namespace: str,
    tmp_path: Path,
    fault: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, after = f"persistent://{namespace}/before", f"persistent://{namespace}/after"
    changes, state, word, kind = faults(secured, tmp_path)[fault]
    know(ours, declared(secured))
    replicate(ours, namespace)
    ours.create(before)
    ours.publish(before, numbers(0, 10))
    remote.has(before, numbers(0, 10))

    know(ours, declared(secured, **changes))
    ours.create(after)
    for topic, first in ((before, 10), (after, 0)):
        ours.publish(topic, numbers(first, 20))
        becomes(ours, topic, state, word)
    assert secured.ask("GET", f"persistent/{namespace}") == [before]
    first, *_ = causes(ours, before, capsys)
    assert first["kind"] == kind, first
    assert word in json.dumps(first["evidence"]).lower(), first
    token = tmp_path / "token"
    token.write_text(secured.token())
    filled = {"/PATH-OF-TOKEN": token, "/PATH-OF-ADMINISTRATORS-TOKEN": token}
    filled["PATH-OF-AUTHORITIES"] = secured.authority_file

    def repair(command: str) -> None:
        for placeholder, path in filled.items():
            command = command.replace(placeholder, str(path))
        run(capsys, *shlex.split(command)[1:], code=0, as_json=False)

    repair(first["repair"])
    remote.has(before, numbers(0, 20))
    if fault == "nobody":  # permission to publish does not include creating topics
        becomes(ours, after, "refused-by-remote", "create_topic")
        first, *_ = causes(ours, after, capsys)
        assert first["kind"] == "remote-topic-missing"
        repair(first["repair"])
    remote.has(after, numbers(0, 20))
    for topic in (before, after):
        until(lambda topic=topic: is_running(ours, topic), "replication is running")
    assert run(capsys, "doctor", "replication", "--url", ours.http_url, code=0)["topics"] == []


def test_gr7_a_replaced_token_file_is_reloaded(
    ours: Ours, secured: Secured, remote: Remote, namespace: str, tmp_path: Path
) -> None:
    topic = f"persistent://{namespace}/renewed"
    file = tmp_path / "token"
    file.write_text(secured.token(expires_in_s=6))
    know(ours, declared(secured, authenticationParameters=f"file://{file}"))
    replicate(ours, namespace)
    ours.create(topic)
    sent = 0

    def publish_for(seconds: float) -> None:
        """Publishes all the time, so that connections stay in use."""
        nonlocal sent
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            ours.publish(topic, numbers(sent, sent + 5))
            sent += 5
            time.sleep(0.2)

    publish_for(2)
    until(lambda: remote.values(topic) != [], "the first token is accepted")
    file.write_text(secured.token(expires_in_s=6))  # in time
    publish_for(4 + 3 * REFRESH_S)
    becomes(ours, topic, "refused-by-remote", "expired")
    file.write_text(secured.token())  # too late: replication is stuck until then
    publish_for(1)
    remote.has(topic, numbers(0, sent))
    until(lambda: is_running(ours, topic), "replication is running")


def test_gr7_a_replaced_authority_file_is_reloaded(
    ours: Ours, secured: Secured, remote: Remote, namespace: str, tmp_path: Path
) -> None:
    topic = f"persistent://{namespace}/trusted"
    file = tmp_path / "authorities.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    know(ours, declared(secured, brokerClientTrustCertsFilePath=str(file)))
    replicate(ours, namespace)
    ours.create(topic)
    ours.publish(topic, numbers(0, 10))
    becomes(ours, topic, "unreachable", "the certificate is not trusted")
    file.write_bytes(secured.authority_file.read_bytes())
    remote.has(topic, numbers(0, 10))
    until(lambda: is_running(ours, topic), "replication is running")


# -- the command, configured by its options


@contextlib.contextmanager
def pipelines(log: Path, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [_PROGRAM, "pipelines", *words, "--master", "local[2]", "--retry-max", "2"]
    environment = {**os.environ, **variables}
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        try:
            yield process
            look_for_tokens(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            _told.append(log.read_text())


def test_gr7_from_a_secured_cluster_to_ours(
    ours: Ours, secured: Secured, remote: Remote, namespace: str, tmp_path: Path
) -> None:
    topic = f"persistent://{namespace}/theirs"
    secured.ask("PUT", path_of(topic))
    remote.publish(topic, numbers(0, 20))
    file = tmp_path / "token"
    file.write_text(secured.token(expires_in_s=-60))
    words = ["--from", secured.url, "--admin-from", secured.https_url, "--cluster", _SECURED_FROM]
    words += ["--to", f"ours={ours.service_url},{ours.http_url}", "--topics", namespace]
    words += ["--token", f"file://{file}", "--trust-certs", str(secured.authority_file)]
    log = tmp_path / "log"
    with pipelines(log, *words) as process:
        until(lambda: "expired" in log.read_text(), "the log has the reason")
        assert process.poll() is None
        file.write_text(secured.token())
        ours.has(topic, numbers(0, 20), WAIT_S)
        remote.publish(topic, numbers(20, 40))
        ours.has(topic, numbers(0, 40), WAIT_S)

        until(lambda: backlog(secured, topic, "magnetar.repl.ours") == 0, "all messages are acknowledged", 30)


def test_gr6_from_a_secured_cluster_by_its_replicator(
    ours: Ours, secured: Secured, remote: Remote, namespace: str
) -> None:
    """It sends its token to our broker, which requires none."""
    topic = f"persistent://{namespace}/theirs"
    secured.ask("PUT", "clusters/ours", {"serviceUrl": ours.http_url, "brokerServiceUrl": ours.service_url})
    tenant = {"adminRoles": [SUPER_USER], "allowedClusters": [_SECURED_FROM, ours.name]}
    secured.ask("POST", "tenants/public", tenant)
    secured.ask("POST", f"namespaces/{namespace}/replication", [_SECURED_FROM, ours.name])
    secured.ask("PUT", path_of(topic))
    remote.publish(topic, numbers(0, 20))
    ours.has(topic, numbers(0, 20), WAIT_S)
    secured.ask("POST", f"namespaces/{namespace}/replication", [_SECURED_FROM])


def test_gr7_from_ours_to_a_secured_cluster_by_the_command(
    ours: Ours, secured: Secured, remote: Remote, namespace: str, tmp_path: Path
) -> None:
    topic = f"persistent://{namespace}/ours"
    ours.create(topic)
    ours.publish(topic, numbers(0, 20))
    words = ["--from", ours.service_url, "--admin-from", ours.http_url, "--cluster", ours.name]
    words += ["--to", f"{APACHE}={secured.url},{secured.https_url}", "--topics", namespace]
    words += ["--remote-trust-certs", str(secured.authority_file)]
    with pipelines(tmp_path / "log", *words, MAGNETAR_REMOTE_TOKEN=secured.token()):
        remote.has(topic, numbers(0, 20))
        ours.publish(topic, numbers(20, 40))
        remote.has(topic, numbers(0, 40))


# -- comparison


def test_gr6_verify_and_diff_with_a_secured_cluster(
    ours: Ours, secured: Secured, remote: Remote, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"persistent://{namespace}/compared"
    know(ours, declared(secured))
    replicate(ours, namespace)
    ours.create(topic)
    ours.publish(topic, numbers(0, 30))
    remote.has(topic, numbers(0, 30))
    until(lambda: is_running(ours, topic), "replication is running")
    file = tmp_path / "token"
    file.write_text(secured.token())
    trusted = ("--trust-certs", str(secured.authority_file))
    to_them = (ours.http_url, secured.https_url, "--token-b", f"file://{file}", *trusted)
    from_them = (secured.https_url, ours.http_url, "--token", f"file://{file}", *trusted)
    names = ("--to-cluster", APACHE, "--topics", topic)
    found = verified(*to_them, *names)
    assert [(one["originals"], one["copies"], one["error"]) for one in found["topics"]] == [(30, 30, "")]
    for sides in (to_them, from_them):
        assert run(capsys, "replication", "diff", *sides, "-n", namespace, code=0)["topics"] == 1


def verified(*words: str) -> Any:
    command = [_PROGRAM, "replication", "verify", *words, "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    _told.extend((answer.stdout, answer.stderr))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return json.loads(answer.stdout)


# -- secrets


def look_for_tokens(pid: int) -> None:
    """Looks for tokens in the command lines of a process and its descendants."""
    commands = [Path(f"/proc/{one}/cmdline").read_text() for one in family(pid)]
    assert any("SparkSubmit" in command for command in commands)
    _told.extend(commands)


def family(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def test_no_output_contains_a_token(ours: Ours, secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs last: checks logs, states, reasons, metrics, command output and process lists."""
    if len(_told) < 20:
        pytest.skip("no output: run the other tests first")
    assert ours.process is not None
    look_for_tokens(ours.process.pid)
    _told.append((ours.folder / "log").read_text())
    _told.append(ours.metrics())
    run(capsys, "clusters", "get", APACHE, "--url", ours.http_url, code=0, as_json=False)
    assert len(ISSUED) > 20
    for token in ISSUED:
        signature = token.rpartition(".")[2]
        assert not [text for text in _told if signature in text]
