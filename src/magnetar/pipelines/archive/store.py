"""The store of an archive: its committed rounds, and the commit.

A round is committed by its manifest, a file that is written atomically. Data files are written to a staging folder
before, and renamed into place after it. So what is in place is committed, and what a killed run leaves is finished or
deleted by the next one. Runs of the same topics exclude each other by their subscriptions, not here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from magnetar.declared.archive import check_format
from magnetar.pipelines.archive import layout
from magnetar.pipelines.archive.folder import Folder
from magnetar.pipelines.archive.manifest import VERSION, ArchivedRound, ArchiveInfo, decode, encode
from magnetar.pipelines.run import RunFailed

_Model = TypeVar("_Model", bound=msgspec.Struct)


class _StagedTopics(msgspec.Struct, frozen=True):
    topics: list[str]


class Archive:
    """An open archive."""

    def __init__(self, folder: Folder, info: ArchiveInfo) -> None:
        self.folder = folder
        self.info = info

    @staticmethod
    def open(folder: Folder) -> Archive:
        if not folder.exists(layout.INFO):
            raise RunFailed(f"{folder.path} is not an archive: there is no file {layout.INFO}")
        info = _read(folder, layout.INFO, ArchiveInfo)
        if info.version != VERSION:
            raise RunFailed(f"{folder.path} is an archive of version {info.version}, this program reads {VERSION}")
        return Archive(folder, info)

    @staticmethod
    def open_or_create(folder: Folder, format: str) -> Archive:
        check_format(format)
        if folder.exists(layout.INFO):
            found = Archive.open(folder)
            if found.info.format != format:
                raise RunFailed(f"{folder.path} is an archive of format {found.info.format}, not {format}")
            return found
        present = [*folder.folders(""), *(file.name for file in folder.files(""))]
        if set(present) - {layout.META}:
            raise RunFailed(
                f"{folder.path} is not an archive, and it is not empty: it has {', '.join(sorted(present)[:3])}"
            )
        info = ArchiveInfo(VERSION, format, secrets.token_hex(8))
        folder.write(layout.INFO, encode(info))
        return Archive(folder, info)

    # -- rounds

    def topics(self) -> list[str]:
        """The topics with a committed round, by short name."""
        firsts = (self._numbers(folder)[:1] for folder in self.folder.folders(layout.TOPICS))
        names = (each for each in firsts if each)
        return sorted(_read(self.folder, name[0], ArchivedRound).topic for name in names)

    def _numbers(self, folder: str) -> list[str]:
        """The manifests of a topic, by the name of its folder, in order."""
        folder = f"{layout.TOPICS}/{folder}"
        return [f"{folder}/{file.name}" for file in self.folder.files(folder) if file.name.endswith(".json")]

    def rounds(self, topic: str) -> list[ArchivedRound]:
        return [_read(self.folder, name, ArchivedRound) for name in self._numbers(layout.escaped(topic))]

    def last(self, topic: str) -> ArchivedRound | None:
        """The newest round, which says how far the topic is archived."""
        names = self._numbers(layout.escaped(topic))
        return _read(self.folder, names[-1], ArchivedRound) if names else None

    # -- rounds of a table

    def plan(self, planned: ArchivedRound) -> None:
        """The round that is appended next, which is appended whatever happens."""
        self.folder.write(layout.planned(planned.topic), encode(planned))

    def planned(self, topic: str) -> ArchivedRound | None:
        name = layout.planned(topic)
        return _read(self.folder, name, ArchivedRound) if self.folder.exists(name) else None

    def has(self, planned: ArchivedRound) -> bool:
        """Whether it is committed."""
        return self.folder.exists(layout.manifest(planned.topic, planned.number))

    def end_plan(self, topic: str) -> None:
        self.folder.delete(layout.planned(topic))

    # -- commit

    def begin(self, topics: Sequence[str]) -> str:
        """The token of a new staging folder, for a round of these topics."""
        token = secrets.token_hex(8)
        self.folder.write(f"{layout.staging(token)}.json", encode(_StagedTopics(list(topics))))
        return token

    def commit(self, made: ArchivedRound) -> None:
        self.folder.write(layout.manifest(made.topic, made.number), encode(made))

    def put_in_place(self, made: ArchivedRound) -> None:
        """Renames the files of a committed round that are still in its staging folder."""
        for file in made.files:
            if file.is_file and self.folder.exists(file.staged):
                self.folder.move(file.staged, file.name)

    def clean(self, topics: Iterable[str]) -> None:
        """Deletes what killed runs of these topics left behind. Their committed files are in place."""
        ours = set(topics)
        notes = (file.name.partition(".")[0] for file in self.folder.files(layout.STAGING))
        for token in {*self.folder.folders(layout.STAGING), *notes}:
            note = f"{layout.staging(token)}.json"
            staged = set(_read(self.folder, note, _StagedTopics).topics) if self.folder.exists(note) else set[str]()
            if staged <= ours:
                self.end(token)
                continue
            for topic in staged & ours:
                self.folder.delete(f"{layout.staging(token)}/{layout.topic_folder(topic)}")
        for topic in ours:
            for file in self.folder.files(layout.manifests(topic)):
                if not file.name.endswith(".json"):  # a manifest that was not written to its end
                    self.folder.delete(f"{layout.manifests(topic)}/{file.name}")

    def end(self, token: str) -> None:
        """Deletes a staging folder: its files are in place, or not wanted."""
        self.folder.delete(layout.staging(token))
        self.folder.delete(f"{layout.staging(token)}.json")


def _read(folder: Folder, name: str, kind: type[_Model]) -> _Model:
    try:
        return decode(folder.read(name), kind)
    except msgspec.DecodeError as error:
        raise RunFailed(f"{folder.full(name)} is damaged: {error}") from None
