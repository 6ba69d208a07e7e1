"""Files that are read only below folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from magnetar.client.errors import InvalidArgument
from magnetar.security.credentials import Security
from magnetar.security.folders import below, folders_of


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """With links to the outside; other.key is beside it."""
    allowed = tmp_path / "allowed"
    (allowed / "deep").mkdir(parents=True)
    (tmp_path / "other.key").write_text("other")
    (allowed / "deep" / "own.key").write_text("own")
    (allowed / "inside").symlink_to(allowed / "deep" / "own.key")
    (allowed / "outside").symlink_to(tmp_path / "other.key")
    (allowed / "up").symlink_to("..")
    return str(allowed)


@pytest.mark.parametrize("path", ["deep/own.key", "inside", "missing", "deep//own.key", "./deep/own.key"])
def test_a_file_below_the_folder_is_taken(folder: str, path: str) -> None:
    found = below(f"{folder}/{path}", ["/elsewhere", folder], "it")
    assert found.startswith(os.path.realpath(folder) + "/") and not Path(found).is_symlink()


@pytest.mark.parametrize(
    "path",
    [
        "{}/outside",
        "{}/up/other.key",
        "{}/../other.key",
        "{}/deep/../../other.key",
        "{}/deep/../deep/own.key",
        "{}-beside/own.key",
        "{}/../allowed-beside/own.key",
        "allowed/deep/own.key",
        "",
        "/",
        "/etc/passwd",
        "{}/deep/own.key\0.pem",
    ],
)
def test_every_other_file_is_refused(folder: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(folder).parent)
    with pytest.raises(InvalidArgument, match=r"is not (below a folder|an absolute path)"):
        below(path.format(folder), [folder], "it")
    with pytest.raises(InvalidArgument):
        below(f"{folder}/deep/own.key", [], "it")


def test_a_folder_may_be_a_link(folder: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert below(tmp_path / "link" / "deep" / "own.key", [str(tmp_path / "link")], "it").endswith(
        "allowed/deep/own.key"
    )


def test_without_folders_every_file_is_taken(tmp_path: Path) -> None:
    assert below("own.key", None, "it") == "own.key"
    assert folders_of("") == ()
    assert folders_of("/a, /b,/c") == ("/a", "/b", "/c")


def test_a_link_that_is_changed_later_is_not_followed(folder: str, tmp_path: Path) -> None:
    """Checked when it is read, not only when it was given."""
    security = Security(token_file=f"{folder}/inside", folders=(folder,))
    assert security.read_token() == "own"
    Path(folder, "inside").unlink()
    Path(folder, "inside").symlink_to(tmp_path / "other.key")
    with pytest.raises(InvalidArgument, match="is not below a folder"):
        security.read_token()
    with pytest.raises(InvalidArgument, match="is not below a folder"):
        Security(certificate_file=f"{folder}/inside", key_file="/etc/k", folders=(folder,)).without_secrets()
