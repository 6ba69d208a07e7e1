"""The check of a data folder while no broker uses it, and its repair: opens the storage, exports and swaps folders.

Owns files and folders. What is damaged, and what repairs it, is in `broker.check`.

    DIR.export-1/rows.jsonl   every row that a repair changed or deleted, as it was
    DIR.damaged-1/            the whole folder as it was, if parts of its files could not be read
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.bounds import FINDINGS_SHOWN
from magnetar.broker import keys
from magnetar.broker.check.check import DataCheck
from magnetar.broker.check.finding import Change, Finding, apply
from magnetar.broker.check.ledgers import new_ledgers
from magnetar.broker.check.reading import Hole, rows
from magnetar.broker.check.repair import repair
from magnetar.errors import DataCheckFailed
from magnetar.storage.api import Space, Storage, StorageError, StorageLoss
from magnetar.storage.folder import PRIVATE_MODE, PRIVATE_UMASK, sync_folder
from magnetar.storage.read_only import ReadOnlyStorage
from magnetar.storage.rocks import RocksStorage

_COPIED_SIZE = 1 << 20
_END = b"\xff" * 64


@dataclass(slots=True)
class DataReport:
    """`findings` are the first ones, `count` is the number of all of them, repaired or not; `left` what is left."""

    format: str
    topics: int = 0
    subscriptions: int = 0
    records: int = 0
    findings: list[Finding] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    count: int = 0
    left: int = 0
    exported: int = 0
    export: str = ""
    kept: str = ""

    def add(self, finding: Finding) -> None:
        self.count += 1
        if len(self.findings) < FINDINGS_SHOWN.limit:
            self.findings.append(finding)


def check_data(path: Path) -> DataReport:
    """Read everything and change nothing; raises DataCheckFailed if the folder cannot be opened."""
    try:
        storage = ReadOnlyStorage(path)
    except StorageError as error:
        raise DataCheckFailed(str(error)) from error
    try:
        report = DataReport(storage.format)
        check = DataCheck(storage)
        if storage.missing_writes:
            report.add(_cut_log(storage.missing_writes))
        for finding in check.findings():
            report.add(finding)
        _describe(report, check)
        report.left = report.count + len(report.holes)
        return report
    finally:
        storage.close()


def fix_data(path: Path) -> DataReport:
    """Repair what can be repaired. The report has what was found before, and what is left after it."""
    report = check_data(path)
    if not report.left:
        return report
    before = os.umask(PRIVATE_UMASK)
    try:
        _fix(path, report)
    except StorageLoss as error:
        raise DataCheckFailed(f"{error}: start the broker once with --accept-loss, or restore a backup") from error
    except (StorageError, OSError) as error:
        raise DataCheckFailed(f"the repair of data folder {path} ended: {error}") from error
    finally:
        os.umask(before)
    after = check_data(path)
    report.left = after.left
    report.topics, report.subscriptions = after.topics, after.subscriptions
    return report


def _cut_log(missing: int) -> Finding:
    """Only the broker can go on without them: it gives no id twice."""
    return Finding(
        "log",
        "the broker",
        f"{missing} changes or more that were acknowledged are missing: the log is damaged",
        "not be done here: start the broker once with --accept-loss, or restore a backup",
    )


def _describe(report: DataReport, check: DataCheck) -> None:
    report.holes = list(dict.fromkeys(check.holes))
    report.topics = len(check.inventory.topics)
    report.subscriptions = len(check.inventory.subscriptions)
    report.records = check.inventory.records


def _fix(path: Path, report: DataReport) -> None:
    if report.holes:
        report.kept = str(_salvage(path))
    storage = RocksStorage(path)
    try:
        export = _Export(path)
        repair(storage, export.add, export.flush)
        if report.holes:
            _continue_in_new_ledgers(storage, report.holes)
        report.exported, report.export = export.count, export.close()
    finally:
        storage.close()


def _continue_in_new_ledgers(storage: Storage, holes: list[Hole]) -> None:
    """The last entries of a topic may be lost, with their ids: later messages have ids of another ledger."""
    check = DataCheck(storage)
    for _ in check.findings():
        pass
    lost = [(_topic_of(hole.start), _topic_of(hole.end)) for hole in holes if hole.space is Space.ENTRIES]
    batch = storage.batch()
    for change in new_ledgers(check.inventory, lost):
        apply(batch, change)
    storage.write(batch)
    storage.sync()


def _topic_of(key: bytes) -> int:
    number: int = keys.ID.unpack(key[:8].ljust(8, b"\0"))[0]
    return number


def _salvage(path: Path) -> Path:
    """Copy every row that can be read into a new folder, and put it in the place of the old one, which is kept."""
    fresh, kept = _free(path, "repaired"), _free(path, "damaged")
    old, new = ReadOnlyStorage(path), RocksStorage(fresh)
    try:
        for space in Space:
            _copy(old, new, space)
        new.sync()
    finally:
        new.close()
        old.close()
    path.rename(kept)
    fresh.rename(path)
    sync_folder(path.resolve().parent)
    return kept


def _copy(old: Storage, new: Storage, space: Space) -> None:
    batch = new.batch()
    for row in rows(old, space, b"", _END):
        if isinstance(row, Hole):
            continue
        apply(batch, Change(space, *row))
        if batch.size_bytes() > _COPIED_SIZE:
            new.write(batch)
            batch = new.batch()
    new.write(batch)


def _free(path: Path, what: str) -> Path:
    number = 1
    while (found := path.with_name(f"{path.name}.{what}-{number}")).exists():
        number += 1
    return found


class _Export:
    """JSON lines, in a folder that is made for the first row."""

    def __init__(self, path: Path) -> None:
        self._folder = _free(path.resolve(), "export")
        self._file: int | None = None
        self.count = 0

    def add(self, finding: Finding, change: Change, value: bytes) -> None:
        row = {
            "space": change.space.name.lower(),
            "key": base64.b64encode(change.key).decode(),
            "value": base64.b64encode(value).decode(),
            "kind": finding.kind,
            "name": finding.name,
            "what": finding.what,
            "repair": finding.repair,
        }
        if self._file is None:
            self._folder.mkdir(mode=PRIVATE_MODE)
            self._file = os.open(self._folder / "rows.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
        os.write(self._file, json.dumps(row).encode() + b"\n")
        self.count += 1

    def flush(self) -> None:
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> str:
        """The file, if there is one."""
        if self._file is None:
            return ""
        os.close(self._file)
        return str(self._folder / "rows.jsonl")
