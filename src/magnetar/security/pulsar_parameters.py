"""The parameters of Pulsar's clients, as settings of `Security`.

Owns their spellings in every client and tool of Pulsar. No error has a parameter's text in it, which may be a secret.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from magnetar.client.errors import InvalidArgument, NotSupported
from magnetar.security.oauth2 import OAuth2

if TYPE_CHECKING:
    from magnetar.security.credentials import Security


def settings_of(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Raises `NotSupported` for parameters that are not in `PULSAR_PARAMETERS`, and `InvalidArgument`."""
    settings: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in PULSAR_PARAMETERS:
            raise NotSupported(f"{name} is not supported; supported are {', '.join(PULSAR_PARAMETERS)}")
        setting = _SETTINGS.get(name)
        if setting is not None and value not in (None, ""):
            settings[setting] = _flag(name, value) if setting in _FLAGS else str(value)
    plugin, text = (_text_of(parameters.get(name)) for name in ("authPluginClassName", "authParams"))
    return settings | _of_plugin(plugin, text)


PULSAR_PARAMETERS: dict[str, str] = {
    "authPluginClassName": "AuthenticationToken, AuthenticationTls, AuthenticationBasic or AuthenticationOAuth2, with"
    " or without its package, or token, tls, basic or oauth2",
    "authParams": "token:…, file:///path or JSON for a token; tlsCertFile:…,tlsKeyFile:… or JSON for TLS;"
    " username:password or JSON for basic; JSON with issuerUrl, privateKey, audience and scope for OAuth 2",
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
_OAUTH2_PACKAGE = _PACKAGE + "oauth2."
_OAUTH2 = {
    "issuer_url": ("issuerUrl", "issuer_url"),
    "private_key": ("privateKey", "private_key"),
    "audience": ("audience",),
    "scope": ("scope",),
    "trust_certs_file": ("trustCertsFilePath",),
}
_OAUTH2_KEY = ("client_id", "client_secret")  # instead of a file, in the Python and C++ clients


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


def parameters_of(security: Security) -> dict[str, str]:
    """The parameters that stand for these settings, with the token that is valid now. They contain secrets."""
    files = {"tlsTrustCertsFilePath": security.trust_certs_file, "tlsCertificateFilePath": security.certificate_file}
    files["tlsKeyFilePath"] = security.key_file
    found = {name: os.fspath(file) for name, file in files.items() if file is not None}
    if security.allow_insecure:
        found["tlsAllowInsecureConnection"] = "true"
    if not security.verify_hostname:
        found["tlsHostnameVerificationEnable"] = "false"
    plugin, text = _plugin_of(security)
    return found | ({"authPluginClassName": plugin, "authParams": text} if plugin else {})


def _plugin_of(security: Security) -> tuple[str, str]:
    if security.username is not None:
        login = {"username": security.username, "password": security.password}
        return "basic", msgspec.json.encode(login).decode()
    if security.oauth2 is not None:
        key = security.oauth2
        settings = {names[0]: getattr(key, setting) for setting, names in _OAUTH2.items() if getattr(key, setting)}
        return "oauth2", msgspec.json.encode(settings).decode()
    if security.token_file is not None:
        return "token", Path(security.token_file).absolute().as_uri()
    token = security.read_token()
    return ("token", f"token:{token}") if token else ("", "")


def _of_plugin(plugin: str, text: str) -> dict[str, Any]:
    name = plugin.removeprefix(_OAUTH2_PACKAGE).removeprefix(_PACKAGE)
    if name in ("", "AuthenticationDisabled"):
        if text and not name:
            raise InvalidArgument("authParams requires authPluginClassName")
        return {}
    if name in ("token", "AuthenticationToken"):
        if not text:
            raise InvalidArgument(f"authPluginClassName {plugin} needs a token in authParams")
        return dict(token_settings(text))
    if name in ("tls", "AuthenticationTls"):
        return dict(_tls_settings(text))
    if name in ("basic", "AuthenticationBasic"):
        return dict(basic_settings(text))
    if name.lower() in ("oauth2", "authenticationoauth2"):
        return {"oauth2": _oauth2_of(text)}
    plugins = ", ".join(f"Authentication{kind}" for kind in ("Token", "Tls", "Basic", "OAuth2"))
    raise NotSupported(f"authPluginClassName {plugin!r} is not supported; supported of {_PACKAGE} are {plugins}")


def basic_settings(text: str, what: str = "authParams") -> dict[str, str]:
    """`username` and `password` from `username:password` or JSON; raises `InvalidArgument`."""
    if text.lstrip().startswith("{"):
        given = _json_of(text, what)
        user, password = given.get("username", given.get("userId")), given.get("password")
        if isinstance(user, str) and isinstance(password, str):
            return {"username": user, "password": password}
        raise InvalidArgument(f'{what} is JSON, but not of the form {{"username": "…", "password": "…"}}')
    user, separator, password = text.partition(":")
    if not separator:
        raise InvalidArgument(f"{what} is not of the form username:password")
    return {"username": user, "password": password}


def _oauth2_of(text: str) -> OAuth2:
    if not text.lstrip().startswith("{"):
        raise InvalidArgument(
            "authParams of AuthenticationOAuth2 are JSON with issuerUrl, privateKey, audience and scope"
        )
    given = _json_of(text, "authParams")
    if given.pop("type", "client_credentials") != "client_credentials":
        raise NotSupported("authParams of AuthenticationOAuth2 accept only the type client_credentials")
    key = {name: given.pop(name) for name in _OAUTH2_KEY if name in given}
    settings: dict[str, Any] = {}
    for setting, names in _OAUTH2.items():
        for name in names:
            if (value := given.pop(name, None)) not in (None, ""):
                settings[setting] = str(value)
    if given:
        known = [name for names in _OAUTH2.values() for name in names]
        raise NotSupported(f"authParams of AuthenticationOAuth2 accept only {', '.join((*known, *_OAUTH2_KEY))}")
    if len(key) == len(_OAUTH2_KEY) and "private_key" not in settings:
        content = base64.b64encode(msgspec.json.encode({name: str(value) for name, value in key.items()})).decode()
        settings["private_key"] = f"data:application/json;base64,{content}"
    for name in ("issuer_url", "private_key"):
        if name not in settings:
            raise InvalidArgument(f"authParams of AuthenticationOAuth2 need {_OAUTH2[name][0]}")
    return OAuth2(**settings)


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
