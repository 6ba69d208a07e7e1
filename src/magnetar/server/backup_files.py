"""Backups as files: a checkpoint copied to a folder, with the size and checksum of each file, and a backup copied back.

Owns the file that lists them, which is written last: a folder without it is no backup. Knows nothing of a running
broker. A restored folder gets its marker last, so one that was not finished is never opened.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import msgspec

from magnetar.broker import keys, own_cluster
from magnetar.errors import BackupFailed
from magnetar.storage.api import Space, StorageError
from magnetar.storage.folder import MARKER_NAME, PRIVATE_MODE, PRIVATE_UMASK, check_format, sync_folder

LIST_NAME = "BACKUP"
_CHUNK = 4 << 20
_NAMES_IGNORED = frozenset({"lost+found"})

Progress = Callable[[int, int], None]
"""Gets the bytes copied so far, and all of them."""


class BackupFile(msgspec.Struct, frozen=True):
    size: int
    crc32c: int


class BackupList(msgspec.Struct, frozen=True):
    """`files` by name; `version` is that of the broker."""

    version: str
    format: str
    cluster: str
    made_ms: int
    files: dict[str, BackupFile]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


class Restored(NamedTuple):
    listed: BackupList
    cluster: str
    topics: int
    subscriptions: int


_decode = msgspec.json.Decoder(BackupList).decode


def copy_checkpoint(
    checkpoint: Path, target: Path, *, version: str, cluster: str, made_ms: int, progress: Progress
) -> BackupList:
    """Copy a checkpoint into a new or empty folder."""
    before = os.umask(PRIVATE_UMASK)
    try:
        names = sorted(os.listdir(checkpoint))
        size = sum((checkpoint / name).stat().st_size for name in names)
        _create(target)
        try:
            copy = _Copy(checkpoint, target, size, progress)
            files = {name: copy.file(name) for name in names}
            listed = BackupList(version, check_format(target), cluster, made_ms, files)
            _write_list(target, listed)
            return listed
        except BaseException:
            _clear(target)
            raise
    except PermissionError as error:
        raise BackupFailed(
            f"{error.filename} cannot be read or written: run this as the user of the broker, on its machine"
        ) from error
    except FileNotFoundError as error:
        raise BackupFailed(
            f"{error.filename} does not exist: run this on the machine of the broker; its checkpoint may be gone"
        ) from error
    except OSError as error:
        raise BackupFailed(f"backup to {target} failed: {error.strerror}") from error
    except StorageError as error:
        raise BackupFailed(str(error)) from error
    finally:
        os.umask(before)


def read_list(backup: Path) -> BackupList:
    """What the backup says of itself; raises BackupFailed."""
    try:
        listed = _decode((backup / LIST_NAME).read_bytes())
        check_format(backup)
    except FileNotFoundError as error:
        raise BackupFailed(f"{backup} is not a backup, or not a complete one: it has no file {LIST_NAME}") from error
    except OSError as error:
        raise BackupFailed(f"backup {backup} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupFailed(f"file {LIST_NAME} of backup {backup} is damaged: {error}") from error
    except StorageError as error:
        raise BackupFailed(f"backup {backup}: {error}") from error
    if MARKER_NAME not in listed.files or any("/" in name or name in ("", ".", "..") for name in listed.files):
        raise BackupFailed(f"file {LIST_NAME} of backup {backup} is damaged: it does not name the files of a backup")
    return listed


def restore(backup: Path, data: Path, progress: Progress) -> Restored:
    """Copy a backup into a new or empty folder, checking every byte, and open it once."""
    listed = read_list(backup)
    before = os.umask(PRIVATE_UMASK)
    try:
        _create(data)
        try:
            _copy_back(listed, backup, data, progress)
            return _opened(listed, data)
        except BaseException:
            _clear(data)
            raise
    except OSError as error:
        raise BackupFailed(f"restoring {backup} to {data} failed: {error.strerror}") from error
    except StorageError as error:
        raise BackupFailed(f"backup {backup} cannot be opened: {error}") from error
    finally:
        os.umask(before)


def _copy_back(listed: BackupList, backup: Path, data: Path, progress: Progress) -> None:
    copy = _Copy(backup, data, listed.size, progress)
    for name, file in sorted(listed.files.items(), key=lambda item: item[0] == MARKER_NAME):
        try:
            found = copy.file(name)
        except FileNotFoundError as error:
            raise BackupFailed(f"backup {backup} is damaged: file {name} is missing") from error
        if found != file:
            raise BackupFailed(
                f"backup {backup} is damaged: file {name} has {found.size} bytes with checksum {found.crc32c:08x},"
                f" it was made with {file.size} and {file.crc32c:08x}"
            )
    sync_folder(data)


def _opened(listed: BackupList, data: Path) -> Restored:
    from magnetar.storage.read_only import ReadOnlyStorage

    storage = ReadOnlyStorage(data)
    try:
        counts = [len(storage.scan(Space.STATE, kind, keys.after(kind))) for kind in (keys.TOPIC, keys.SUBSCRIPTION)]
        return Restored(listed, own_cluster.recorded_name(storage) or listed.cluster, *counts)
    finally:
        storage.close()


def require_empty(folder: Path) -> None:
    """Raises BackupFailed unless the folder is empty or does not exist."""
    try:
        names = set(os.listdir(folder)) - _NAMES_IGNORED
    except FileNotFoundError:
        return
    except OSError as error:
        raise BackupFailed(f"folder {folder} cannot be used: {error.strerror}") from error
    if names:
        raise BackupFailed(f"folder {folder} is not empty")


def _create(folder: Path) -> None:
    require_empty(folder)
    folder.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)


def _clear(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for name in set(os.listdir(folder)) - _NAMES_IGNORED:
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


class _Copy:
    """From one folder to another; `size` is that of all files."""

    def __init__(self, source: Path, target: Path, size: int, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._size = size
        self._progress = progress
        self._done = 0

    def file(self, name: str) -> BackupFile:
        size, crc = 0, 0
        with (self._source / name).open("rb") as reader, (self._target / name).open("xb") as writer:
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)
                crc = google_crc32c.extend(crc, chunk)
                size += len(chunk)
                self._done += len(chunk)
                self._progress(self._done, self._size)
            writer.flush()
            os.fsync(writer.fileno())
        return BackupFile(size, crc)


def _write_list(target: Path, listed: BackupList) -> None:
    fresh = target / f"{LIST_NAME}.new"
    with fresh.open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(listed)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(target)
    fresh.rename(target / LIST_NAME)
    sync_folder(target)
