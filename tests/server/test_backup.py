"""Backups of a running broker, and brokers that start from them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.cli.main import main
from magnetar.errors import BackupFailed, BackupInTheWay
from magnetar.server.backup import Backups
from magnetar.server.backup_files import LIST_NAME, read_list
from magnetar.storage.api import CheckpointFolder
from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage
from magnetar.testing import broker
from tests.crash.killable import KillableBroker

Ids = dict[bytes, tuple[int, int]]


@contextlib.contextmanager
def serving(data: Path) -> Iterator[KillableBroker]:
    running = KillableBroker(data, ("pipelinesEnabled=false",))
    running.start()
    try:
        yield running
    finally:
        running.kill()


def connect(running: KillableBroker) -> pulsar.Client:
    return pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


class Publishing:
    """A producer that publishes until the end of the block; `acknowledged` are the messages with a receipt."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._producer = client.create_producer(topic)
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: Ids = {}

    def _run(self) -> None:
        number = 0
        while not self._is_over:
            payload = f"{number}".encode() + b" " * 2000
            found = self._producer.send(payload)
            self.acknowledged[payload] = found.ledger_id(), found.entry_id()
            number += 1

    def __enter__(self) -> Publishing:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._is_over = True
        self._thread.join()


def all_of(client: pulsar.Client, topic: str) -> Ids:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: Ids = {}
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found[message.data()] = message.message_id().ledger_id(), message.message_id().entry_id()
    return found


def make_dead_letter(client: pulsar.Client) -> None:
    """One dead letter of subscription "s", one acknowledged message behind it, and one that is not acknowledged."""
    consumer = client.subscribe(
        "failing",
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        properties={"deadLetterPolicy.maxRedeliverCount": "1"},
    )
    producer = client.create_producer("failing", batching_enabled=False)
    for payload in (b"open", b"bad", b"done"):
        producer.send(payload)
    deliveries = 0
    while deliveries < 4:  # the bad one comes twice
        message = consumer.receive(10_000)
        deliveries += 1
        if message.data() == b"bad":
            consumer.negative_acknowledge(message)
        elif message.data() == b"done":
            consumer.acknowledge(message)
    reader = client.create_reader("failing-s-DLQ", pulsar.MessageId.earliest)
    assert reader.read_next(10_000).data() == b"bad"
    client.get_topic_partitions("failing")
    consumer.close()


def subscription_stats(running: KillableBroker) -> Any:
    url = f"{running.http_url}/admin/v2/persistent/public/default/failing/internalStats"
    cursor = httpx.get(url).json()["cursors"]["s"]
    return {name: cursor[name] for name in ("markDeletePosition", "individuallyDeletedMessages")}


def run(*words: str | Path) -> int:
    return main([str(word) for word in words])


def test_fault_data_lost_is_restored_from_a_backup_made_under_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "data") as running, contextlib.closing(connect(running)) as client:
        make_dead_letter(client)
        cursor = subscription_stats(running)
        with Publishing(client, "load") as publishing:
            while len(publishing.acknowledged) < 200:
                time.sleep(0.001)
            before = dict(publishing.acknowledged)
            assert run("backup", tmp_path / "backup", "--url", running.http_url) == 0
            count = len(publishing.acknowledged)
            while len(publishing.acknowledged) < count + 50:  # the original goes on
                time.sleep(0.001)
        assert all_of(client, "load") == publishing.acknowledged
        assert not (tmp_path / "data" / "backup").exists()
    shutil.rmtree(tmp_path / "data")

    capsys.readouterr()
    assert run("restore", tmp_path / "backup", "--data", tmp_path / "again", "--json") == 0
    restored = json.loads(capsys.readouterr().out)
    assert (restored["cluster"], restored["topics"], restored["subscriptions"]) == ("standalone", 3, 1)
    with serving(tmp_path / "again") as running, contextlib.closing(connect(running)) as client:
        found = all_of(client, "load")
        assert before.items() <= found.items()
        assert found.items() <= publishing.acknowledged.items()
        assert subscription_stats(running) == cursor
        assert list(all_of(client, "failing-s-DLQ")) == [b"bad"]
        consumer = client.subscribe("failing", "s", pulsar.ConsumerType.Shared)
        assert consumer.receive(10_000).data() == b"open"
        later = client.create_producer("load").send(b"later")
        assert (later.ledger_id(), later.entry_id()) > max(found.values())
        assert run("backup", tmp_path / "second", "--url", running.http_url) == 0


