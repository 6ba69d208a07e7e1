"""A checkpoint: the files of a RocksDB folder as they are at one moment, beside the data, while it is in use.

Owns which files belong to it and how they are collected. Data files never change, so they are hard links; the others
are small and copied. RocksDB's own checkpoint does the same, but holds the interpreter's lock while it copies logs.

The caller holds writes and has flushed both families, so no log is needed. What may still happen is the end of a
compaction, which first notes its new files in the manifest and then deletes the old ones: as long as the manifest is
the same before and after the links, no file that it names was deleted in between.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from magnetar.storage.api import CheckpointFolder, StorageError
from magnetar.storage.folder import MARKER_NAME, PRIVATE_MODE, sync_folder

FOLDER_NAME = "backup"
"""The place of the checkpoint in the data folder: hard links need the same file system."""

_CURRENT = "CURRENT"
_COPIED = ("rocksdict-config.json", "IDENTITY")
_ATTEMPTS = 100


def collect(data: Path) -> CheckpointFolder:
    """Make the checkpoint of the data folder; the caller holds writes."""
    fresh, done = data / f"{FOLDER_NAME}.new", data / FOLDER_NAME
    if done.exists():
        raise StorageError(f"data folder {data} has a checkpoint already")
    for _ in range(_ATTEMPTS):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=PRIVATE_MODE)
        if _is_collected(data, fresh):
            break
    else:
        shutil.rmtree(fresh, ignore_errors=True)
        raise StorageError(f"files of data folder {data} changed {_ATTEMPTS} times while they were collected")
    sync_folder(fresh)
    fresh.rename(done)
    sizes = [path.stat().st_size for path in done.iterdir()]
    return CheckpointFolder(str(done.resolve()), len(sizes), sum(sizes))


def discard(data: Path) -> bool:
    """Remove the checkpoint and what is left of an interrupted one; whether there was any."""
    found = [path for name in (FOLDER_NAME, f"{FOLDER_NAME}.new") if (path := data / name).exists()]
    for path in found:
        shutil.rmtree(path)
    return bool(found)


def _is_collected(data: Path, target: Path) -> bool:
    current = (data / _CURRENT).read_bytes()
    manifest = data / current.decode().strip()
    size = manifest.stat().st_size
    try:
        for name in os.listdir(data):
            if name.endswith(".sst"):
                os.link(data / name, target / name)
            elif name.startswith("OPTIONS-") or name in _COPIED:
                _write(target / name, (data / name).read_bytes())
    except FileNotFoundError:  # deleted meanwhile: obsolete, or the manifest changed too
        return False
    content = manifest.read_bytes()  # it only grows
    if len(content) != size or (data / _CURRENT).read_bytes() != current:
        return False
    _write(target / manifest.name, content)
    _write(target / _CURRENT, current)
    _write(target / MARKER_NAME, (data / MARKER_NAME).read_bytes())
    return True


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
