"""Profiles: named logins in a file, `~/.config/magnetar/config.toml` or the one in MAGNETAR_CONFIG; and Pulsar's
client.conf.

    [profile.prod]
    url = "https://broker.example.com:8443"
    token_file = "~/.config/magnetar/prod.token"
    trust_certs = "ca.pem"

Owns the formats, and that a file with a secret in it is private. Paths are relative to the folder of the file.
"""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from magnetar.cli.login.login_source import ADDRESSES, LoginSource
from magnetar.cli.rest import check_no_login
from magnetar.errors import InvalidSetting

CONFIG_VARIABLE = "MAGNETAR_CONFIG"
FILE_SIZE_MAX = 1 << 20

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CLIENT_CONF = {
    "webServiceUrl": "url",
    "brokerServiceUrl": "service_url",
    "authPlugin": "auth_plugin",
    "authParams": "auth_params",
    "tlsTrustCertsFilePath": "trust_certs",
    "tlsCertificateFilePath": "tls_cert",
    "tlsKeyFilePath": "tls_key",
    "tlsAllowInsecureConnection": "tls_allow_insecure",
    "tlsEnableHostnameVerification": "tls_verify_hostname",
}
_FLAGS = ("tlsAllowInsecureConnection", "tlsEnableHostnameVerification")
_NOT_OBEYED = ("useKeyStoreTls", "proxyServiceUrl")
"""Settings of client.conf that change who is talked to, and that this program does not have."""


class Profile(NamedTuple):
    """`name` says where it is from, for errors."""

    name: str
    source: LoginSource


def config_file() -> Path:
    """The file of profiles, which need not exist."""
    named = os.environ.get(CONFIG_VARIABLE, "").strip()
    if named:
        return Path(named).expanduser()
    folder = os.environ.get("XDG_CONFIG_HOME", "").strip() or "~/.config"
    return Path(folder).expanduser() / "magnetar" / "config.toml"


def read_profile(name: str) -> Profile:
    """By its name, or by the path of a file with one profile in it; raises `InvalidSetting`."""
    if "/" in name or name.endswith(".toml"):
        file = Path(name).expanduser()
        found = read_profiles(file)
        if len(found) != 1:
            raise InvalidSetting(
                f"{file} has {len(found)} profiles, {', '.join(found) or 'none at all'}: choose one with"
                f" {CONFIG_VARIABLE}={file} and --profile NAME"
            )
        return Profile(f"profile {next(iter(found))} of {file}", next(iter(found.values())))
    file = config_file()
    found = read_profiles(file)
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(found) or 'none'}"
        raise InvalidSetting(f"{file} has no profile {name!r}{hint}")
    return Profile(f"profile {name} of {file}", found[name])


def read_profiles(file: Path) -> dict[str, LoginSource]:
    """All profiles of a file; raises `InvalidSetting`."""
    import tomllib

    text, mode = _read(file)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{file} is not TOML: {error}") from None
    unknown = [key for key in content if key != "profile"]
    tables = content.get("profile", {})
    if unknown or not isinstance(tables, dict):
        what = f"has {unknown[0]!r}" if unknown else "has a profile that is no table"
        raise InvalidSetting(f"{file} {what}: it has only tables [profile.NAME]")
    found = {}
    for name, table in tables.items():
        what = f"profile {name} of {file}"
        source = _profile(what, table)
        _check_addresses(source, what)
        _check_private(file, mode, source)
        found[name] = source.below(file.resolve().parent)
    return found


def _profile(what: str, table: Any) -> LoginSource:
    if isinstance(table, dict):
        for key in table:
            if key not in LoginSource.__struct_fields__:
                near = difflib.get_close_matches(key, LoginSource.__struct_fields__, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(LoginSource.__struct_fields__)}"
                raise InvalidSetting(f"{what} has no setting {key!r}: {hint}")
    try:
        return msgspec.convert(table, LoginSource)
    except msgspec.ValidationError as error:  # it names types and fields, never values
        raise InvalidSetting(f"{what} is not as expected: {error}") from None


def read_client_conf(name: str) -> Profile:
    """Pulsar's conf/client.conf; raises `InvalidSetting`."""
    from magnetar.settings.properties_file import parse_properties

    file = Path(name).expanduser()
    text, mode = _read(file)
    pairs = {key: value.strip() for key, value in parse_properties(text).items() if value.strip()}
    for key in _NOT_OBEYED:
        if pairs.get(key, "false").lower() != "false":
            raise InvalidSetting(f"{file} has {key}, which this program does not have: key stores and proxies")
    given: dict[str, Any] = {setting: pairs[key] for key, setting in _CLIENT_CONF.items() if key in pairs}
    for key in _FLAGS:
        if key in pairs:
            if pairs[key].lower() not in ("true", "false"):
                raise InvalidSetting(f"{file}: {key} is neither true nor false")
            given[_CLIENT_CONF[key]] = pairs[key].lower() == "true"
    source = LoginSource(**given)
    _check_addresses(source, str(file))
    _check_private(file, mode, source)
    return Profile(str(file), source.below(file.resolve().parent))


def _read(file: Path) -> tuple[str, int]:
    """The text of a file, and the mode of exactly that file."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = opened.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise InvalidSetting(f"{file} cannot be read: {error.strerror or error}") from None
    if len(content) > FILE_SIZE_MAX:
        raise InvalidSetting(f"{file} exceeds the size limit of a file of profiles, {FILE_SIZE_MAX} bytes")
    try:
        return content.decode("utf-8-sig"), mode
    except UnicodeDecodeError:
        raise InvalidSetting(f"{file} is not UTF-8 text") from None


def _check_addresses(source: LoginSource, what: str) -> None:
    for name in ADDRESSES:
        check_no_login(getattr(source, name) or "", f"{name} of {what}")


def _check_private(file: Path, mode: int, source: LoginSource) -> None:
    secrets = source.secrets()
    if secrets and mode & _OTHERS:
        raise InvalidSetting(
            f"{file} has a secret, {secrets[0]}, and is open to other users (mode {stat.S_IMODE(mode):04o}):"
            f" `chmod 600 {file}`, and replace the secret if others use this machine"
        )
