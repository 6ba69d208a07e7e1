"""Every format that is named as readable has a folder here, which is opened and holds what was written to it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker import keys
from magnetar.storage.api import FORMATS
from magnetar.storage.folder import format_of
from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage
from magnetar.version import __version__
from tests.formats.content import KINDS, described, kinds_of, populate, populate_more
from tests.formats.layout import layout

HERE = Path(__file__).parent

NEWER_KINDS = {"3": {keys.PIPELINE}}
"""Kinds of records that a format did not have."""


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(HERE / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where `found` has not what was expected. It may have more: fields that the format did not have."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [one for key, value in expected.items() for one in differences(value, found.get(key), f"{path}/{key}")]
    return [] if expected == found else [f"{path}: {found!r} instead of {expected!r}"]


@pytest.mark.parametrize("name", FORMATS)
def test_fault_data_of_an_older_format_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    data = unpacked(name, tmp_path)
    assert format_of(data) == name
    expected = json.loads((HERE / f"{name}.json").read_text())
    for start in range(2):  # what the first one wrote is of the newest format
        storage = RocksStorage(data)
        assert kinds_of(storage) >= KINDS - NEWER_KINDS.get(name, set())
        assert differences(expected, described(storage)) == [], start
        storage.close()
    assert format_of(data) == FORMATS[-1]


def test_the_last_two_formats_are_read() -> None:
    assert len(FORMATS) >= 2
    assert {path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz")} >= set(FORMATS)


def test_a_folder_is_small() -> None:
    assert all(path.stat().st_size < 200_000 for path in HERE.glob("*.tar.gz"))


def test_the_content_has_every_kind_of_record() -> None:
    storage = MemoryStorage()
    populate(storage)
    assert kinds_of(storage) == KINDS
    populate_more(storage)
    assert differences(described(storage.crash()), described(storage)) == []


@pytest.mark.parametrize("name", FORMATS)
def test_no_field_of_a_format_that_is_read_has_changed(name: str) -> None:
    before = (HERE / f"{name}.layout").read_text().splitlines()
    assert [line for line in before if line not in layout().splitlines()] == []


def test_a_new_field_is_a_new_format() -> None:
    """A broker of the format before would drop it. Until a release has it, `make` describes the newest format anew."""
    if "dev" in __version__:
        pytest.skip(f"format {FORMATS[-1]} is not released")
    assert (HERE / f"{FORMATS[-1]}.layout").read_text() == layout(), "add a format to storage.api.FORMATS, and make it"
