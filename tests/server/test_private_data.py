"""What a broker writes is for its own user only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def started(data: Path) -> str:
    """Starts a broker, stops it once it is ready, and returns everything it printed."""
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(data), "--port", "0", "--http-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=0o022) as process:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("ready "):
                process.terminate()
        assert process.wait() == 0, printed
        return printed


def test_the_mode_of_a_folder_that_is_not_ours_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "work.txt").touch()
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(tmp_path), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode != 0
    assert "is not empty and not a magnetar data folder" in ended.stderr
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_start_that_is_refused_opens_no_port_and_touches_no_data(tmp_path: Path) -> None:
    config, data = tmp_path / "broker.conf", tmp_path / "data"
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(data), "--port", "0", "--http-port", "0"]
    config.write_text("athenzDomainNames=shop\n")
    for words in (["--config", str(config)], ["--bind", "0.0.0.0"]):
        ended = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("magnetar: ")
        assert ended.stderr.count("\n") == 1
        assert not data.exists()


def open_to_others(data: Path) -> list[str]:
    found = [data, *data.rglob("*")]
    return [path.name for path in found if path.stat().st_mode & 0o077]


def test_fault_data_open_to_others_never_is_from_the_start(tmp_path: Path) -> None:
    assert "open to other users" not in started(tmp_path / "new" / "data")
    assert open_to_others(tmp_path / "new") == []


def test_fault_data_open_to_others_is_closed_with_a_warning(tmp_path: Path) -> None:
    data = tmp_path / "data"
    os.mkdir(data)
    data.chmod(0o755)
    assert f"data folder {data} was open to other users (mode 0755), its mode is 0700 now" in started(data)
    assert open_to_others(data) == []
    assert "open to other users" not in started(data)


USERS, KEY = "authenticationProviders=basic\nbasicAuthConf={folder}/file", "tokenSecretKey=file://{folder}/file"
TOKEN = f"authenticationProviders=token\n{KEY}"


@pytest.mark.parametrize(
    ("lines", "content", "sentence"),
    [
        (TOKEN, b"short", "tokenSecretKey has 5 bytes, less than 32"),
        (TOKEN, None, "tokenSecretKey: {folder}/file cannot be read: No such file or directory"),
        (
            "authenticationProviders=token\ntokenPublicKey=file://{folder}/file",
            b"no key",
            "tokenPublicKey is not a public key in DER or PEM",
        ),
        (USERS, None, "basicAuthConf is neither a file that exists, nor file:, data: or base64"),
        (
            "authenticationProviders=",
            None,
            "authenticationEnabled=true needs authenticationProviders: token, basic, tls, openid",
        ),
        (
            "authenticationEnabled=false\nauthorizationEnabled=true",
            None,
            "authorizationEnabled=true needs authenticationEnabled=true: without it, no client has a role",
        ),
    ],
)
def test_keys_that_cannot_be_used_end_the_start_with_one_sentence(
    tmp_path: Path, lines: str, content: bytes | None, sentence: str
) -> None:
    config, data = tmp_path / "broker.conf", tmp_path / "data"
    config.touch(0o600)
    config.write_text(f"authenticationEnabled=true\n{lines.format(folder=tmp_path)}\n")
    if content is not None:
        (tmp_path / "file").write_bytes(content)
        (tmp_path / "file").chmod(0o600)
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(data), "--port", "0", "--http-port", "0"]
    ended = subprocess.run([*command, "--config", str(config)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"magnetar: {sentence.format(folder=tmp_path)}\n"
    assert not data.exists()
