"""Damage that a compaction met, noted in the data folder.

RocksDB ends all writes when a compaction reads a block that it cannot check, rather than carry the damage on; and the
next process would meet it again. So it is noted, and from the next start on nothing is compacted: that block stays the
problem of those who read it, and everything else works. Disk space of deleted messages does not come back meanwhile.
The note goes with the damaged file.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

FILE_NAME = "DAMAGE"

_TABLE = re.compile(r"\b[0-9]+\.sst\b")


def note_damage(folder: Path, text: str) -> None:
    with contextlib.suppress(OSError):  # the next start may meet it again
        (folder / FILE_NAME).write_text(text, encoding="utf-8")


def noted_damage(folder: Path) -> str:
    """What was noted, as long as the file that it names is there; empty otherwise."""
    note = folder / FILE_NAME
    try:
        text = note.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    tables = _TABLE.findall(text)
    if tables and not any((folder / name).exists() for name in tables):
        with contextlib.suppress(OSError):
            note.unlink()
        return ""
    return text.strip()
