"""`magnetar standalone --secure DIR`: one command starts a secured broker, and prints steps that work as they are."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
CONTINUED = " " * 13


class Started:
    """The process, and the lines that it printed until it was ready."""

    def __init__(self, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", "magnetar", "standalone", "--secure", str(folder / "secure")]
        command += ["--data", str(folder / "data"), "--port", "0", "--http-port", "0", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.fullmatch(r"ready (pulsar\+ssl://\S+) (https://\S+)", self.lines[-1]):
                self.service_url, self.http_url = found[1], found[2]
                return
        raise AssertionError(self.process.communicate()[1])

    def steps(self, first: str) -> list[str]:
        """The lines that can be typed, after the one that ends so."""
        begin = next(number for number, line in enumerate(self.lines) if line.endswith(first)) + 1
        found: list[str] = []
        for line in self.lines[begin:]:
            if not line.startswith(CONTINUED):
                break
            found.append(line.removeprefix(CONTINUED))
        return found

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)


@contextlib.contextmanager
def started(folder: Path, *words: str) -> Iterator[Started]:
    broker = Started(folder, *words)
    try:
        yield broker
    finally:
        broker.close()


def typed(steps: list[str], folder: Path) -> None:
    """In a shell, as they are printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-e", "-c", "\n".join(steps)], cwd=folder, env={**os.environ, "PATH": path}, check=True)


def test_what_is_printed_works_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with started(tmp_path) as broker:
        typed(broker.steps("with magnetar or pulsar-admin:"), tmp_path)
        typed(broker.steps("a token for that role:"), tmp_path)
        names: dict[str, object] = {}
        exec("\n".join(broker.steps("in Python:")), names)
        client = names["client"]
        assert isinstance(client, pulsar.Client)
        consumer = client.subscribe("hello", "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer("hello").send(b"again")
        assert consumer.receive(10_000).data() in (b"world", b"again")
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer("public/default-2/hello")
        client.close()


def test_those_without_a_token_are_refused_on_every_port(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        trust = str(tmp_path / "secure" / "ca.pem")
        assert not [line for line in broker.lines if "pulsar://" in line or "http://" in line]
        client = pulsar.Client(broker.service_url, tls_trust_certs_file_path=trust, logger=QUIET)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("hello")
        client.close()
        context = ssl.create_default_context(cafile=trust)
        for path in ("/admin/v2/clusters", "/metrics/"):
            assert httpx.get(broker.http_url + path, verify=context, trust_env=False).status_code == 401
        login = {"Authorization": f"Bearer {(tmp_path / 'secure' / 'admin.token').read_text()}"}
        metrics = httpx.get(f"{broker.http_url}/metrics/", headers=login, verify=context, trust_env=False)
        assert "pulsar_topics_count" in metrics.text
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{broker.http_url}/admin/v2/clusters", trust_env=False)  # the system does not know our authority


def test_another_start_keeps_trust_and_tokens(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        typed(broker.steps("a token for that role:"), tmp_path)
        typed(broker.steps("with magnetar or pulsar-admin:"), tmp_path)
        trust = (tmp_path / "secure" / "ca.pem").read_text()
    token = (tmp_path / "app.token").read_text()
    with started(tmp_path) as broker:
        file = tmp_path / "kept.pem"
        file.write_text(trust)
        client = pulsar.Client(
            broker.service_url, pulsar.AuthenticationToken(token), tls_trust_certs_file_path=str(file), logger=QUIET
        )
        client.create_producer("hello").send(b"x")
        client.close()
        typed([*broker.steps("with magnetar or pulsar-admin:")[:1], "magnetar topics list public/default"], tmp_path)


def test_earlier_tokens_end_with_the_start_that_makes_another_key(tmp_path: Path) -> None:
    secure = tmp_path / "secure"

    def status(broker: Started, token: str) -> int:
        context = ssl.create_default_context(cafile=secure / "ca.pem")
        login = {"Authorization": f"Bearer {token}"}
        url = f"{broker.http_url}/admin/v2/clusters"
        return httpx.get(url, headers=login, verify=context, trust_env=False).status_code

    with started(tmp_path) as broker:
        old = (secure / "admin.token").read_text()
        (secure / "admin.token").unlink()
        (secure / "token.key").unlink()
        assert status(broker, old) == 200, "the broker has read its key"
    with started(tmp_path) as broker:
        assert status(broker, old) == 401
        assert status(broker, (secure / "admin.token").read_text()) == 200


def test_what_cannot_be_had_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "secure").mkdir()
    (tmp_path / "secure" / "mine").touch()
    with pytest.raises(AssertionError, match=r"is not empty and has no ca.pem: give a new folder"):
        Started(tmp_path)
    assert not (tmp_path / "data").exists()
