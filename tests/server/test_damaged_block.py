"""A damaged block of one topic, and a compaction that reads it: the broker goes on with everything else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pulsar
import pytest

import magnetar.testing

_SIZE = 500_000
_COUNT = 8
_DELETED = 68  # with 34 MB, the space comes back before a check of retention reads the damaged block


def client_of(url: str) -> pulsar.Client:
    return pulsar.Client(url, operation_timeout_seconds=30, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def fill(data: Path) -> None:
    """Three topics in one file; the content of the second one is damaged."""
    with magnetar.testing.broker(data) as running, contextlib.closing(client_of(running.service_url)) as client:
        for topic in "abc":
            producer = client.create_producer(topic)
            for _ in range(_DELETED if topic == "c" else _COUNT):
                producer.send((b"content of %s " % topic.encode()) + os.urandom(_SIZE))
    file = max(data.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    at = content.index(b"content of b")
    content[at + 1000 : at + 1100] = bytes(100)
    file.write_bytes(content)


def test_fault_damaged_catalog_refuses_the_start_until_it_is_repaired(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with magnetar.testing.broker(data) as running, contextlib.closing(client_of(running.service_url)) as client:
        client.create_producer("a").send(b"one")
    file = next(path for path in data.glob("*.sst") if b"public/default" in path.read_bytes())
    content = bytearray(file.read_bytes())
    content[20:28] = bytes(8)  # data comes first in a file
    file.write_bytes(content)
    start = [sys.executable, "-m", "magnetar", "standalone", "--data", str(data), "--port", "0", "--http-port", "0"]
    refused = subprocess.run(start, capture_output=True, text=True, timeout=100)
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    assert f"`magnetar doctor data {data}` shows what can be repaired" in refused.stderr
    check = [sys.executable, "-m", "magnetar", "doctor", "data", str(data), "--fix"]
    repaired = subprocess.run(check, capture_output=True, text=True, timeout=100)
    assert "Traceback" not in repaired.stderr, repaired
    with magnetar.testing.broker(data) as running, contextlib.closing(client_of(running.service_url)) as client:
        client.create_producer("b").send(b"served again")


@pytest.mark.timeout(400)
def test_fault_damaged_block_costs_one_restart_within_the_process(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(tmp_path / "data")]
    command += ["--port", "0", "--http-port", "0"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            _, url, http_url = next(line.split() for line in process.stdout if line.startswith("ready"))
            # The space of another topic in the same file is to come back: the compaction reads the whole file.
            deleted = httpx.delete(f"{http_url}/admin/v2/persistent/public/default/c?force=true", timeout=30)
            assert deleted.status_code == 204
            deadline_s = time.monotonic() + 120
            while "does not come back until this is repaired" not in (text := (tmp_path / "log").read_text()):
                assert time.monotonic() < deadline_s, text
                with contextlib.suppress(httpx.HTTPError):  # changes that the storage may refuse
                    httpx.put(f"{http_url}/admin/v2/persistent/public/default/{time.monotonic_ns()}", timeout=10)
                time.sleep(0.2)
            with contextlib.closing(client_of(url)) as client:
                reader = client.create_reader("a", pulsar.MessageId.earliest)
                for _ in range(_COUNT):
                    assert reader.read_next(30_000).data().startswith(b"content of a")
                client.create_producer("a").send(b"more")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
