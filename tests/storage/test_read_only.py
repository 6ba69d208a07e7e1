"""A folder that is only read is not changed, and no broker opens it meanwhile."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.storage.api import FORMATS, Space, StorageBusy, StorageError
from magnetar.storage.folder import MARKER_NAME
from magnetar.storage.read_only import ReadOnlyStorage
from magnetar.storage.rocks import RocksStorage

EVERYTHING = (b"", b"\xff" * 9)

KILLED = """
import os, sys
from pathlib import Path
from magnetar.storage.rocks import RocksStorage
storage = RocksStorage(Path(sys.argv[1]))
for number in range(100):
    batch = storage.batch()
    batch.put_entry(number.to_bytes(8, "big"), b"entry")
    batch.put(b"%d" % number, b"state")
    storage.write(batch)
storage.sync()
os._exit(0)
"""

HOLDS = """
import sys
from pathlib import Path
from magnetar.storage.rocks import RocksStorage
storage = RocksStorage(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
"""

OPENS = """
import sys
from pathlib import Path
from magnetar.storage.rocks import RocksStorage
RocksStorage(Path(sys.argv[1])).close()
"""


def content(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def test_a_folder_is_read_as_it_is_after_a_crash_and_not_changed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=True)
    before = content(tmp_path)
    storage = ReadOnlyStorage(tmp_path)
    assert len(storage.scan(Space.ENTRIES, *EVERYTHING)) == 100
    assert storage.get(Space.STATE, b"99") == b"state"
    assert storage.format == FORMATS[-1]
    storage.close()
    assert content(tmp_path) == before


def test_fault_data_in_use_is_not_read(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(StorageBusy, match="is in use by another process"):
            ReadOnlyStorage(tmp_path)
        process.kill()


def test_no_broker_opens_a_folder_that_is_read(tmp_path: Path) -> None:
    RocksStorage(tmp_path).close()
    storage = ReadOnlyStorage(tmp_path)
    opened = subprocess.run([sys.executable, "-c", OPENS, tmp_path], capture_output=True, check=False)
    assert b"is in use by another process" in opened.stderr
    storage.close()
    subprocess.run([sys.executable, "-c", OPENS, tmp_path], check=True)


def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a magnetar data folder"):
        ReadOnlyStorage(tmp_path)
    assert os.listdir(tmp_path) == []
    RocksStorage(tmp_path).close()
    (tmp_path / MARKER_NAME).write_text("magnetar data folder, format 99\n")
    with pytest.raises(StorageError, match="of a newer version"):
        ReadOnlyStorage(tmp_path)


def test_a_folder_of_the_format_before_keeps_its_mark(tmp_path: Path) -> None:
    RocksStorage(tmp_path).close()
    (tmp_path / MARKER_NAME).write_text(f"magnetar data folder, format {FORMATS[0]}\n")
    storage = ReadOnlyStorage(tmp_path)
    assert storage.format == FORMATS[0]
    storage.close()
    assert FORMATS[0] in (tmp_path / MARKER_NAME).read_text()


def test_a_folder_that_cannot_be_opened_is_released(tmp_path: Path) -> None:
    RocksStorage(tmp_path).close()
    (tmp_path / "CURRENT").write_text("nonsense")
    for _ in range(2):
        with pytest.raises(StorageError):
            ReadOnlyStorage(tmp_path)
