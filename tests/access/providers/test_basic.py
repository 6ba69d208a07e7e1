"""Passwords: checked aside, remembered, limited; the file is read again when it changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from passlib.hash import apr_md5_crypt, bcrypt, des_crypt, ldap_sha1  # type: ignore[import-untyped]

from magnetar.access.providers.basic import BasicProvider
from magnetar.access_bounds import PASSWORD_FAILURES, PASSWORD_SIZE, PASSWORD_VERDICTS, PASSWORDS_WAITING
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.settings import Settings

HASHES = {
    "apr_md5_crypt": apr_md5_crypt.hash("word"),
    "des_crypt": des_crypt.hash("word"),
    "ldap_sha1": ldap_sha1.hash("word"),
    "bcrypt": bcrypt.using(rounds=4).hash("word"),
}


def provider(folder: Path, text: str) -> BasicProvider:
    file = folder / "users"
    file.write_text(text)
    return BasicProvider(Settings(basicAuthConf=str(file)))


def login(one: BasicProvider, data: bytes, address: str = "a", now_ms: int = 0) -> str:
    work = one.ahead(data, address, now_ms)
    if work is not None:
        work()
    return one.authenticate(data, "", now_ms).role


@pytest.mark.parametrize("scheme", HASHES)
def test_hashes_of_htpasswd_are_verified(tmp_path: Path, scheme: str) -> None:
    one = provider(tmp_path, f"# users\n\nann:{HASHES[scheme]}\n")
    assert login(one, b"ann:word") == "ann"
    assert one.ahead(b"ann:word", "a", 0) is None  # known by now
    for wrong in (b"ann:Word", b"bob:word", b"ann:", b"ann", b":word", b"", b"\xff:word"):
        with pytest.raises(AuthenticationFailed) as refused:
            login(one, wrong)
        assert "word is" in str(refused.value) or "word" not in str(refused.value).replace("password", "")


def test_an_unknown_user_has_work_too(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    assert one.ahead(b"bob:word", "a", 0) is not None


def test_a_password_that_was_not_checked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuthenticationFailed, match="not checked in time"):
        provider(tmp_path, f"ann:{HASHES['ldap_sha1']}").authenticate(b"ann:word", "", 0)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not_used(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    assert login(one, b"ann:word") == "ann"
    file = tmp_path / "users"
    file.write_text("broken")
    os.utime(file, ns=(1, 1))
    assert login(one, b"ann:word") == "ann"
    file.write_text(f"ann:{ldap_sha1.hash('other')}")
    os.utime(file, ns=(2, 2))
    with pytest.raises(AuthenticationFailed):
        login(one, b"ann:word")
    assert login(one, b"ann:other") == "ann"


def test_bound_password_failures(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}\nbob:{HASHES['ldap_sha1']}")
    assert login(one, b"bob:word") == "bob"
    for number in range(PASSWORD_FAILURES.limit):
        with pytest.raises(AuthenticationFailed, match="unknown or the password is wrong"):
            login(one, b"ann:%d" % number)
    with pytest.raises(AuthenticationFailed, match="too many wrong passwords"):
        login(one, b"ann:word")
    assert login(one, b"bob:word") == "bob"  # known to be right
    assert login(one, b"ann:word", address="b") == "ann"
    assert login(one, b"ann:word", now_ms=60_000) == "ann"


def test_bound_passwords_waiting(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    works = [one.ahead(b"ann:%d" % number, str(number), 0) for number in range(PASSWORDS_WAITING.limit)]
    with pytest.raises(AuthenticationFailed, match="too many passwords wait"):
        one.ahead(b"ann:word", "a", 0)
    for work in works:
        assert work is not None
        work()
    assert login(one, b"ann:word") == "ann"


def test_bound_password_size(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['bcrypt']}")
    with pytest.raises(AuthenticationFailed, match=f"exceed {PASSWORD_SIZE.limit}"):
        login(one, b"ann:" + b"x" * PASSWORD_SIZE.limit)
    with pytest.raises(AuthenticationFailed):
        login(one, b"ann:" + b"x" * 100)  # more than bcrypt takes
    assert login(one, b"ann:word") == "ann"


def test_bound_password_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.access.providers.basic.PASSWORD_VERDICTS", PASSWORD_VERDICTS._replace(limit=2))
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    assert login(one, b"ann:word") == "ann"
    for number in range(2):
        with pytest.raises(AuthenticationFailed):
            login(one, b"ann:%d" % number)
    assert one.ahead(b"ann:word", "a", 0) is not None


@pytest.mark.parametrize("text", ["", "ann:plaintext", "ann", ":x", "ann:$9$what"])
def test_a_file_without_hashes_ends_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        provider(tmp_path, text)
    assert "plaintext" not in str(refused.value)


def test_the_setting_is_needed() -> None:
    with pytest.raises(InvalidSetting, match="needs basicAuthConf"):
        BasicProvider(Settings())
