"""The interface of durable storage: ordered bytes in two spaces, atomic batches, and an explicit sync.

Owns the protocols that `rocks` and `memory` implement, and their errors. Knows neither topics nor cursors nor any other
meaning of a key, and has no policy: the caller decides when to write, sync, trim or compact.

Threads: one thread at a time writes and syncs; others may build batches, get, scan and make checkpoints meanwhile.
`close` comes after all of them have stopped; it ends a compaction that is under way.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

FORMATS = ("3", "3.1")
"""The layouts of a data folder that this code reads, the newest last: that one is written. Others are refused.

A field that is added to a record makes a new minor format; a change that needs a conversion makes a new major one.
"""


class StorageError(Exception):
    """A failed operation: folder unusable, disk full, fsync failed, data corrupted.

    After a failed write or sync the content of the disk is unknown, so the storage stays failed: every later write and
    sync raises again, until the folder is reopened.
    """


class StorageBusy(StorageError):
    """The data folder is open in another process (or a second time in this one)."""


class StorageDamaged(StorageError):
    """A part of the data cannot be read. Other parts can."""


class StorageFull(StorageError):
    """The disk, or the quota on it, is used up."""


class StorageLoss(StorageError):
    """The data folder has less than was synced: `missing` writes that may have been acknowledged, or more."""

    def __init__(self, folder: object, missing: int) -> None:
        super().__init__(
            f"data folder {folder} has lost {missing} changes or more that were on disk and acknowledged: its log is"
            " damaged"
        )
        self.missing = missing


class Space(enum.IntEnum):
    """Two key spaces, stored apart so that appended entries never share files with state that is overwritten."""

    ENTRIES = 0
    STATE = 1


class DiskUse(NamedTuple):
    """Bytes that the data folder `path` takes, that its disk has left, and that the disk has in all."""

    path: str
    used: int
    free: int
    total: int


class CheckpointFolder(NamedTuple):
    """A copy of everything written up to one moment, in the folder `path`; `size` is in bytes."""

    path: str
    files: int
    size: int


class Pressure(NamedTuple):
    """How far storage is behind: whether it takes no writes, the bytes a second that it takes where it slows them down
    (0 if it does not), and failures of its background work.
    """

    is_stopped: bool
    delayed_rate: int
    background_errors: int


class Batch(Protocol):
    """One atomic write, built step by step and applied in that order. It can be written once.

    Keys and values are `bytes` and nothing else (no bytearray, no memoryview).
    """

    def put_entry(self, key: bytes, value: bytes, /) -> None:
        """Put into `Space.ENTRIES`; the hot one."""

    def put(self, key: bytes, value: bytes, /) -> None:
        """Put into `Space.STATE`."""

    def delete(self, key: bytes, /) -> None:
        """Delete from `Space.STATE`; an absent key is fine."""

    def delete_range(self, space: Space, start: bytes, end: bytes, /) -> None:
        """Delete every key in [start, end); an empty or reversed range deletes nothing."""

    def size_bytes(self) -> int:
        """The approximate number of bytes that writing this batch copies."""
        ...

    def __len__(self) -> int:
        """The number of operations."""
        ...


class Storage(Protocol):
    """Ordered key-value storage that is durable up to the last `sync`."""

    @property
    def folder(self) -> Path | None:
        """The data folder; None for a storage without a disk."""
        ...

    @property
    def read_failures(self) -> int:
        """Reads that failed: a few are a bad block, many are a disk that dies. They do not end anything."""
        ...

    @property
    def damage(self) -> str:
        """The damaged part that a compaction met earlier; nothing is compacted as long as it is there. Else empty."""
        ...

    @property
    def lost_writes(self) -> int:
        """Synced writes that were not found at the start, which was to go on without them; 0 otherwise."""
        ...

    @property
    def has_gaps(self) -> bool:
        """Whether writes before later ones are among those that were lost, not only the last ones."""
        ...

    @property
    def sequence(self) -> int:
        """The number of operations ever written, those of earlier processes included."""
        ...

    def batch(self) -> Batch:
        """A new empty batch."""
        ...

    def write(self, batch: Batch, /) -> None:
        """Apply the batch as a whole: visible to reads when this returns, durable after the next `sync`."""

    def sync(self) -> None:
        """Everything written before the call is durable when it returns. Blocks on the disk; releases the GIL."""

    def mark_synced(self) -> None:
        """Record how much is synced, so that a later start knows if it finds less. Blocks on the disk: call in a
        thread. Others may write and sync at the same time."""

    def get(self, space: Space, key: bytes, /) -> bytes | None:
        """The value of the key, or None."""
        ...

    def scan(
        self,
        space: Space,
        start: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        size_max: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """Rows of [start, end) in key order, or from the end backwards with `reverse`.

        At most `limit` rows; stops after about `size_max` bytes of values, but never before the first row.
        """
        ...

    def compact(self, space: Space, start: bytes, end: bytes, /) -> None:
        """Free the disk space of deleted keys in [start, end). Slow, releases the GIL: call in a thread."""

    def release_log(self) -> None:
        """Free the disk space of the log of earlier writes. Slow, releases the GIL: call in a thread."""

    def disk_use(self) -> DiskUse | None:
        """The disk space in use now; None for a storage without a disk."""
        ...

    def pressure(self) -> Pressure | None:
        """Quick; None for a storage without background work."""
        ...

    def close(self) -> None:
        """Sync and release everything; a second call does nothing. Any other use afterwards raises StorageError."""


@runtime_checkable
class Checkpointed(Protocol):
    """A storage on disk, which can make one checkpoint at a time."""

    def checkpoint(self) -> CheckpointFolder:
        """Writes wait meanwhile. Slow, releases the GIL: call in a thread."""
        ...

    def discard_checkpoint(self) -> bool:
        """Remove it, or what is left of an interrupted one; whether there was any."""
        ...
