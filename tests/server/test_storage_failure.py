"""A full disk or a failed fsync: nothing more is acknowledged, and the broker reports the cause and stops."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pulsar
import pytest

from magnetar.settings.settings import Settings
from magnetar.storage.api import StorageError
from magnetar.storage.memory import MemoryStorage
from magnetar.testing import TestBroker

from .raw_client import Command, RawClient


@pytest.mark.parametrize("step", ["write", "sync"])
def test_a_failed_commit_is_never_acknowledged(step: str) -> None:
    storage = MemoryStorage()
    running = TestBroker(storage, Settings())
    client = RawClient(running)
    client.produce_to("t")
    client.send(1)
    assert client.receive().type == Command.SEND_RECEIPT
    storage.fail_next(StorageError("no space left on device"), on=step)  # type: ignore[arg-type]
    client.send(2)
    assert client.is_closed()  # without a receipt: `receive` would have returned it
    assert not any(command.type == Command.SEND_RECEIPT for command, _ in client._frames)
    client.close()
    with pytest.raises(StorageError, match="no space left on device"):
        running.close()


def test_a_full_disk_ends_the_process_with_a_clear_message(tmp_path: Path) -> None:
    # A file size limit fills the disk without root permissions.
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))

    command = [
        sys.executable,
        "-m",
        "magnetar",
        "standalone",
        "--data",
        str(tmp_path),
        "--port",
        "0",
        "--http-port",
        "0",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=small_files
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        url = next(line.split()[1] for line in process.stdout if line.startswith("ready"))
        client = pulsar.Client(url, operation_timeout_seconds=2, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer("t", send_timeout_millis=3000, compression_type=pulsar.CompressionType.NONE)
        with pytest.raises(pulsar.PulsarException):
            for _ in range(100):
                producer.send(b"x" * 100_000)
        assert process.wait(20) == 1
        assert "storage failed, the broker stops" in process.stderr.read()
        client.shutdown()
