"""Settings of TLS and authentication: `Security`, and its parameters in Pulsar's clients.

Owns the source of a token, and that no token is ever printed. Opens no connection; `tls` builds contexts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from magnetar.client.errors import InvalidArgument, NotSupported

TOKEN_SIZE_MAX = 1 << 20
_HIDDEN = "(hidden)"

_File = str | os.PathLike[str]


class Credentials(msgspec.Struct, frozen=True):
    """The authentication data of CONNECT and AUTH_RESPONSE."""

    method: str
    data: bytes

    def __repr__(self) -> str:
        return f"Credentials(method={self.method!r}, data={_HIDDEN})"


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of TLS and authentication; can be pickled and shared.

    `trust_certs_file` has the trusted CA certificates in PEM; the default is the system's. `certificate_file` and
    `key_file` are our own (mutual TLS). `token_file` is read whenever a token is needed, so that it can be replaced at
    any time; it excludes `token`.
    """

    trust_certs_file: _File | None = None
    allow_insecure: bool = False
    """Accepts any certificate: a man in the middle can read and change everything."""
    verify_hostname: bool = True
    certificate_file: _File | None = None
    key_file: _File | None = None
    token: str | None = None
    token_file: _File | None = None

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise InvalidArgument("token and token_file exclude each other")
        if (self.certificate_file is None) != (self.key_file is None):
            given, missing = (
                ("certificate_file", "key_file") if self.certificate_file else ("key_file", "certificate_file")
            )
            raise InvalidArgument(f"{given} requires {missing}")
        if self.token is not None:
            _check_token(self.token, "token")

    def __repr__(self) -> str:
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        words = (f"{name}={_HIDDEN if name == 'token' else repr(value)}" for name, value in shown.items())
        return f"Security({', '.join(words)})"

    def read_token(self) -> str | None:
        """The current token; raises `InvalidArgument`."""
        if self.token_file is None:
            return self.token
        what = f"token_file {os.fspath(self.token_file)!r}"
        try:
            with Path(self.token_file).open("rb") as file:
                content = file.read(TOKEN_SIZE_MAX + 1)
        except OSError as error:
            raise InvalidArgument(f"{what} cannot be read: {error.strerror or error}") from None
        if len(content) > TOKEN_SIZE_MAX:
            raise InvalidArgument(f"{what} exceeds the size limit of a token, {TOKEN_SIZE_MAX} bytes")
        token = content.decode(errors="replace").strip()
        _check_token(token, what)
        return token

    def credentials(self) -> Credentials | None:
        """The token, or else the certificate; with both, the certificate serves TLS only."""
        token = self.read_token()
        if token is not None:
            return Credentials("token", token.encode())
        return Credentials("tls", b"") if self.certificate_file is not None else None

    @classmethod
    def from_pulsar(cls, parameters: Mapping[str, object]) -> Security:
        """Reads the parameters of Pulsar's clients in `PULSAR_PARAMETERS`; raises `NotSupported` for all others.

        Host names are verified unless `tlsHostnameVerificationEnable` is false.
        """
        settings: dict[str, Any] = {}
        for name, value in parameters.items():
            if name not in PULSAR_PARAMETERS:
                raise NotSupported(f"{name} is not supported; supported are {', '.join(PULSAR_PARAMETERS)}")
            setting = _SETTINGS.get(name)
            if setting is not None and value not in (None, ""):
                settings[setting] = _flag(name, value) if setting in _FLAGS else str(value)
        plugin, text = (_text_of(parameters.get(name)) for name in ("authPluginClassName", "authParams"))
        settings.update(_of_plugin(plugin, text))
        return cls(**settings)


