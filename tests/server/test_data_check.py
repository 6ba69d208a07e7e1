"""`magnetar doctor data` on real folders: damaged records, damaged files, and folders that cannot be opened."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from magnetar.bounds import FINDINGS_SHOWN
from magnetar.broker import keys
from magnetar.cli.main import main
from magnetar.storage.api import Space
from magnetar.storage.rocks import RocksStorage
from tests.formats.content import described, populate, populate_more
from tests.storage.test_read_only import HOLDS

TOPIC = keys.named(keys.TOPIC, "persistent://public/default/t")
TENANT = keys.named(keys.TENANT, "acme")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    storage = RocksStorage(folder)
    populate(storage)
    populate_more(storage)
    storage.close()
    return folder


def put(data: Path, *pairs: tuple[bytes, bytes]) -> None:
    storage = RocksStorage(data)
    batch = storage.batch()
    for key, value in pairs:
        batch.put(key, value)
    storage.write(batch)
    storage.close()


def seen(data: Path) -> Any:
    storage = RocksStorage(data)
    found = described(storage)
    storage.close()
    return found


def content(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


class Doctor:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, data: Path, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main(["doctor", "data", str(data), *words])
        out, err = self._capsys.readouterr()
        return code, out + err

    def json(self, data: Path, *words: str) -> Any:
        return json.loads(self(data, *words, "--json")[1])


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


def test_a_healthy_folder_is_read_whole_and_not_changed(data: Path, doctor: Doctor) -> None:
    before = content(data)
    code, said = doctor(data)
    assert code == 0
    assert "no damage in" in said and "8 topics, 2 subscriptions" in said
    assert doctor(data, "--fix")[0] == 0
    assert content(data) == before
    assert [path.name for path in data.parent.iterdir()] == ["data"]


def test_fault_repaired_record_offline_is_named_and_repaired(data: Path, doctor: Doctor) -> None:
    before = seen(data)
    put(data, (TOPIC, b"\xc1"), (TENANT, b"\xc1"))
    unchanged = content(data)
    code, said = doctor(data)
    assert code == 1
    assert "persistent://public/default/t" in said and "--fix repairs them" in said
    assert content(data) == unchanged
    report = doctor.json(data)
    assert {finding["kind"] for finding in report["findings"]} >= {"topic", "tenant"}
    assert report["left"] == report["found"] > 0

    code, said = doctor(data, "--fix")
    assert code == 0, said
    assert "0 left" in said
    exported = [json.loads(line) for line in (data.parent / "data.export-1" / "rows.jsonl").read_text().splitlines()]
    assert {(base64.b64decode(row["key"]), base64.b64decode(row["value"])) for row in exported} >= {
        (TOPIC, b"\xc1"),
        (TENANT, b"\xc1"),
    }
    assert not any(path.stat().st_mode & 0o077 for path in (data.parent / "data.export-1").rglob("*"))
    assert doctor(data)[0] == 0
    after = seen(data)
    assert after["topics"] == before["topics"]
    assert after["namespaces"] == before["namespaces"]


def damage_files(data: Path, space: Space) -> int:
    """Flips a byte in the middle of each block of a data file; returns the number of files."""
    count = 0
    for path in data.glob("*.sst"):
        storage_bytes = bytearray(path.read_bytes())
        if (b"magnetar-marker" in storage_bytes) == (space is Space.ENTRIES):
            storage_bytes[len(storage_bytes) // 4] ^= 0xFF
            path.write_bytes(storage_bytes)
            count += 1
    return count


def large(folder: Path) -> None:
    """Many blocks of entries of two topics, incompressible."""
    from tests.formats.content import StoredWorld

    storage = RocksStorage(folder)
    world = StoredWorld(storage)
    noise = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(200))
    for number in range(200):
        producer = world.topic("big").producers.by_name.get("p") or world.producer("big")
        from magnetar.wire.metadata import build_blob
        from magnetar.wire.schema_pb2 import MessageMetadata

        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        payload = b"magnetar-marker" + noise[number:] + noise[:number]
        blob = build_blob(metadata, payload)
        world.topic("big").publish(producer, [(number, number, 1, blob, False, False)])
        world.settle()
    world.publish(3, "small")
    world.consumer("s", "big", permits=0)
    storage.close()


def test_fault_repaired_block_offline_costs_what_was_in_it(tmp_path: Path, doctor: Doctor) -> None:
    data = tmp_path / "data"
    large(data)
    assert damage_files(data, Space.ENTRIES) == 1
    report = doctor.json(data)
    assert [finding["kind"] for finding in report["findings"]][:1] == ["unreadable"]
    assert doctor(data)[0] == 1

    code, said = doctor(data, "--fix")
    assert code == 0, said
    assert (tmp_path / "data.damaged-1" / "MAGNETAR").exists()
    assert doctor(data)[0] == 0
    found = seen(data)["topics"]
    kept = [message[0] for message in found["persistent://public/default/big"]["messages"]]
    assert 150 < len(kept) < 200
    assert found["persistent://public/default/big"]["bounds"] == [0, 199]
    assert len(found["persistent://public/default/small"]["messages"]) == 3
    storage = RocksStorage(data)  # the lost ones are passed
    from tests.formats.content import StoredWorld

    world = StoredWorld(storage)
    world.consumer("s", "big")
    delivered = world.client.take()
    assert [entry for entry in delivered if entry < 200] == kept
    storage.close()


def test_fault_data_in_use_is_not_checked(data: Path, doctor: Doctor) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"open\n"
        for words in ((), ("--fix",)):
            code, said = doctor(data, *words)
            assert (code, "is in use by another process" in said) == (1, True)
        holder.kill()


MARKED = """
import os, sys
from pathlib import Path
from magnetar.storage.rocks import RocksStorage
from tests.formats.content import populate
storage = RocksStorage(Path(sys.argv[1]))
populate(storage)
storage.sync()
storage.mark_synced()
os._exit(0)
"""


def test_a_log_that_was_cut_off_is_the_brokers_to_decide(tmp_path: Path, doctor: Doctor) -> None:
    data = tmp_path / "data"
    subprocess.run([sys.executable, "-c", MARKED, data], check=True)
    assert doctor(data)[0] == 0
    (log,) = data.glob("*.log")
    content_of_log = bytearray(log.read_bytes())
    content_of_log[len(content_of_log) // 2] ^= 0xFF
    log.write_bytes(content_of_log)
    before = content(data)
    report = doctor.json(data)
    assert report["findings"][0]["kind"] == "log"
    assert "that were acknowledged are missing" in report["findings"][0]["what"]
    code, said = doctor(data, "--fix")
    assert (code, "--accept-loss" in said) == (1, True)
    assert content(data) == before


def test_what_is_no_data_folder_is_refused(tmp_path: Path, doctor: Doctor) -> None:
    assert "not a magnetar data folder" in doctor(tmp_path)[1]
    assert "not a magnetar data folder" in doctor(tmp_path / "missing")[1]
    assert doctor(Path(" "))[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_bound_findings_shown(data: Path, doctor: Doctor) -> None:
    number = FINDINGS_SHOWN.limit + 5
    put(data, *((b"z%d" % index, b"?") for index in range(number)))
    report = doctor.json(data)
    assert (len(report["findings"]), report["found"]) == (FINDINGS_SHOWN.limit, number)
    assert "and 5 more" in doctor(data)[1]
    assert doctor(data, "--fix")[0] == 0
    assert len((data.parent / "data.export-1" / "rows.jsonl").read_text().splitlines()) == number


def test_a_backup_can_be_checked(data: Path, doctor: Doctor, tmp_path: Path) -> None:
    storage = RocksStorage(data)
    path = Path(storage.checkpoint().path)
    storage.close()
    assert doctor(path)[0] == 0
