"""Records of declared pipelines, in memory and on disk, by `tenant/namespace/name`.

Owns their storage. A record that cannot be read is listed as damaged, and runs nothing until it is declared again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.broker.damage_list import UNREADABLE, DamageKind, DamageList
from magnetar.declared.model import PipelineRecord
from magnetar.storage.api import Space, Storage

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.Decoder(PipelineRecord).decode

_KIND: DamageKind = "pipeline"


class PipelineRecords:
    def __init__(self, storage: Storage, commits: Commits, damage: DamageList) -> None:
        self._commits = commits
        self._damage = damage
        self._records: dict[str, PipelineRecord] = {}
        self._damaged: set[str] = set()
        for key, value in storage.scan(Space.STATE, keys.PIPELINE, keys.after(keys.PIPELINE)):
            full = key[1:].decode(errors="backslashreplace")
            try:
                self._records[full] = checked(full, value)
            except UNREADABLE as error:
                damage.note(_KIND, full, error)
                self._damaged.add(full)

    def __iter__(self) -> Iterator[PipelineRecord]:
        """By name."""
        return iter([self._records[full] for full in sorted(self._records)])

    def of(self, full: str) -> PipelineRecord | None:
        return self._records.get(full)

    def is_damaged(self, full: str) -> bool:
        return full in self._damaged

    def put(self, record: PipelineRecord) -> None:
        self._repaired(record.full)
        self._records[record.full] = record
        self._commits.put(keys.named(keys.PIPELINE, record.full), encode(record))

    def delete(self, full: str) -> None:
        self._repaired(full)
        self._records.pop(full, None)
        self._commits.batch().delete(keys.named(keys.PIPELINE, full))

    def damaged_in(self, namespace: str) -> list[str]:
        return [full for full in self._damaged if full.startswith(namespace + "/")]

    def _repaired(self, full: str) -> None:
        self._damaged.discard(full)
        self._damage.clear(_KIND, full)


def checked(full: str, value: bytes) -> PipelineRecord:
    """Raises one of `UNREADABLE`."""
    record = decode(value)
    if record.full != full:
        raise msgspec.ValidationError(f"it is the record of {record.full[:100]!r}")
    return record
