"""A source of login settings: one place that names a broker and how to log in to it.

Owns the settings that every place has, how they become `Security`, and which of them are secrets. Does not know where
they were read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.client import Security

ADDRESSES = ("url", "service_url")
_FILES = ("token_file", "trust_certs", "tls_cert", "tls_key")
_LOGIN = ("token", "token_file", "username", "password", "auth_plugin", "auth_params")
_TLS = {
    "trust_certs": "trust_certs_file",
    "tls_cert": "certificate_file",
    "tls_key": "key_file",
    "tls_allow_insecure": "allow_insecure",
    "tls_verify_hostname": "verify_hostname",
}


class LoginSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a profile, under their names in the file; other places use some of them."""

    url: str | None = None
    service_url: str | None = None
    token: str | None = None
    token_file: str | None = None
    username: str | None = None
    password: str | None = None
    auth_plugin: str | None = None
    auth_params: str | None = None
    trust_certs: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_allow_insecure: bool | None = None
    tls_verify_hostname: bool | None = None

    def __repr__(self) -> str:
        return f"LoginSource({', '.join(f'{name}={value!r}' for name, value in self.shown().items())})"

    def shown(self) -> dict[str, object]:
        """What is set, without secrets."""
        hidden = self.secrets()
        return {
            name: "(hidden)" if name in hidden else value
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None
        }

    @property
    def has_login(self) -> bool:
        """A client certificate is a login too, but serves beside a token as well."""
        return any(getattr(self, name) is not None for name in _LOGIN)

    @property
    def is_empty(self) -> bool:
        return all(value is None for value in msgspec.structs.asdict(self).values())

    @property
    def kind(self) -> str:
        """The login in a word or two."""
        if self.auth_plugin:
            return self.auth_plugin.rpartition(".")[2]
        if self.token or self.token_file:
            return "token"
        if self.username:
            return "password"
        return "certificate" if self.tls_cert else "none"

    def secrets(self) -> list[str]:
        """The settings that are secrets themselves, and not the name of a file that has one."""
        found = [name for name in ("token", "password") if getattr(self, name)]
        if self.auth_params and not is_path(self.auth_params, self.auth_plugin):
            found.append("auth_params")
        return found

    def below(self, folder: Path) -> LoginSource:
        """The same with paths relative to a folder, where they are relative."""
        files = {name: str(folder / Path(text).expanduser()) for name in _FILES if (text := getattr(self, name))}
        return msgspec.structs.replace(self, **files)

    def over(self, other: LoginSource) -> LoginSource:
        """These settings, and those of another source where these have none. A login is taken whole or not at all."""
        taken = msgspec.structs.asdict(other)
        if self.has_login:
            taken.update(dict.fromkeys(_LOGIN))
        if self.tls_cert or self.tls_key:
            taken["tls_cert"] = taken["tls_key"] = None
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return LoginSource(**{**taken, **own})

    def without_login(self) -> LoginSource:
        return msgspec.structs.replace(self, **dict.fromkeys(_LOGIN))

    def without_tls(self) -> LoginSource:
        return msgspec.structs.replace(self, **dict.fromkeys(_TLS))

    def security(self) -> Security | None:
        """None without any: then the client, which takes a while to import, is not needed.

        Raises `InvalidArgument` and `NotSupported` of the client.
        """
        given: dict[str, Any] = {
            setting: getattr(self, name) for name, setting in _TLS.items() if getattr(self, name) not in (None, "")
        }
        if not given and not self.has_login:
            return None
        from magnetar.security.credentials import Security
        from magnetar.security.pulsar_parameters import settings_of, token_settings

        given |= {name: getattr(self, name) for name in ("token_file", "username", "password") if getattr(self, name)}
        if self.token:
            given |= token_settings(self.token, "token")
        if self.auth_plugin or self.auth_params:
            given |= settings_of({"authPluginClassName": self.auth_plugin, "authParams": self.auth_params})
        security = Security(**given)
        security.check()
        return security


def is_path(parameters: str, plugin: str | None) -> bool:
    """Whether parameters of a plugin name files only."""
    from magnetar.settings.refused import names_files

    return names_files(plugin or "", parameters)


def refuse_secret(source: str, instead: str) -> InvalidSetting:
    """Every user of the machine sees the command line of every process."""
    return InvalidSetting(f"{source} shows a secret to every user of this machine: {instead}")
