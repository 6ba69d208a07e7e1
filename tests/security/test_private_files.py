"""A file with a secret is for the broker's user only."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.errors import InvalidSetting
from magnetar.security.private_files import check_file, check_files
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
