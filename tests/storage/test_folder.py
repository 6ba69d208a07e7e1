"""The marker of a data folder, its format, and who may look into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from magnetar.storage import folder
from magnetar.storage.api import FORMATS, StorageError
from magnetar.storage.folder import MARKER_NAME, claim_folder, protect_folder
from magnetar.storage.rocks import RocksStorage


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def mark(path: Path, name: str) -> None:
    (path / MARKER_NAME).write_text(f"magnetar data folder, format {name}\n")


# -- the format


@pytest.mark.parametrize("name", ["2", "1", "2.9"])
def test_fault_data_of_an_unknown_format_older_is_rejected_with_both(tmp_path: Path, name: str) -> None:
    RocksStorage(tmp_path).close()
    mark(tmp_path, name)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StorageError, match=f"has format {name}, .* knows format {' and '.join(FORMATS)}"):
        RocksStorage(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["9", "3.99", "10.0"])
def test_fault_data_of_an_unknown_format_newer_is_rejected_with_both(tmp_path: Path, name: str) -> None:
    """An older broker would drop the fields that it does not know."""
    RocksStorage(tmp_path).close()
    mark(tmp_path, name)
    with pytest.raises(StorageError, match=f"has format {name} of a newer version, .* knows format {FORMATS[0]} and"):
        RocksStorage(tmp_path)


def test_a_folder_of_the_format_before_is_opened_and_marked_anew(tmp_path: Path) -> None:
    RocksStorage(tmp_path).close()
    mark(tmp_path, FORMATS[0])
    RocksStorage(tmp_path).close()
    assert folder.format_of(tmp_path) == FORMATS[-1]


def test_a_folder_that_cannot_be_opened_keeps_its_mark(tmp_path: Path) -> None:
    RocksStorage(tmp_path).close()
    mark(tmp_path, FORMATS[0])
    (tmp_path / "CURRENT").write_text("nonsense")
    with pytest.raises(StorageError):
        RocksStorage(tmp_path)
    assert folder.format_of(tmp_path) == FORMATS[0]


@pytest.mark.parametrize("marker", [b"", b"something else\n", b"magnetar data folder, format x\n", b"\xff\xfe\0"])
def test_a_broken_marker_is_rejected(tmp_path: Path, marker: bytes) -> None:
    (tmp_path / MARKER_NAME).write_bytes(marker)
    with pytest.raises(StorageError, match="not a magnetar data folder"):
        RocksStorage(tmp_path)


def test_an_interrupted_creation_is_completed_by_the_next_start(tmp_path: Path) -> None:
    (tmp_path / (MARKER_NAME + ".new")).write_text("magnetar da")
    RocksStorage(tmp_path).close()
    RocksStorage(tmp_path).close()


# -- access


def test_a_new_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        claim_folder(tmp_path / "data")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "data") == 0o700
    assert protect_folder(tmp_path / "data") is None


def test_a_folder_of_before_is_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    warning = protect_folder(tmp_path)
    assert warning == f"data folder {tmp_path} was open to other users (mode 0755), its mode is 0700 now"
    assert mode_of(tmp_path) == 0o700
    assert protect_folder(tmp_path) is None


@pytest.mark.parametrize("mode", [0o770, 0o750, 0o2770])
def test_rights_of_the_group_are_the_operators_decision(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert protect_folder(tmp_path) is None
    assert mode_of(tmp_path) == mode & 0o777


def test_a_folder_that_does_not_exist_yet_needs_no_protection(tmp_path: Path) -> None:
    assert protect_folder(tmp_path / "data") is None


def test_a_file_system_without_modes_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)
    assert protect_folder(tmp_path) == (
        f"data folder {tmp_path} is open to other users (mode 0777), and its mode cannot be changed"
    )


def test_fault_data_open_to_others_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StorageError, match=f"belongs to user {owner}, and every user can write to it .mode 0777."):
        protect_folder(tmp_path)
    tmp_path.chmod(0o755)
    assert (protect_folder(tmp_path) or "").endswith("cannot be changed")
