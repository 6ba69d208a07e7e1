"""A file with a secret is for the broker's user only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from magnetar.errors import InvalidSetting
from magnetar.security.private_files import PUBLIC_MODE, check_file, check_files, write_new
from magnetar.settings.settings import Settings


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o606, 0o602, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(mode)
    settings = Settings(brokerClientAuthenticationParameters=f"file://{file}")
    with pytest.raises(InvalidSetting) as refused:
        check_files(settings)
    assert str(refused.value) == (
        f"brokerClientAuthenticationParameters: {file} is open to every user of this machine (mode {mode:04o}):"
        f" chmod o= {file}"
    )


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_private_file_is_taken(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(mode)
    check_file(file, "tokenSecretKey")


@pytest.mark.parametrize("text", ["", "token:abc", "file:///no/such/file", "tlsCertFile:/a,tlsKeyFile:/b"])
def test_what_is_no_file_is_left_to_those_who_read_it(text: str) -> None:
    check_files(Settings(brokerClientAuthenticationParameters=text))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_new(tmp_path / "key", b"secret", "--output")
        write_new(tmp_path / "public", b"key", "--output", mode=PUBLIC_MODE)
    finally:
        os.umask(before)
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert (mode_of(tmp_path / "key"), mode_of(tmp_path / "public")) == (0o600, 0o644)


def test_a_new_file_takes_the_place_of_no_other(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("key", "link"):
        with pytest.raises(InvalidSetting, match=f"--output: {tmp_path / name} exists, and is not overwritten"):
            write_new(tmp_path / name, b"secret", "--output")
    assert (tmp_path / "key").read_bytes() == b"old"
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(InvalidSetting, match="cannot be made: No such file or directory"):
        write_new(tmp_path / "none" / "key", b"secret", "--output")


def test_a_file_that_cannot_be_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidSetting, match="cannot be written: No space left on device"):
        write_new(tmp_path / "key", b"secret", "--output")
    assert not (tmp_path / "key").exists()
