"""The log of a real broker: its start, its end, and what happens between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.log import events
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.testing import TestBroker

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def run(folder: Path, *words: str, work: bool = False) -> tuple[list[str], list[str]]:
    """Starts a broker, uses it if wanted, and stops it; returns the lines of stdout and of stderr."""
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(folder), "--port", "0", "--http-port", "0"]
    with (folder.parent / "err.log").open("w+") as errors:
        process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        out = []
        try:
            for line in process.stdout:
                out.append(line)
                if line.startswith("ready "):
                    _, service_url, http_url = line.split()
                    if work:
                        use(service_url, http_url)
                    process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        errors.seek(0)
        return out, errors.read().splitlines()


def use(service_url: str, http_url: str) -> None:
    client = pulsar.Client(service_url, logger=QUIET)
    client.create_producer("t").send(b"x")
    client.subscribe("t", "s", pulsar.ConsumerType.Exclusive)
    with pytest.raises(pulsar.PulsarException):
        client.subscribe("t", "s", pulsar.ConsumerType.Exclusive)
    client.close()
    httpx.put(f"{http_url}/admin/v2/persistent/public/default/made").raise_for_status()
    httpx.delete(f"{http_url}/admin/v2/persistent/public/default/made").raise_for_status()


def test_a_life_in_json(tmp_path: Path) -> None:
    out, first = run(tmp_path / "d", "--log-format", "json", work=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in first]
    assert out[0].startswith("Magnetar ") and out[-2].startswith("ready ") and out[-1] == "stopped\n"
    assert [line["event"] for line in lines] == [
        "started",
        "descriptors",
        "topic_created",
        "subscribe_refused",
        "topic_created",
        "admin_change",
        "topic_deleted",
        "admin_change",
        "stopped",
    ]
    by_event = {line["event"]: line for line in lines}
    assert by_event["subscribe_refused"]["reason"], "the client got only the code"
    assert by_event["admin_change"]["client"].startswith("127.0.0.1:")
    assert by_event["stopped"]["reason"] == "signal SIGTERM"
    for event in events.EVENTS:
        if event.name in by_event:
            assert set(event.fields) < set(by_event[event.name])

    _, second = run(tmp_path / "d")
    assert [line.split()[2] for line in second] == ["storage:", "server:", "server:", "server:"]
    assert "recovered 1 namespaces and 1 topics in " in second[0]

    _, third = run(tmp_path / "d", "--log-level", "warning", "--set", "logFormat=text")
    assert third == []


def test_a_wrong_level_is_refused(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "magnetar", "standalone", "--data", str(tmp_path), "--log-level", "loud"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == ("magnetar: --log-level: logLevel=loud is not allowed: one of debug, info, warning, error\n")


def test_a_slow_commit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "magnetar")
    running = TestBroker(MemoryStorage(), Settings(slowCommitMillis=1))
    try:
        running.run(lambda: running.server._check_duration(3, 0.0005))
        running.run(lambda: running.server._check_duration(3, 0.002))
    finally:
        running.close()
    slow = [record.getMessage() for record in caplog.records if "commit" in record.getMessage()]
    assert slow == ["a commit of 3 groups took 2 ms"]