PULSAR_PARAMETERS: dict[str, str] = {
    "authPluginClassName": "AuthenticationToken or AuthenticationTls, with or without its package, or token or tls",
    "authParams": "token:…, file:///path or JSON for a token; tlsCertFile:…,tlsKeyFile:… or JSON for TLS",
    "tlsTrustCertsFilePath": "trusted CA certificates, in PEM; the default is the system's",
    "tlsAllowInsecureConnection": "true accepts any certificate",
    "tlsHostnameVerificationEnable": "false accepts a trusted certificate for any host name",
    "tlsEnableHostnameVerification": "the same as tlsHostnameVerificationEnable",
    "tlsCertificateFilePath": "the client's own certificate, in PEM",
    "tlsKeyFilePath": "its private key, in PEM",
}
"""The parameters that `from_pulsar` supports."""

_SETTINGS = {
    "tlsTrustCertsFilePath": "trust_certs_file",
    "tlsAllowInsecureConnection": "allow_insecure",
    "tlsHostnameVerificationEnable": "verify_hostname",
    "tlsEnableHostnameVerification": "verify_hostname",
    "tlsCertificateFilePath": "certificate_file",
    "tlsKeyFilePath": "key_file",
}
_FLAGS = ("allow_insecure", "verify_hostname")
_PACKAGE = "org.apache.pulsar.client.impl.auth."


def token_settings(text: str, what: str = "authParams") -> dict[str, str]:
    """`token` or `token_file` from the forms of Pulsar's clients: `token:…`, `file:///path`, JSON or the bare token.

    Raises `InvalidArgument`, never with a token in its text; `what` names the source of the text.
    """
    if text.startswith("token:"):
        return {"token": text.removeprefix("token:")}
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InvalidArgument(f"{what} {text!r} is not of the form file:///path")
        return {"token_file": unquote(parts.path)}
    if text.lstrip().startswith("{"):
        token = _json_of(text, what).get("token")
        if not isinstance(token, str):
            raise InvalidArgument(f'{what} is JSON, but not of the form {{"token": "…"}}')
        return {"token": token}
    return {"token": text}


def _of_plugin(plugin: str, text: str) -> dict[str, str]:
    name = plugin.removeprefix(_PACKAGE)
    if name in ("", "AuthenticationDisabled"):
        if text and not name:
            raise InvalidArgument("authParams requires authPluginClassName")
        return {}
    if name in ("token", "AuthenticationToken"):
        if not text:
            raise InvalidArgument(f"authPluginClassName {plugin} needs a token in authParams")
        return token_settings(text)
    if name in ("tls", "AuthenticationTls"):
        return _tls_settings(text)
    raise NotSupported(
        f"authPluginClassName {plugin!r} is not supported; supported are {_PACKAGE}AuthenticationToken and"
        f" {_PACKAGE}AuthenticationTls"
    )


def _tls_settings(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        given = _json_of(text, "authParams")
    else:
        given = {name.strip(): value for name, _, value in (pair.partition(":") for pair in text.split(",") if pair)}
    for name in given:
        if name not in ("tlsCertFile", "tlsKeyFile"):  # the name is not shown: it may be a token by mistake
            raise NotSupported("authParams of AuthenticationTls accept only tlsCertFile and tlsKeyFile")
    settings = {"certificate_file": "tlsCertFile", "key_file": "tlsKeyFile"}
    return {setting: str(given[name]) for setting, name in settings.items() if name in given}


def _json_of(text: str, what: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidArgument(f"{what} begins with {{ but is not a JSON object") from None


def _flag(name: str, value: object) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise InvalidArgument(f"{name} {value!r} is neither true nor false")
    return word == "true"


def _text_of(value: object) -> str:
    return "" if value is None else str(value).strip()


def _check_token(token: object, what: str) -> None:
    """A token becomes an HTTP header, which a line break would split."""
    if not isinstance(token, str):
        raise InvalidArgument(f"{what} is a {type(token).__name__}, not a string")
    if not token:
        raise InvalidArgument(f"{what} is empty")
    if len(token) > TOKEN_SIZE_MAX:
        raise InvalidArgument(f"{what} exceeds the size limit of a token, {TOKEN_SIZE_MAX} characters")
    if not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(f"{what} contains spaces, line breaks or other characters that are illegal in a token")
