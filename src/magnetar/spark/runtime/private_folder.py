"""Private folders: where files are kept for later processes of the same user, in the folder for temporary files."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def private_folder(purpose: str) -> Path | None:
    """A folder that no other user can write to; None if there is no such folder and it cannot be created."""
    folder = Path(tempfile.gettempdir(), f"magnetar-{purpose}-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _WRITABLE_BY_OTHERS
    return folder if is_ours else None
