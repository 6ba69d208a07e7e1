"""Two brokers of `--secure` (TLS, tokens, authorization) that replicate to each other, each with its own authority and
pipelines process."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.client import EARLIEST, Client, Security
from magnetar.client.errors import ClientError
from magnetar.server.secure.folder import SecureFolder

WAIT_S = 120.0
TOPIC = "persistent://public/default/orders"


class Secured:
    """A standalone broker as a process of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.log = folder.with_suffix(".log")
        config = folder.with_suffix(".conf")
        config.touch(0o600)
        settings = {"pipelinesMaster": "local[1]", "brokerClientTokenFolders": str(folder.parent)}
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.secure = SecureFolder(folder.with_suffix(".secure"))
        words = ["--cluster", name, "--data", str(folder), "--port", "0", "--http-port", "0", "--config", str(config)]
        words += ["--secure", str(self.secure.path)]
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "magnetar", "standalone", *words], stdout=subprocess.PIPE, stderr=errors
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.match(rb"ready (\S+) (\S+)", line):
                self.service_url, self.http_url = found[1].decode(), found[2].decode()
                self.admin, self.copier = self.secure.token("admin"), self.secure.token("copier")
                self.tls = ssl.create_default_context(cafile=str(self.secure.trust_certs_file))
                return
        raise AssertionError(self.log.read_text())

    def ask(self, method: str, path: str, body: Any = None, *, bearer: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {bearer or self.admin}", "Content-Type": "application/json"}
        url = f"{self.http_url}/admin/v2/{path}"
        return httpx.request(method, url, json=body, headers=headers, verify=self.tls, trust_env=False, timeout=30)

    def do(self, method: str, path: str, body: Any = None) -> None:
        answer = self.ask(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"

    def client(self) -> Client:
        return Client(
            self.service_url, security=Security(token=self.admin, trust_certs_file=self.secure.trust_certs_file)
        )

    def publish(self, value: bytes) -> None:
        with self.client() as client, client.producer(TOPIC) as producer:
            producer.send(value)

    def has(self, *values: bytes) -> bool:
        wanted = set(values)
        with contextlib.suppress(ClientError), self.client() as client, client.reader(TOPIC, EARLIEST) as reader:
            while wanted:
                wanted.discard(reader.read(5.0).value)
        return not wanted

    def replicate_to(self, other: Secured, parameters: str) -> None:
        urls = {"serviceUrlTls": other.http_url, "brokerServiceUrlTls": other.service_url}
        trust = {"brokerClientTrustCertsFilePath": str(other.secure.trust_certs_file), "brokerClientTlsEnabled": True}
        login = {"authenticationPlugin": "token", "authenticationParameters": parameters}
        self.do("PUT", f"clusters/{other.name}", {**urls, **trust, **login})
        self.do("POST", "tenants/public", {"adminRoles": ["copier"], "allowedClusters": [self.name, other.name]})

    def magnetar(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command with the administrator's login."""
        login = ("--client-conf", str(self.secure.path / "client.conf"))
        command = [sys.executable, "-m", "magnetar", *login, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def causes(self) -> list[dict[str, Any]]:
        """Of the doctor, for the one topic that is replicated."""
        found = json.loads(self.magnetar("doctor", "replication", TOPIC, "--json").stdout)
        return [cause for topic in found["topics"] for cause in topic["causes"]]

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)  # ends the pipelines process too
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Secured, Secured]]:
    with contextlib.ExitStack() as stack:
        both: list[Secured] = []
        for name in "ab":
            both.append(Secured(name, tmp_path / name))
            stack.callback(both[-1].close)
        yield both[0], both[1]


def until(is_so: Callable[[], bool], clusters: tuple[Secured, Secured]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        logs = [one.log.read_text()[-3000:] for one in clusters]
        states = [one.ask("GET", "replication/status").text for one in clusters]
        assert time.monotonic() < deadline_s, "\n".join([*states, *logs])
        time.sleep(0.2)


@pytest.mark.timeout(400)
def test_secured_clusters_replicate_both_ways(clusters: tuple[Secured, Secured], tmp_path: Path) -> None:
    a, b = clusters
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(a.copier)
    assert a.ask("GET", "replication/declaration", bearer="wrong").status_code == 401
    a.replicate_to(b, f"token:{b.copier}")
    b.replicate_to(a, f"file://{file}")
    for one in clusters:
        one.do("POST", "namespaces/public/default/replication", ["a", "b"])
    a.do("PUT", "persistent/public/default/orders")
    a.publish(b"from a")
    until(lambda: b.has(b"from a"), clusters)
    b.publish(b"from b")
    until(lambda: a.has(b"from a", b"from b"), clusters)
    until(lambda: all('"running"' in one.ask("GET", "replication/status").text for one in clusters), clusters)
    for one in clusters:
        assert one.causes() == [], "what the remote refuses without credentials is no cause"
    rejected_credentials(a, b, tmp_path)
    for one in clusters:
        said = one.log.read_text()
        for path in ("replication/declaration", f"clusters/{'b' if one is a else 'a'}", "replication/status"):
            said += one.ask("GET", path).text
        assert not [token for each in clusters for token in (each.admin, each.copier) if token in said]


def rejected_credentials(a: Secured, b: Secured, folder: Path) -> None:
    """The doctor, which is not shown them, finds the cause by the pipeline's report, and its repair works."""
    path = f"clusters/{b.name}"
    wrong = {"authenticationPlugin": "token", "authenticationParameters": f"token:{a.copier}"}
    a.do("POST", path, {**a.ask("GET", path).json(), **wrong})
    a.publish(b"late")
    until(lambda: "authentication" in [cause["kind"] for cause in a.causes()], (a, b))
    file = folder / "right"
    file.touch(0o600)
    file.write_text(b.copier)
    repair = shlex.split(a.causes()[0]["repair"].replace("/PATH-OF-TOKEN", str(file)))
    url = repair.index("--url")
    del repair[url : url + 2]  # the login of the profile has it
    done = a.magnetar(*repair[1:])
    assert done.returncode == 0, done.stderr
    until(lambda: b.has(b"late"), (a, b))
