"""Manifests: the committed rounds of an archive, and what each of their files contains. JSON, readable by people."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from magnetar.client.message import Position

VERSION = 1

_Model = TypeVar("_Model", bound=msgspec.Struct)


class ArchiveInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What the archive is, written once."""

    version: int
    format: str
    id: str


class DataFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file in place, relative to the archive; `staged` is its name before. Positions are `ledger:entry`.

    `hash` is the exclusive or of the hashes of its rows. In an archive that is a table it stands for the rows of one
    round, partition and date: `name` is their folder, `staged` is empty and `bytes` are those of the payloads.
    """

    name: str
    staged: str
    partition: int
    date: str
    first: str
    last: str
    rows: int
    bytes: int
    hash: int
    unreadable: int = 0

    @property
    def is_file(self) -> bool:
        return bool(self.staged)


class ArchivedRange(msgspec.Struct, frozen=True, rename="camel"):
    """The entries of a partition after `after`, up to and including `last`; -1 is a topic without partitions."""

    partition: int
    after: str
    last: str


class ArchivedRound(msgspec.Struct, frozen=True, rename="camel"):
    """A committed round of one topic. `ends` are the last positions of all its partitions, after this round."""

    topic: str
    number: int
    subscription: str
    token: str
    ranges: list[ArchivedRange]
    files: list[DataFile]
    ends: dict[int, str]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def encode(model: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(model), indent=1)


def decode(data: bytes, kind: type[_Model]) -> _Model:
    """Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(data, type=kind)


def parse_position(text: str) -> Position:
    ledger_id, _, entry_id = text.partition(":")
    return Position(int(ledger_id), int(entry_id))
