"""A full disk or a failed fsync: nothing more is acknowledged, and the broker reports the cause and stops."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pulsar
import pytest

from magnetar.settings.settings import Settings
from magnetar.storage.api import StorageError
from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage
from magnetar.testing import TestBroker

from .raw_client import Command, RawClient


@pytest.mark.parametrize("step", ["write", "sync"])
def test_fault_failing_fsync_is_never_acknowledged(step: str) -> None:
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


HANGING = """
    import os, sys, time
    from magnetar.storage.rocks import RocksStorage
    from magnetar.cli.main import main

    sync = RocksStorage.sync

    def hang(self):
        while os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        sync(self)

    RocksStorage.sync = hang
    sys.exit(main(["standalone", "--data", sys.argv[2], "--port", "0", "--http-port", "0"]))
"""


def test_fault_hanging_disk_does_not_keep_sigterm_from_ending_the_process(tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    command = [sys.executable, "-c", textwrap.dedent(HANGING), str(stuck), str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        url = next(line.split()[1] for line in process.stdout if line.startswith("ready"))
        client = pulsar.Client(url, operation_timeout_seconds=2, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer("t", send_timeout_millis=1000)
        stuck.touch()
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"never acknowledged")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1
        assert "the disk has not written the last changes within 4 s" in process.stderr.read()
        client.shutdown()


HANGING_START = """
    import asyncio, sys
    from magnetar.cli.main import main
    from magnetar.server.disk.watch import DiskWatch
    from magnetar.server.stop_deadline import StopDeadline

    async def hang(self):
        print("hangs", flush=True)
        await asyncio.sleep(600)

    DiskWatch.check = hang
    StopDeadline.__init__.__defaults__ = (1.5,)
    sys.exit(main(["standalone", "--data", sys.argv[1], "--port", "0", "--http-port", "0"]))
"""


def test_fault_hanging_disk_does_not_keep_sigterm_from_ending_a_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(HANGING_START), str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1
        assert "the broker did not stop within 1.5 s" in process.stderr.read()


ENDLESS = """
    import sys, threading, time
    from magnetar.server.stop_deadline import StopDeadline
    from magnetar.log.output import write_log

    write_log(sys.stderr, level="INFO", form="text")
    StopDeadline(1.5).start()
    threading.Thread(target=lambda: time.sleep(600)).start()  # the interpreter waits for it
"""


def test_bound_stop_ends_the_process_with_a_sentence() -> None:
    command = [sys.executable, "-c", textwrap.dedent(ENDLESS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "the broker did not stop within 1.5 s and ends now" in ended.stderr


def test_fault_unsynced_acks_are_on_disk_soon(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    running = TestBroker(storage, Settings())
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("t", "s")
    producer = client.create_producer("t")
    for _ in range(20):
        producer.send(b"x")
    fsyncs = running.server.committer.fsync_seconds
    before = fsyncs.count
    for _ in range(20):
        consumer.acknowledge(consumer.receive())
    deadline_s = time.monotonic() + 60
    while fsyncs.count == before or not running.server.broker.commits.idle:
        assert time.monotonic() < deadline_s, "plain acks were not synced by themselves"
        time.sleep(0.01)
    client.close()
    running.close()


def test_fault_failing_close_is_reported() -> None:
    class Failing(MemoryStorage):
        def close(self) -> None:
            raise StorageError("the last flush failed")

    running = TestBroker(Failing(), Settings())
    with pytest.raises(StorageError, match="the last flush failed"):
        running.close()
