"""Files that are opened only if they are regular ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.client.errors import InvalidArgument
from magnetar.security.credentials import Security
from magnetar.security.oauth2 import OAuth2
from magnetar.security.regular_files import PEM_SIZE_MAX, check_regular
from magnetar.security.tls import context_of

KEY = "data:application/json;base64,eyJjbGllbnRfaWQiOiJhIiwiY2xpZW50X3NlY3JldCI6ImIifQ=="
ISSUER = "http://127.0.0.1:1"
READERS: dict[str, Callable[[Path], object]] = {
    "trust_certs_file": lambda file: context_of(Security(trust_certs_file=file)),
    "certificate_file": lambda file: context_of(Security(certificate_file=file, key_file=__file__)),
    "key_file": lambda file: context_of(Security(certificate_file=__file__, key_file=file)),
    "token_file": lambda file: Security(token_file=file).credentials(),
    "private_key": lambda file: OAuth2(issuer_url=ISSUER, private_key=str(file)).token(),
    "trust_certs_file of an issuer": lambda file: OAuth2(
        issuer_url=ISSUER, private_key=KEY, trust_certs_file=str(file)
    ).token(),
}


def reason(reader: Callable[[Path], object], file: Path) -> str:
    """In a thread, which would hang alone."""
    found: list[str] = []

    def read() -> None:
        try:
            reader(file)
        except InvalidArgument as error:
            found.append(error.text)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(10)
    return "it hangs" if thread.is_alive() else "".join(found)


@pytest.mark.parametrize("name", READERS)
def test_only_a_regular_file_is_opened(tmp_path: Path, name: str) -> None:
    pipe, link, huge = (tmp_path / name for name in ("pipe", "link", "huge"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    what = name.split()[0]
    for other in (pipe, link, tmp_path, Path("/dev/zero")):
        assert reason(READERS[name], other) == f"{what} '{other}' cannot be read: it is not a regular file"
    assert f"{what} '{huge}' cannot be used: it has 1099511627776 bytes, more than" in reason(READERS[name], huge)


def test_a_file_of_the_kernel_has_no_bytes() -> None:
    with pytest.raises(InvalidArgument, match="token_file '/proc/self/status' cannot be used: it is empty"):
        Security(token_file="/proc/self/status").credentials()


def test_a_path_that_is_none() -> None:
    with pytest.raises(InvalidArgument, match=r"key_file 'a.*b' cannot be read: embedded null byte"):
        check_regular("a\0b", "key_file", PEM_SIZE_MAX)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """As Kubernetes mounts secrets."""
    (tmp_path / "data").write_text("x")
    (tmp_path / "link").symlink_to("data")
    assert check_regular(tmp_path / "link", "token_file", 1).st_size == 1
