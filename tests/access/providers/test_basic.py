"""Passwords: checked aside, remembered, limited; the file is read again when it changes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt as library
import pytest
from passlib.apache import htpasswd_context  # type: ignore[import-untyped]
from passlib.hash import apr_md5_crypt, bcrypt, des_crypt, ldap_sha1  # type: ignore[import-untyped]

from magnetar.access.providers.basic import BasicProvider
from magnetar.access_bounds import (
    ADDRESS_PASSWORD_FAILURES,
    ADDRESS_PASSWORDS_WAITING,
    PASSWORD_FAILURES,
    PASSWORD_SIZE,
    PASSWORD_VERDICTS,
    PASSWORDS_WAITING,
)
from magnetar.errors import AuthenticationFailed, InvalidSetting
from magnetar.settings.settings import Settings
from tests.access.reports import reported

HASHES = {
    "apr_md5_crypt": apr_md5_crypt.hash("word"),
    "des_crypt": des_crypt.hash("word"),
    "ldap_sha1": ldap_sha1.hash("word"),
    "bcrypt": bcrypt.using(rounds=4).hash("word"),
}


def provider(folder: Path, text: str) -> BasicProvider:
    file = folder / "users"
    file.touch(0o600)
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


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, str]]:
    """Passwords with the hashes that they are compared with."""
    found: list[tuple[bytes, str]] = []
    verify = htpasswd_context.verify

    def noted(password: bytes, stored: str) -> bool:
        found.append((password, stored))
        return bool(verify(password, stored))

    monkeypatch.setattr(htpasswd_context, "verify", noted)
    return found


def kinds(compared: list[tuple[bytes, str]]) -> list[str]:
    """Scheme and cost of each hash, which decide how long its comparison takes."""
    return [stored.rpartition("$")[0] if "$2" in stored else stored[:5] for _, stored in compared]


MIXED = {
    "fast": HASHES["ldap_sha1"],
    "ann": HASHES["bcrypt"],
    "slow": bcrypt.using(rounds=5).hash("word"),
    "slower": bcrypt.using(rounds=6).hash("word"),
    "bob": bcrypt.using(rounds=5).hash("bob's"),
}


def check(one: BasicProvider, data: bytes, address: str = "a", now_ms: int = 0) -> None:
    work = one.ahead(data, address, now_ms)
    assert work is not None
    work()


@pytest.mark.parametrize("password", [b"word", b"wrong", b"x" * 100, b"nul\0"])
def test_a_user_has_the_same_work_as_one_who_does_not_exist(
    tmp_path: Path, compared: list[tuple[bytes, str]], password: bytes
) -> None:
    one = provider(tmp_path, "\n".join(f"{user}:{stored}" for user, stored in MIXED.items()))
    check(one, b"nobody:" + password)
    unknown = kinds(compared)
    assert unknown == ["{SHA}", "$2b$04", "$2b$05", "$2b$06"]
    for number, (user, stored) in enumerate(MIXED.items()):
        compared.clear()
        check(one, user.encode() + b":" + password, str(number))
        assert kinds(compared) == unknown
        assert stored in [one for _, one in compared]


def test_the_work_is_that_of_the_users_of_now(tmp_path: Path, compared: list[tuple[bytes, str]]) -> None:
    one = provider(tmp_path, f"ann:{MIXED['fast']}")
    check(one, b"nobody:1")
    (tmp_path / "users").write_text(f"ann:{MIXED['slow']}")
    os.utime(tmp_path / "users", ns=(1, 1))
    check(one, b"nobody:2")
    assert kinds(compared) == ["{SHA}", "$2b$05"]


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


def test_a_file_that_cannot_be_used_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "magnetar")
    one, file = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}"), tmp_path / "users"
    for change, reason in (
        (lambda: file.write_text("bob:hidden"), "basicAuthConf: line 1 is not of the form user:hash"),
        (
            lambda: (file.write_text(f"bob:{HASHES['ldap_sha1']}"), file.chmod(0o666)),
            "basicAuthConf: .* is open to every",
        ),
        (file.unlink, f"basicAuthConf: {file} cannot be read: No such file or directory"),
    ):
        change()
        for _ in range(3):
            assert login(one, b"ann:word") == "ann"
        ((level, text),) = reported(caplog)
        assert level == "ERROR"
        assert re.search(reason, text) and "hidden" not in text and HASHES["ldap_sha1"] not in text
    file.touch(0o600)
    file.write_text(f"bob:{HASHES['ldap_sha1']}")
    assert login(one, b"bob:word") == "bob"
    with pytest.raises(AuthenticationFailed, match="unknown or the password is wrong"):
        login(one, b"ann:word")
    assert [level for level, _ in reported(caplog)] == ["INFO"]


def test_a_file_that_was_made_private_is_read(tmp_path: Path) -> None:
    one, file = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}"), tmp_path / "users"
    file.chmod(0o644)
    file.write_text(f"bob:{HASHES['ldap_sha1']}")
    assert login(one, b"ann:word") == "ann"
    file.chmod(0o640)
    assert login(one, b"bob:word") == "bob"


def test_bound_password_failures(tmp_path: Path) -> None:
    one = provider(tmp_path, "\n".join(f"{user}:{HASHES['ldap_sha1']}" for user in ("ann", "bob", "eve")))
    assert login(one, b"bob:word") == "bob"
    for number in range(PASSWORD_FAILURES.limit):
        with pytest.raises(AuthenticationFailed, match="unknown or the password is wrong"):
            login(one, b"ann:%d" % number)
    with pytest.raises(AuthenticationFailed, match="too many wrong passwords"):
        login(one, b"ann:word")
    assert login(one, b"bob:word") == "bob"  # known to be right
    assert login(one, b"eve:word") == "eve"  # another user of the same address
    assert login(one, b"ann:word", address="b") == "ann"
    assert login(one, b"ann:word", now_ms=60_000) == "ann"


def test_bound_address_password_failures(tmp_path: Path) -> None:
    one, limit = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}"), ADDRESS_PASSWORD_FAILURES.limit
    for number in range(limit - 1):
        check(one, b"user%d:wrong" % number)
    work = one.ahead(b"other:wrong", "a", 0)
    assert work is not None
    assert "too many passwords from this address wait" in refused(one, b"ann:word")
    work()
    assert "too many wrong passwords from this address" in refused(one, b"ann:word")
    assert login(one, b"ann:word", address="b") == "ann"
    assert login(one, b"ann:word", now_ms=60_000) == "ann"


def test_a_password_that_nobody_waits_for_is_not_compared(tmp_path: Path, compared: list[tuple[bytes, str]]) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    for number in range(2 * PASSWORDS_WAITING.limit):
        work = one.ahead(b"ann:%d" % number, "a", 0, lambda: False)
        assert work is not None
        work()
    assert not compared
    assert login(one, b"ann:word") == "ann"  # none of them was a failure


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_connection_that_waits_for_a_password_has_it_compared(
    tmp_path: Path, compared: list[tuple[bytes, str]], order: tuple[int, int]
) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    works = [
        one.ahead(b"ann:word", address, 0, lambda is_wanted=is_wanted: is_wanted)  # type: ignore[misc]
        for address, is_wanted in (("a", False), ("b", True))
    ]
    for number in order:
        work = works[number]
        assert work is not None
        work()
    assert one.authenticate(b"ann:word", "", 0).role == "ann"
    assert len(compared) == 1


def test_bound_passwords_waiting(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    works = [one.ahead(b"ann:%d" % number, str(number), 0) for number in range(PASSWORDS_WAITING.limit)]
    with pytest.raises(AuthenticationFailed, match="too many passwords wait"):
        one.ahead(b"ann:word", "a", 0)
    for work in works:
        assert work is not None
        work()
    assert login(one, b"ann:word") == "ann"


def refused(one: BasicProvider, data: bytes, address: str = "a", now_ms: int = 0) -> str:
    with pytest.raises(AuthenticationFailed) as error:
        one.ahead(data, address, now_ms)
    return str(error.value)


def waiting(one: BasicProvider, count: int, address: str = "a", now_ms: int = 0) -> list[Callable[[], None]]:
    """The work of guesses that have a place."""
    works = [one.ahead(b"ann:guess%d" % number, address, now_ms) for number in range(count)]
    assert None not in works
    return [work for work in works if work is not None]


def test_bound_address_passwords_waiting(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    limit = ADDRESS_PASSWORDS_WAITING.limit
    works = waiting(one, limit)
    assert "too many passwords from this address wait" in refused(one, b"ann:word")
    assert "too many passwords from this address wait" in refused(one, b"ann:word", now_ms=60_000)
    assert login(one, b"ann:word", address="b") == "ann"
    for work in works:
        work()
    assert login(one, b"ann:word") == "ann"


def test_one_address_does_not_take_all_places(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    assert ADDRESS_PASSWORDS_WAITING.limit * 4 <= PASSWORDS_WAITING.limit
    for number in range(PASSWORDS_WAITING.limit + 1):
        try:
            one.ahead(b"ann:%d" % number, "a", 0)
        except AuthenticationFailed:
            continue
    assert login(one, b"ann:word", address="b") == "ann"


def test_passwords_that_wait_count_as_wrong_until_they_were_right(tmp_path: Path) -> None:
    users = {f"u{number}": HASHES["ldap_sha1"] for number in range(PASSWORD_FAILURES.limit)}
    one = provider(tmp_path, "\n".join(f"{user}:{stored}" for user, stored in users.items()))
    for number in range(PASSWORD_FAILURES.limit - 2):
        check(one, b"u0:%d" % number)
    works = [one.ahead(guess, "a", 0) for guess in (b"u0:guess", b"u0:word")]
    assert "too many passwords from this address wait" in refused(one, b"u0:other")
    for work in works:
        assert work is not None
        work()
    assert login(one, b"u0:word") == "u0"
    for user in users:  # each is right, and no failure
        assert login(one, f"{user}:word".encode()) == user


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("2001:db8:0:1:ffff::9", True),
        ("2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
    ],
)
def test_a_network_of_ipv6_is_one_address(tmp_path: Path, other: str, is_same: bool) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    for number in range(PASSWORD_FAILURES.limit):
        check(one, b"ann:%d" % number, f"2001:db8:0:1::{number:x}")
    if is_same:
        assert "too many wrong passwords" in refused(one, b"ann:word", other)
    else:
        assert login(one, b"ann:word", other) == "ann"


def test_addresses_of_ipv4_are_themselves_also_in_ipv6(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    for number in range(PASSWORD_FAILURES.limit):
        check(one, b"ann:%d" % number, "::ffff:10.0.0.1")
    assert "too many wrong passwords" in refused(one, b"ann:word", "10.0.0.1")
    assert login(one, b"ann:word", "::ffff:10.0.0.2") == "ann"


def test_many_connections_with_one_password_need_one_place(tmp_path: Path, compared: list[tuple[bytes, str]]) -> None:
    one = provider(tmp_path, f"ann:{HASHES['ldap_sha1']}")
    works = [one.ahead(b"ann:word", "a", 0) for _ in range(PASSWORDS_WAITING.limit + 1)]
    for work in works:  # one after the other, as the thread does
        assert work is not None
        work()
        assert one.authenticate(b"ann:word", "", 0).role == "ann"
    assert len(compared) == 1


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library for bcrypt drops what exceeds 72 bytes, as its versions before 5 do."""
    of_library: Any = library.hashpw
    monkeypatch.setattr(library, "hashpw", lambda password, salt: of_library(password[:72], salt))


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("longer", [b"x", b"x" * 900])
def test_bcrypt_takes_72_bytes_and_no_more(tmp_path: Path, longer: bytes) -> None:
    stored = bcrypt.using(rounds=4).hash("p" * 72)
    one = provider(tmp_path, f"ann:{stored}\nbob:{ldap_sha1.hash('p' * 72 + longer.decode())}")
    with pytest.raises(AuthenticationFailed, match="unknown or the password is wrong"):
        login(one, b"ann:" + b"p" * 72 + longer)
    assert login(one, b"ann:" + b"p" * 72) == "ann"
    assert login(one, b"bob:" + b"p" * 72 + longer) == "bob"


def test_crypt_looks_at_eight_bytes_as_it_does_elsewhere(tmp_path: Path) -> None:
    one = provider(tmp_path, f"ann:{des_crypt.hash('password')}")
    assert login(one, b"ann:password of the year") == "ann"


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


@pytest.mark.parametrize(
    "text", ["", "ann:plaintext", "ann", ":x", "ann:$9$what", "ann:$2b$12$short", "ann:$apr1$x", "ann:$6$abc"]
)
def test_a_file_without_hashes_ends_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        provider(tmp_path, text)
    assert "plaintext" not in str(refused.value)


def test_the_setting_is_needed() -> None:
    with pytest.raises(InvalidSetting, match="needs basicAuthConf"):
        BasicProvider(Settings())