def test_a_backup_keeps_the_name_of_its_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(tmp_path / "data", clusterName="east") as running:
        assert run("backup", tmp_path / "backup", "--url", running.http_url) == 0
    capsys.readouterr()
    assert run("restore", tmp_path / "backup", "--data", tmp_path / "again") == 0
    assert "east" in capsys.readouterr().out
    words = ("--data", tmp_path / "again", "--cluster", "west", "--port", "0", "--http-port", "0")
    assert run("standalone", *words) == 1
    assert "the data belongs to cluster east, not west" in capsys.readouterr().err


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with broker(tmp_path / "data") as running:
        assert run("backup", tmp_path / "backup", "--url", running.http_url) == 0
    return tmp_path / "backup"


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    assert run(*words) == 1
    return capsys.readouterr().err


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_fault_backup_damaged_is_refused_and_leaves_nothing(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in read_list(backup).files:
        kept = (backup / name).read_bytes()
        if not kept:
            continue
        damage(backup / name)
        assert "backup" in refusal(capsys, "restore", backup, "--data", tmp_path / "again")
        assert not (tmp_path / "again").exists() or not list((tmp_path / "again").iterdir())
        (backup / name).unlink()
        assert name in refusal(capsys, "restore", backup, "--data", tmp_path / "again") or name == "MAGNETAR"
        (backup / name).write_bytes(kept)
    assert run("restore", backup, "--data", tmp_path / "again") == 0


def test_fault_backup_damaged_by_its_interruption_is_refused(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (backup / LIST_NAME).unlink()
    said = refusal(capsys, "restore", backup, "--data", tmp_path / "again")
    assert f"{backup} is not a backup, or not a complete one" in said


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"files": 3}', "\xff"])
def test_a_list_that_is_no_list_is_refused(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (backup / LIST_NAME).write_text(text, encoding="latin-1")
    assert f"file {LIST_NAME} of backup {backup} is damaged" in refusal(
        capsys, "restore", backup, "--data", tmp_path / "again"
    )


def test_a_list_cannot_name_files_outside(backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads((backup / LIST_NAME).read_text())
    listed["files"]["../outside"] = {"size": 1, "crc32c": 1}
    (backup / LIST_NAME).write_text(json.dumps(listed))
    assert "is damaged" in refusal(capsys, "restore", backup, "--data", tmp_path / "again")


def test_folders_that_are_not_empty_are_refused(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"folder {backup} is not empty" in refusal(capsys, "restore", backup, "--data", backup)
    assert f"folder {backup} is not empty" in refusal(capsys, "backup", backup)
    (tmp_path / "file").touch()
    assert "cannot be used" in refusal(capsys, "backup", tmp_path / "file")


def test_a_copy_is_private(backup: Path, tmp_path: Path) -> None:
    assert run("restore", backup, "--data", tmp_path / "again") == 0
    for folder in (backup, tmp_path / "again"):
        assert [path for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o077] == []


def test_a_broker_that_is_not_there_and_one_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "backup", tmp_path / "b", "--url", "http://127.0.0.1:1")
    assert "the data folder of a stopped broker can be copied as it is" in said
    with broker() as running:
        assert "keeps its messages in memory" in refusal(capsys, "backup", tmp_path / "b", "--url", running.http_url)
    assert not (tmp_path / "b").exists()


def test_bound_backups_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(tmp_path / "data") as running:
        url = f"{running.http_url}/admin/v2/brokers/backup"
        made = httpx.post(url)
        assert made.status_code == 200
        assert made.json()["path"] == str(tmp_path / "data" / "backup")
        assert httpx.post(url).status_code == 409
        said = refusal(capsys, "backup", tmp_path / "b", "--url", running.http_url)
        assert "another backup is under way, or was left unfinished" in said
        assert run("backup", "--discard", "--url", running.http_url) == 0
        assert not (tmp_path / "data" / "backup").exists()
        assert httpx.delete(url).status_code == 204
        assert run("backup", tmp_path / "b", "--url", running.http_url) == 0
        assert httpx.post(url).status_code == 200
    with broker(tmp_path / "data") as running:  # a checkpoint ends with its broker
        assert not (tmp_path / "data" / "backup").exists()
        assert httpx.post(f"{running.http_url}/admin/v2/brokers/backup").status_code == 200


async def _drained() -> None:
    pass


class SlowStorage(MemoryStorage):
    """Makes a checkpoint for as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def checkpoint(self) -> CheckpointFolder:
        self.may_end.wait(30)
        return CheckpointFolder("there", 0, 0)

    def discard_checkpoint(self) -> bool:
        return False


def test_bound_backups_while_one_is_made() -> None:
    async def both() -> None:
        storage = SlowStorage()
        backups = Backups(storage, _drained)
        first = asyncio.ensure_future(backups.make())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for second in (backups.make, backups.discard):
            with pytest.raises(BackupInTheWay, match="a checkpoint is being made"):
                await second()
        storage.may_end.set()
        assert (await first).path == "there"

    asyncio.run(both())


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["backup"], ["backup", str(tmp_path / "b"), "--discard"], ["backup", " "], ["restore", " "]):
        assert run(*words) == 2, words


def test_a_failed_checkpoint_is_reported_and_can_be_repeated(tmp_path: Path) -> None:
    async def fails() -> None:
        storage = RocksStorage(tmp_path)
        backups = Backups(storage, _drained)
        (tmp_path / "backup").mkdir()
        with pytest.raises(BackupFailed, match="has a checkpoint already"):
            await backups.make()
        await backups.discard()
        assert (await backups.make()).files > 3
        storage.close()

    asyncio.run(fails())
