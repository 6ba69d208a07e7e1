"""The data folder: its owner, its access rights and its format.

Owns the marker file and the access rights. Does not know what RocksDB keeps in the folder.

A format is a layout of keys and records, named `major` or `major.minor`. The last two are read, and the newest is
written: opening an older folder raises its mark. A newer one is refused, because records are read without the fields
that this code does not know, and would be written without them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from magnetar.storage.api import FORMATS, StorageError

MARKER_NAME = "MAGNETAR"
"""The file that marks a folder as ours, with its format. Read before RocksDB touches anything."""

_MARKER_PREFIX = "magnetar data folder, format "
_NAMES_IGNORED = frozenset({"lost+found", MARKER_NAME + ".new"})

PRIVATE_MODE = 0o700
PRIVATE_UMASK = 0o077
"""For a process that writes to data folders: messages and credentials of clusters are in them."""


def claim_folder(path: Path) -> None:
    """Make sure that the folder is ours, usable and of a format we know; a new or empty one is marked as ours."""
    try:
        path.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        names = set(os.listdir(path)) - _NAMES_IGNORED
        if not names:
            write_marker(path)
            return
    except OSError as error:
        raise StorageError(f"data folder {path} cannot be used: {error.strerror}") from error
    check_format(path)
    if not os.access(path, os.W_OK | os.X_OK):
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            raise StorageError(f"the disk of data folder {path} is read-only")
        raise StorageError(f"data folder {path} cannot be used: no permission to write")
    if "CURRENT" not in names and any(name.endswith(".sst") for name in names):
        raise StorageError(f"data folder {path} is corrupted: it holds data, but the file CURRENT is missing")


# -- the format


def format_of(path: Path) -> str:
    """The format that the marker names; raises StorageError if the folder is not ours."""
    try:
        marker = (path / MARKER_NAME).read_text(errors="replace")
    except FileNotFoundError:
        marker = ""
    except OSError as error:
        raise StorageError(f"data folder {path} cannot be used: {error.strerror}") from error
    name = marker.removeprefix(_MARKER_PREFIX).strip()
    if not marker.startswith(_MARKER_PREFIX) or _numbers(name) is None:
        raise StorageError(f"data folder {path} is not empty and not a magnetar data folder")
    return name


def check_format(path: Path) -> str:
    """The format of a folder that this code can read; raises StorageError for another one."""
    name = format_of(path)
    if name in FORMATS:
        return name
    known = f"this magnetar knows format {' and '.join(FORMATS)}"
    if (_numbers(name) or ()) > (_numbers(FORMATS[-1]) or ()):
        raise StorageError(f"data folder {path} has format {name} of a newer version, {known}: start the newer version")
    raise StorageError(f"data folder {path} has format {name}, {known}")


def raise_format(path: Path) -> None:
    """Mark the folder with the newest format, before anything of that format is written."""
    if format_of(path) != FORMATS[-1]:
        try:
            write_marker(path)
        except OSError as error:
            raise StorageError(f"data folder {path} cannot be used: {error.strerror}") from error


def write_marker(path: Path, name: str = FORMATS[-1]) -> None:
    fresh = path / (MARKER_NAME + ".new")
    with open(fresh, "w") as file:
        file.write(f"{_MARKER_PREFIX}{name}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path / MARKER_NAME)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Makes the names in the folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _numbers(name: str) -> tuple[int, ...] | None:
    """(3, 1) for "3.1"; None for what is not the name of a format."""
    parts = name.split(".")
    if len(parts) > 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        return None
    return tuple(map(int, parts))


# -- access


def protect_folder(path: Path) -> str | None:
    """Deny other users the access to an existing folder; returns a warning if they had it.

    Rights of the group alone are the operator's decision, as for volumes of containers: they stay. Raises StorageError
    if the folder belongs to another user and every user may write to it.
    """
    try:
        found = path.stat()
        if not stat.S_ISDIR(found.st_mode) or not found.st_mode & stat.S_IRWXO:
            return None
        mode = stat.S_IMODE(found.st_mode)
        if os.geteuid() in (0, found.st_uid) and _is_tightened(path):
            return f"data folder {path} was open to other users (mode {mode:04o}), its mode is {PRIVATE_MODE:04o} now"
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"data folder {path} cannot be used: {error.strerror}") from error
    if mode & stat.S_IWOTH and found.st_uid != os.geteuid():
        raise StorageError(
            f"data folder {path} belongs to user {found.st_uid}, and every user can write to it (mode {mode:04o}):"
            " give a folder inside it, or change its mode"
        )
    return f"data folder {path} is open to other users (mode {mode:04o}), and its mode cannot be changed"


def _is_tightened(path: Path) -> bool:
    """Some file systems refuse a mode, others ignore it."""
    try:
        path.chmod(PRIVATE_MODE)
    except OSError:
        return False
    return not path.stat().st_mode & stat.S_IRWXO
