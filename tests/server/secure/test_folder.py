"""The folder of `--secure`: made whole and private, kept as it is, and made again only where it has to be."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from magnetar.access import json_web_token as jwt
from magnetar.access.access import Access
from magnetar.clock import ManualClock
from magnetar.errors import InvalidSetting
from magnetar.security.server_tls import read_contexts
from magnetar.server.ports.own_names import certificate_names
from magnetar.server.secure import renewal
from magnetar.server.secure.authority import CERTIFICATE_DAYS, Certificate, new_authority
from magnetar.server.secure.folder import SecureFolder
from magnetar.settings.properties_file import parse_properties
from magnetar.settings.settings import Settings

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
NAMES = frozenset({"localhost", "127.0.0.1"})
FILES = {"ca.pem", "ca.key", "broker.pem", "broker.key", "token.key", "admin.token"}


@pytest.fixture
def folder(tmp_path: Path) -> SecureFolder:
    found = SecureFolder(tmp_path / "below" / "secure")
    found.prepare(NAMES, NOW_MS)
    return found


def content(folder: SecureFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


def claims(folder: SecureFolder, token: bytes | str) -> jwt.Claims:
    text = token.encode() if isinstance(token, str) else token
    return jwt.verified(text, (folder.path / "token.key").read_bytes(), ("HS256",))


def test_the_first_start_makes_everything_private(folder: SecureFolder) -> None:
    assert set(content(folder)) == FILES
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()}
    assert modes == {name: 0o644 if name.endswith(".pem") else 0o600 for name in FILES}
    assert claims(folder, content(folder)["admin.token"]) == {"sub": "admin"}
    assert claims(folder, folder.token("app")) == {"sub": "app"}
    assert list(folder.path.parent.iterdir()) == [folder.path]


def test_the_settings_are_those_of_a_broker_with_tls_and_authorization(folder: SecureFolder) -> None:
    settings = Settings.from_mapping(folder.over({}))[0]
    assert (settings.brokerServicePort, settings.webServicePort) == (None, None)
    assert (settings.brokerServicePortTls, settings.webServicePortTls) == (6651, 8443)
    assert read_contexts(settings).http
    access = Access.from_settings(settings)
    assert access.authentication.is_enabled and access.rules is not None
    assert settings.authenticateMetricsEndpoint, "metrics have the names of all tenants and topics"


def test_another_start_makes_nothing_again(folder: SecureFolder) -> None:
    before = content(folder)
    folder.prepare(NAMES, NOW_MS + DAY_MS)
    folder.prepare(frozenset({"localhost"}), NOW_MS + DAY_MS)
    assert content(folder) == before


def test_an_empty_folder_becomes_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "empty").mkdir()
    folder = SecureFolder(tmp_path / "empty")
    folder.prepare(NAMES, NOW_MS)
    assert set(content(folder)) == FILES
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_the_folder_that_a_link_leads_to_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    folder = SecureFolder(tmp_path / "link")
    folder.prepare(NAMES, NOW_MS)
    assert folder.path == tmp_path / "link" and folder.path.is_symlink()
    assert {path.name for path in (tmp_path / "empty").iterdir()} == FILES


def test_a_mount_point_below_a_folder_that_cannot_be_written_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even root makes a folder in a file system that is read-only, nor renames one over a mount point."""
    mounted = tmp_path / "mounted"
    (mounted / "lost+found").mkdir(parents=True)
    rename, mkdtemp = Path.rename, tempfile.mkdtemp

    def rename_a_file(path: Path, target: Path) -> Path:
        if target == mounted:
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        return rename(path, target)

    def make_inside(**options: Any) -> str:
        if options["dir"] == tmp_path:
            raise OSError(errno.EROFS, "Read-only file system", f"{tmp_path}/.mounted-1")
        return mkdtemp(**options)

    monkeypatch.setattr(Path, "rename", rename_a_file)
    monkeypatch.setattr(tempfile, "mkdtemp", make_inside)
    SecureFolder(mounted).prepare(NAMES, NOW_MS)
    assert {path.name for path in mounted.iterdir()} == {*FILES, "lost+found"}
    with pytest.raises(InvalidSetting) as refused:
        SecureFolder(tmp_path / "new").prepare(NAMES, NOW_MS)
    assert str(refused.value) == f"--secure {tmp_path}/new cannot be made: Read-only file system"


