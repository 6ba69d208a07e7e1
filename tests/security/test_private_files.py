"""A file with a secret is for the broker's user only."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from magnetar.errors import InvalidSetting
from magnetar.security.private_files import DECIDING_FILES, PUBLIC_MODE, check_file, check_files, write_new
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


@pytest.mark.parametrize("name", ["tokenSecretKey", "basicAuthConf", "tlsKeyFilePath"])
@pytest.mark.parametrize("form", ["secret", "./secret", "{}/secret", "file://{}/secret", "file:secret"])
def test_every_form_that_is_read_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = form.format(tmp_path)
    file = Path(text) if name == "tlsKeyFilePath" else Path(text.removeprefix("file://").removeprefix("file:"))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("secret")
    file.chmod(0o666)
    settings = Settings(**{name: text})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=rf"{name}: {file} is open to every user"):
        check_files(settings)
    file.chmod(0o600)
    check_files(settings)


@pytest.mark.parametrize("name", DECIDING_FILES)
def test_a_file_by_which_clients_are_known_is_written_by_no_other_user(tmp_path: Path, name: str) -> None:
    """With another authority or key in it, every user could log in as any role."""
    file = tmp_path / "public.pem"
    file.write_text("public")
    settings = Settings(**{name: str(file)})  # type: ignore[arg-type]
    for mode in (0o666, 0o642):
        file.chmod(mode)
        with pytest.raises(InvalidSetting, match=rf"{name}: every user of this machine can write to {file}"):
            check_files(settings)
    file.chmod(0o644)
    check_files(settings)


@pytest.mark.parametrize(
    ("plugin", "parameters"),
    [
        ("AuthenticationToken", "file://{}"),
        ("AuthenticationTls", "tlsCertFile:/etc/own.pem,tlsKeyFile:{}"),
        ("tls", '{{"tlsCertFile": "/etc/own.pem", "tlsKeyFile": "{}"}}'),
        ("oauth2", '{{"issuerUrl": "https://i", "privateKey": "file://{}", "audience": "a"}}'),
    ],
)
def test_every_file_of_the_broker_s_own_login_is_private(tmp_path: Path, plugin: str, parameters: str) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    settings = Settings(
        brokerClientAuthenticationPlugin=plugin, brokerClientAuthenticationParameters=parameters.format(file)
    )
    file.chmod(0o644)
    with pytest.raises(InvalidSetting, match=f"brokerClientAuthenticationParameters: {file} is open to every user"):
        check_files(settings)
    file.chmod(0o600)
    check_files(settings)


def test_a_certificate_is_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "own.pem"
    file.write_text("certificate")
    file.chmod(0o644)
    check_files(
        Settings(
            brokerClientAuthenticationPlugin="tls",
            brokerClientAuthenticationParameters=f"tlsCertFile:{file},tlsKeyFile:/no/such/file",
        )
    )


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_private_file_is_taken(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(mode)
    check_file(file, "tokenSecretKey")


ROOT, BROKER = 0, 1000
DISK, MOUNT = 1, 2


@pytest.mark.parametrize(
    ("owner", "user", "device", "mode", "is_taken"),
    [
        (ROOT, BROKER, MOUNT, 0o644, True),  # the default of Kubernetes
        (ROOT, BROKER, MOUNT, 0o444, True),  # that of Docker
        (ROOT, BROKER, MOUNT, 0o440, True),  # of a group that the pod has (fsGroup)
        (ROOT, BROKER, DISK, 0o440, True),
        (ROOT, BROKER, MOUNT, 0o646, False),
        (ROOT, BROKER, MOUNT, 0o666, False),
        (ROOT, BROKER, DISK, 0o644, False),
        (ROOT, ROOT, MOUNT, 0o644, False),
        (BROKER, BROKER, MOUNT, 0o644, False),
    ],
)
def test_a_secret_that_is_mounted_into_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, user: int, device: int, mode: int, is_taken: bool
) -> None:
    """Kubernetes has the files in a folder with a date, and two links before them."""
    folder = tmp_path / "..2026_01_02_03_04_05.678"
    folder.mkdir()
    (folder / "token.key").write_bytes(b"secret")
    (folder / "token.key").chmod(mode)
    (tmp_path / "..data").symlink_to(folder.name)
    (tmp_path / "token.key").symlink_to("..data/token.key")
    real = os.stat

    def of_container(path: Any, **options: Any) -> os.stat_result:
        found = list(real(path, **options))
        found[stat.ST_UID], found[stat.ST_DEV] = owner, DISK if path == "/" else device
        return os.stat_result(found)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", of_container)
        patch.setattr(os, "geteuid", lambda: user)
        settings = Settings(tokenSecretKey=f"file://{tmp_path}/token.key")
        with nullcontext() if is_taken else pytest.raises(InvalidSetting, match="is open to every user"):
            check_files(settings)


@pytest.mark.parametrize("text", ["", "token:abc", "file:///no/such/file", "tlsCertFile:/a,tlsKeyFile:/b"])
def test_what_is_no_file_is_left_to_those_who_read_it(text: str) -> None:
    check_files(Settings(brokerClientAuthenticationParameters=text, tlsTrustCertsFilePath="/no/such/file"))


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