@pytest.mark.parametrize("moved", range(len(FILES)))
def test_an_existing_folder_is_filled_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    rename, count = Path.rename, 0

    def fail(path: Path, target: Path) -> Path:
        nonlocal count
        assert not (tmp_path / "ca.pem").exists(), "it marks a folder that is whole, and comes last"
        count += 1
        if count > moved:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(InvalidSetting, match=f"--secure {tmp_path}.*: Input/output error"):
        SecureFolder(tmp_path).prepare(NAMES, NOW_MS)
    assert list(tmp_path.iterdir()) == []


def test_of_two_first_starts_in_an_existing_folder_both_have_the_files_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = SecureFolder(tmp_path), SecureFolder(tmp_path)
    flock, making = fcntl.flock, tmp_path / ".secure-1"
    making.mkdir()

    def be_second(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        making.rmdir()
        other.prepare(NAMES, NOW_MS)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", be_second)
    one.prepare(NAMES, NOW_MS)
    assert set(content(one)) == FILES
    assert claims(one, content(one)["admin.token"]) == {"sub": "admin"}


def test_a_path_is_shown_in_its_shortest_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert SecureFolder(Path("data/.././/secure")).path == tmp_path / "secure"
    assert SecureFolder(Path("./secure")).path == tmp_path / "secure"


@pytest.mark.parametrize("day", [0, CERTIFICATE_DAYS // 3 * 2 + 1])
def test_the_certificate_is_made_again_for_a_new_name_and_before_it_expires(folder: SecureFolder, day: int) -> None:
    before = content(folder)
    now_ms = NOW_MS + day * DAY_MS
    names = NAMES if day else NAMES | {"broker.example.com"}
    assert folder.renew(names, now_ms)
    after = content(folder)
    changed = {name for name in FILES if before[name] != after[name]}
    assert changed == {"broker.pem"}, "clients keep their trust, and the broker its key"
    found = Certificate(after["broker.pem"])
    assert (found.hosts, found.not_after_ms) == (names, now_ms + CERTIFICATE_DAYS * DAY_MS)
    assert not folder.renew(names, now_ms)


def test_names_that_no_certificate_can_have_are_left_out(folder: SecureFolder) -> None:
    assert not folder.renew(NAMES | {"", "ü.example"}, NOW_MS)


def test_without_the_key_of_the_authority_a_certificate_serves_until_it_has_to_be_made_again(
    folder: SecureFolder,
) -> None:
    (folder.path / "ca.key").rename(folder.path.parent / "ca.key")  # into a safe
    folder.prepare(NAMES, NOW_MS)
    with pytest.raises(InvalidSetting, match=r"broker.pem does not have the name new, and without ca.key none can be"):
        folder.prepare(NAMES | {"new"}, NOW_MS)
    before, end_ms = content(folder), NOW_MS + CERTIFICATE_DAYS * DAY_MS
    for now_ms in (end_ms - CERTIFICATE_DAYS // 3 * DAY_MS + 1, end_ms - 1):
        folder.prepare(NAMES, now_ms)
        assert content(folder) == before
    with pytest.raises(InvalidSetting, match=r"broker.pem has expired, and without ca.key none can be signed"):
        folder.prepare(NAMES, end_ms)


@pytest.mark.parametrize(("day", "left"), [(0, None), (CERTIFICATE_DAYS - 270, 270), (CERTIFICATE_DAYS - 1, 1)])
def test_a_certificate_that_expires_and_cannot_be_made_again_is_a_warning_each_day(
    folder: SecureFolder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, day: int, left: int | None
) -> None:
    monkeypatch.setattr(renewal, "INTERVAL_S", 0)
    key = folder.path / "ca.key"
    key.rename(folder.path.parent / "ca.key")
    renew, days = SecureFolder.renew, []

    def until_the_second_day(*words: Any) -> bool:
        days.append(words)
        if len(days) == 2:
            raise asyncio.CancelledError
        return renew(*words)

    monkeypatch.setattr(SecureFolder, "renew", until_the_second_day)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(renewal.keep_certificate(folder, NAMES, ManualClock(NOW_MS + day * DAY_MS)))
    warning = f"broker.pem expires in {left} days and cannot be made again without {key}: put it back"
    found = [record.getMessage() for record in caplog.records]
    assert all(text.endswith(warning) for text in found)
    assert len(found) == (0 if left is None else 2)


@pytest.mark.parametrize("name", ["broker.pem", "broker.key", "admin.token"])
def test_what_is_missing_is_made_again(folder: SecureFolder, name: str) -> None:
    (folder.path / name).unlink()
    folder.prepare(NAMES, NOW_MS)
    assert set(content(folder)) == FILES
    read_contexts(Settings.from_mapping(folder.over({}))[0])
    assert claims(folder, content(folder)["admin.token"]) == {"sub": "admin"}


def test_a_key_of_tokens_that_is_missing_is_no_reason_to_make_all_tokens_invalid(folder: SecureFolder) -> None:
    before = content(folder)
    (folder.path / "token.key").unlink()
    with pytest.raises(InvalidSetting, match=r"token.key is missing, which signed admin.token: put it back, or remove"):
        folder.prepare(NAMES, NOW_MS)
    (folder.path / "admin.token").unlink()
    folder.prepare(NAMES, NOW_MS)
    assert content(folder)["admin.token"] != before["admin.token"]
    assert claims(folder, content(folder)["admin.token"]) == {"sub": "admin"}


def test_certificates_of_others_are_neither_used_nor_replaced(folder: SecureFolder) -> None:
    other = new_authority(NOW_MS)
    (folder.path / "ca.pem").write_bytes(other.certificate)
    before = content(folder)
    with pytest.raises(InvalidSetting, match=r"broker.pem is not signed by ca.pem"):
        folder.prepare(NAMES, NOW_MS)
    (folder.path / "broker.pem").write_bytes(b"no certificate")
    with pytest.raises(InvalidSetting, match=r"broker.pem or broker.key cannot be read: remove them"):
        folder.prepare(NAMES, NOW_MS)
    assert {**content(folder), "broker.pem": b""} == {**before, "broker.pem": b""}


def test_a_damaged_key_of_the_authority_is_named(folder: SecureFolder) -> None:
    (folder.path / "ca.key").write_bytes(b"no key")
    with pytest.raises(InvalidSetting, match=r"ca.pem, ca.key or broker.key is not what was made here"):
        folder.renew({"new"}, NOW_MS)


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    tmp_path.chmod(0o755)
    with pytest.raises(InvalidSetting, match=r"is not empty and has no ca.pem: give a new folder"):
        SecureFolder(tmp_path).prepare(NAMES, NOW_MS)
    with pytest.raises(InvalidSetting, match=r"Not a directory"):
        SecureFolder(tmp_path / "file").prepare(NAMES, NOW_MS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["admin.token", "ca.key", "."])
def test_what_others_can_use_is_refused(folder: SecureFolder, name: str) -> None:
    (folder.path / name).chmod(0o757)
    with pytest.raises(InvalidSetting, match=r"every user"):
        folder.prepare(NAMES | {"new"}, NOW_MS)


@pytest.mark.parametrize("name", ["ca.key", "broker.key", "token.key", "admin.token"])
def test_a_secret_that_others_can_read_is_refused_at_every_start(folder: SecureFolder, name: str) -> None:
    folder.path.chmod(0o755)
    (folder.path / name).chmod(0o644)
    with pytest.raises(InvalidSetting, match=rf"--secure: .*/{name} is open to every user of this machine"):
        folder.prepare(NAMES, NOW_MS)


@pytest.mark.parametrize("name", ["ca.pem", "broker.pem", "client.conf"])
def test_what_others_can_change_is_refused(folder: SecureFolder, name: str) -> None:
    (folder.path / name).touch()
    (folder.path / name).chmod(0o666)
    with pytest.raises(InvalidSetting, match=rf"{name}: every user of this machine can write to it \(mode 0666\)"):
        folder.prepare(NAMES, NOW_MS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
@pytest.mark.parametrize("name", [*sorted(FILES), "."])
def test_what_another_user_owns_is_refused(folder: SecureFolder, name: str) -> None:
    """Its owner knows the key, and can make it readable again."""
    os.chown(folder.path / name, 65534, -1)
    before = content(folder)
    with pytest.raises(InvalidSetting, match=r"it belongs to another user of this machine \(65534\)"):
        folder.prepare(NAMES | {"new"}, NOW_MS)
    assert content(folder) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of other users")
def test_an_empty_folder_of_another_user_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 65534, -1)
    with pytest.raises(InvalidSetting, match=r"it belongs to another user of this machine \(65534\)"):
        SecureFolder(tmp_path).prepare(NAMES, NOW_MS)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("user", [0, 4711])
def test_the_files_are_those_of_this_user_or_of_root(
    folder: SecureFolder, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    stat_of = Path.stat

    def of(path: Path, **options: bool) -> os.stat_result:
        found = stat_of(path, **options)
        return os.stat_result([user if index == stat.ST_UID else value for index, value in enumerate(found)])

    monkeypatch.setattr(Path, "stat", of)
    if user:
        with pytest.raises(InvalidSetting, match=r"it belongs to another user of this machine \(4711\)"):
            folder.prepare(NAMES, NOW_MS)
    else:
        folder.prepare(NAMES, NOW_MS)


def test_a_start_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    replace = os.replace

    def fail(*names: str) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError(errno.ENOSPC, "No space left on device", names[0])
        replace(*names)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InvalidSetting, match="No space left on device"):
        SecureFolder(tmp_path / "new").prepare(NAMES, NOW_MS)
    assert list(tmp_path.iterdir()) == []
    SecureFolder(tmp_path / "new").prepare(NAMES, NOW_MS)


def test_of_two_first_starts_at_once_both_have_the_files_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = SecureFolder(tmp_path / "secure"), SecureFolder(tmp_path / "secure")
    rename = Path.rename

    def be_second(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        other.prepare(NAMES, NOW_MS)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", be_second)
    one.prepare(NAMES, NOW_MS)
    assert claims(one, content(one)["admin.token"]) == {"sub": "admin"}
    assert list(tmp_path.iterdir()) == [one.path]


def test_the_login_of_tools_is_written_when_addresses_change(folder: SecureFolder) -> None:
    folder.write_client_conf("pulsar+ssl://127.0.0.1:1", "https://127.0.0.1:2")
    file = folder.path / "client.conf"
    written = file.stat().st_ino
    folder.write_client_conf("pulsar+ssl://127.0.0.1:1", "https://127.0.0.1:2")
    assert file.stat().st_ino == written
    assert "webServiceUrl=https://127.0.0.1:2\n" in file.read_text()
    assert content(folder)["admin.token"].decode() not in file.read_text()


@pytest.mark.parametrize("name", ["back\\slash", "new\\none", "Zürich 🪐", "  two\tspaces", "a=b:c#d"])
def test_the_login_of_tools_is_read_as_it_was_meant(tmp_path: Path, name: str) -> None:
    folder = SecureFolder(tmp_path / name)
    folder.prepare(NAMES, NOW_MS)
    folder.write_client_conf("pulsar+ssl://127.0.0.1:1", "https://127.0.0.1:2")
    text = (folder.path / "client.conf").read_text("ascii")
    assert parse_properties(text)["tlsTrustCertsFilePath"] == str(tmp_path / name / "ca.pem")


# -- beside the settings of an operator


@pytest.mark.parametrize(
    "name", ["tokenSecretKey", "tlsCertificateFilePath", "tlsKeyFilePath", "brokerServicePort", "webServicePort"]
)
def test_settings_that_contradict_the_folder_are_refused_and_not_shown(folder: SecureFolder, name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is set, and --secure .* has") as caught:
        folder.over({name: "8765"})
    assert "8765" not in str(caught.value)


@pytest.mark.parametrize("name", ["authenticationEnabled", "authorizationEnabled"])
def test_protection_cannot_be_taken_off(folder: SecureFolder, name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is set, and --secure"):
        folder.over({name: "false"})
    assert folder.over({name: " true"})[name] == "true"
    with pytest.raises(InvalidSetting, match="--secure and --without-authentication contradict each other"):
        folder.over({"withoutAuthentication": "true"})
    with pytest.raises(InvalidSetting, match=r"anonymousUserRole is set, and --secure .* lets in no client without a"):
        folder.over({"anonymousUserRole": "guest"})
    folder.over({"anonymousUserRole": " "})


@pytest.mark.parametrize("url", ["pulsar://b.example:6650", "http://b.example:8080"])
def test_an_advertised_address_without_tls_is_refused(folder: SecureFolder, url: str) -> None:
    """The addresses that were printed, and those in client.conf, were empty."""
    with pytest.raises(InvalidSetting, match=rf"advertisedListeners has {url}, and --secure .* only ports with TLS"):
        folder.over({"advertisedListeners": f"in:pulsar+ssl://b.example:6651,out:{url}"})
    folder.over({"advertisedListeners": "in:pulsar+ssl://b.example:6651,out:https://b.example:8443"})


@pytest.mark.parametrize(("given", "merged"), [("false", "false"), ("true", "true"), (" ", "true")])
def test_metrics_need_a_token_unless_the_operator_says_otherwise(folder: SecureFolder, given: str, merged: str) -> None:
    assert folder.over({"authenticateMetricsEndpoint": given})["authenticateMetricsEndpoint"] == merged


def test_lists_are_joined_and_ports_are_kept(folder: SecureFolder) -> None:
    given = {
        "superUserRoles": "ops, root",
        "authenticationProviders": "basic",
        "basicAuthConf": "/users",
        "brokerServicePortTls": "0",
        "brokerServicePort": "",
    }
    merged = folder.over(given)
    assert merged["superUserRoles"] == "ops,root,admin"
    assert merged["authenticationProviders"] == "basic,token"
    assert (merged["brokerServicePortTls"], merged["webServicePortTls"]) == ("0", "8443")
    assert merged["basicAuthConf"] == "/users"
    assert folder.over({"superUserRoles": "admin"})["superUserRoles"] == "admin"


# -- the names of a broker


def test_on_loopback_a_certificate_has_the_names_of_loopback() -> None:
    assert certificate_names(Settings()) == {"localhost", "127.0.0.1", "::1"}


def test_advertised_names_are_among_them() -> None:
    settings = Settings(
        bindAddress="10.1.2.3",
        advertisedAddress="Broker.example.com",
        advertisedListeners="inside:pulsar+ssl://[2001:db8::1]:6651,outside:https://pulsar.example.org:443",
        webServiceTrustedHosts="*.proxy.example, other.example.",
    )
    found = certificate_names(settings)
    wanted = {"10.1.2.3", "broker.example.com", "2001:db8::1", "pulsar.example.org", "*.proxy.example", "other.example"}
    assert wanted < found


def test_an_open_broker_has_the_names_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host.example")
    monkeypatch.setattr("socket.getaddrinfo", lambda *words, **more: [(2, 1, 6, "", ("10.0.0.7", 0))])
    found = certificate_names(Settings(bindAddress="0.0.0.0"))
    assert {"host.example", "host", "10.0.0.7"} < found
    assert "0.0.0.0" not in found
