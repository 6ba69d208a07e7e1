"""Settings of Apache Pulsar that ask for protection which this broker does not have: they end the start.

Owns their names, the values that ask for nothing, and the rule for names that only look like protection: a misspelt
`authenticationEnabled` must not open a broker. Also which texts are secrets, and which only say where one is kept.
Knows neither the content of files nor the command line. What `Settings` has is obeyed, and not listed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from magnetar.errors import InvalidSetting
from magnetar.settings.settings import KINDS, SECRET

_STORE = frozenset({"JKS"})
_PEM = frozenset({"PEM"})
_NOTHING: frozenset[str] = frozenset()

PROTECTING: Mapping[str, frozenset[str]] = {
    # TLS
    "tlsEnabled": _NOTHING,
    "webServiceTlsProvider": frozenset({"Conscrypt"}),
    "tlsHostnameVerificationEnabled": frozenset({"true"}),
    "tlsFactoryClassName": _NOTHING,
    "tlsFactoryConfig": _NOTHING,
    "sslFactoryPlugin": frozenset({"org.apache.pulsar.common.util.DefaultPulsarSslFactory"}),
    "sslFactoryPluginParams": _NOTHING,
    "tlsProvider": _NOTHING,
    "tlsEnabledWithKeyStore": _NOTHING,
    "tlsKeyStoreType": _STORE,
    "tlsKeyStore": _NOTHING,
    "tlsKeyStorePassword": _NOTHING,
    "tlsTrustStoreType": _STORE,
    "tlsTrustStore": _NOTHING,
    "tlsTrustStorePassword": _NOTHING,
    "jsseProvider": _NOTHING,
    # TLS of the broker as a client
    "replicationTlsEnabled": _NOTHING,
    "brokerClientTlsEnabled": _NOTHING,
    "brokerClientTlsEnabledWithKeyStore": _NOTHING,
    "brokerClientSslProvider": _NOTHING,
    "brokerClientJsseProvider": _NOTHING,
    "brokerClientKeyFilePath": _NOTHING,
    "brokerClientCertificateFilePath": _NOTHING,
    "brokerClientTlsKeyStoreType": _STORE,
    "brokerClientTlsKeyStore": _NOTHING,
    "brokerClientTlsKeyStorePassword": _NOTHING,
    "brokerClientTlsTrustStoreType": _STORE,
    "brokerClientTlsTrustStore": _NOTHING,
    "brokerClientTlsTrustStorePassword": _NOTHING,
    "brokerClientTlsCiphers": _NOTHING,
    "brokerClientTlsProtocols": _NOTHING,
    "brokerClientTlsFactoryClassName": _NOTHING,
    "brokerClientTlsFactoryConfig": _NOTHING,
    "brokerClientSslFactoryPlugin": frozenset({"org.apache.pulsar.common.util.DefaultPulsarSslFactory"}),
    "brokerClientSslFactoryPluginParams": _NOTHING,
    # authentication
    "authenticationRoleLoggingAnonymizer": frozenset({"NONE"}),
    "strictAuthMethod": _NOTHING,
    "tokenSettingPrefix": _NOTHING,
    "openIDTokenIssuerTrustCertsFilePath": _NOTHING,
    "openIDCacheSize": frozenset({"5"}),
    "openIDCacheRefreshAfterWriteSeconds": frozenset({"64800"}),
    "openIDCacheExpirationSeconds": frozenset({"86400"}),
    "openIDHttpConnectionTimeoutMillis": frozenset({"10000"}),
    "openIDHttpReadTimeoutMillis": frozenset({"10000"}),
    "openIDKeyIdCacheMissRefreshSeconds": frozenset({"300"}),
    "openIDRequireIssuersUseHttps": frozenset({"true"}),
    "openIDFallbackDiscoveryMode": frozenset({"DISABLED"}),
    "athenzDomainNames": _NOTHING,
    "saslJaasBrokerSectionName": _NOTHING,
    "saslJaasClientAllowedIds": frozenset({".*pulsar.*"}),
    "saslJaasServerSectionName": frozenset({"PulsarBroker"}),
    "saslJaasServerRoleTokenSignerSecretPath": _NOTHING,
    "kinitCommand": frozenset({"/usr/bin/kinit"}),
    "inflightSaslContextExpiryMs": frozenset({"30000"}),
    "maxInflightSaslContext": frozenset({"50000"}),
    # what clients may send
    "encryptionRequireOnProducer": _NOTHING,
    "entryFilterNames": _NOTHING,
    "brokerInterceptors": _NOTHING,
    "httpRequestsLimitEnabled": _NOTHING,
    "httpMaxRequestSize": frozenset({"-1"}),
    "httpMaxRequestHeaderSize": frozenset({"8192"}),
    "disableHttpDebugMethods": frozenset({"true"}),  # TRACE and TRACK are refused anyway
    # the store of Apache Pulsar
    "managedLedgerPassword": _NOTHING,
    "bookkeeperClientAuthenticationPlugin": _NOTHING,
    "bookkeeperClientAuthenticationParametersName": _NOTHING,
    "bookkeeperClientAuthenticationParameters": _NOTHING,
    "bookkeeperTLSProviderFactoryClass": frozenset({"org.apache.bookkeeper.tls.TLSContextFactory"}),
    "bookkeeperTLSClientAuthentication": _NOTHING,
    "bookkeeperTLSKeyFileType": _PEM,
    "bookkeeperTLSTrustCertTypes": _PEM,
    "bookkeeperTLSKeyStorePasswordPath": _NOTHING,
    "bookkeeperTLSTrustStorePasswordPath": _NOTHING,
    "bookkeeperTLSKeyFilePath": _NOTHING,
    "bookkeeperTLSCertificateFilePath": _NOTHING,
    "bookkeeperTLSTrustCertsFilePath": _NOTHING,
    "bookkeeperTlsCertFilesRefreshDurationSeconds": frozenset({"300"}),
    "bookkeeper_tlsHostnameVerificationEnabled": _NOTHING,
    "s3ManagedLedgerOffloadRole": _NOTHING,
    "s3ManagedLedgerOffloadRoleSessionName": frozenset({"pulsar-s3-offload"}),
}
"""Pulsar's names, each with the values that ask for nothing: those of its own files. Empty and false never do."""

_LOOKS_PROTECTING = (
    r"(?i:auth|tls|ssl|token|jwt|secret|passw|passphrase|encrypt|cipher|sasl|jaas|kerberos|kinit|athenz|openid|oidc|role"
    r"|permission|credential|certificate|Certs?(?![a-z])|trust|keystore|secur|anonymous|superuser|privatekey|publickey)"
)
_HARMLESS = frozenset({"webServiceTrustXForwardedFor"})  # less protection, which is no reason to end a start
_OFF = frozenset({"", "false"})
_HIDDEN = r"(?i:passw|secret|token|key|param|conf|credential|jwt)"
_PARAMETERS = "brokerClientAuthenticationParameters"
_SECRET_OF_PULSAR = frozenset(
    {"bookkeeperClientAuthenticationParameters", "managedLedgerPassword"}
    | {name for name in PROTECTING if name.endswith("Password")}
)
_VALUE_LENGTH_MAX = 100
_MISSPELT = 0.93  # similarity from which a name is taken for a misspelt one


def asks_for_protection(name: str, text: str) -> bool:
    """Whether a setting that the broker does not have asks for protection; a spelling that is close to one does too."""
    value = text.strip()
    if name in KINDS or name in _HARMLESS or value.lower() in _OFF:
        return False
    if name in PROTECTING:
        return value not in PROTECTING[name]
    return re.search(_LOOKS_PROTECTING, name) is not None or _nearest(name, _MISSPELT) is not None


def refusal(asked: Iterable[tuple[str, str, str]]) -> InvalidSetting:
    """The error for settings that cannot be obeyed: source, name and text of each."""
    words = [f"{name}={_shown(name, text)} ({source}{_suggestion(name)})" for source, name, text in asked]
    return InvalidSetting(
        f"{', '.join(words)} {'asks' if len(words) == 1 else 'ask'} for protection that this broker does not have; to"
        " start without, remove the setting or make it empty"
    )


def is_secret(name: str, text: str, *, plugin: str = "") -> bool:
    """Whether the text may be a secret itself, and not the place where it is kept. `plugin` is that of parameters."""
    value = text.strip()
    if not value or names_files(plugin if name == _PARAMETERS else "", value):
        return False
    if name in SECRET:
        return not os.path.isfile(value)  # a key in base64 may begin like a path
    return name in _SECRET_OF_PULSAR


def _shown(name: str, text: str) -> str:
    """A path is no secret; what else such a setting has may be one."""
    value = text.strip()
    if re.search(_HIDDEN, name) and not _is_place(name, value) and value.lower() != "true":
        return "(hidden)"
    return value if len(value) <= _VALUE_LENGTH_MAX else value[:_VALUE_LENGTH_MAX] + "..."


def _is_place(name: str, value: str) -> bool:
    is_path = value.startswith("/") and (name.endswith("Path") or os.path.exists(value))
    return is_path or names_files("", value)


# -- parameters of authentication plugins

_START = r"(?:~|\.{1,2})?/"  # of a path: `file:` and `tlsKeyFile:` may be the beginning of a token or a password too
_TOKEN_FILE = r"file:(?://(?:localhost)?)?/(?!/).*"
_TLS_FILE = rf"(?:tlsCertFile|tlsKeyFile):{_START}[^,\n]*"
_TLS_FILES = rf"{_TLS_FILE}(?:,\s*{_TLS_FILE})*"
_PATH = rf"{_START}.*"
_TLS_NAMES = frozenset({"tlsCertFile", "tlsKeyFile"})
_KEY_NAMES = frozenset({"privateKey", "private_key"})
_OAUTH2_NAMES = frozenset(
    {"type", "client_id", "issuerUrl", "issuer_url", "audience", "scope", "trustCertsFilePath", *_KEY_NAMES}
)


def names_files(plugin: str, parameters: str) -> bool:
    """Whether parameters of a plugin, by any of its names, say which files have the secret, and have none themselves.

    Without the plugin, those of any are.
    """
    kind = plugin.rpartition(".")[2].lower().removeprefix("authentication")
    return any(is_named(parameters.strip()) for one, is_named in _FORMS.items() if kind in ("", one))


def _names_token(text: str) -> bool:
    return re.fullmatch(_TOKEN_FILE, text) is not None


def _names_certificate(text: str) -> bool:
    given = _json_of(text)
    if given:
        return given.keys() <= _TLS_NAMES and all(re.fullmatch(_PATH, path) for path in given.values())
    return re.fullmatch(_TLS_FILES, text) is not None


def _names_key(text: str) -> bool:
    given = _json_of(text)
    keys = [given[name] for name in given.keys() & _KEY_NAMES]
    if not keys or not given.keys() <= _OAUTH2_NAMES or any("@" in value for value in given.values()):
        return False
    return all(_names_token(key) or re.fullmatch(_PATH, key) for key in keys)


_FORMS: Mapping[str, Callable[[str], bool]] = {
    "token": _names_token,
    "tls": _names_certificate,
    "oauth2": _names_key,
}
"""By the last word of the plugin's names. The password of AuthenticationBasic is in no file."""


def _json_of(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}


# -- names that are close


def _suggestion(name: str) -> str:
    """Only of a setting that is obeyed: another refused one would be no help."""
    near = name if name in PROTECTING else _nearest(name, 0.6)
    if near is None:
        return "; no setting of Apache Pulsar that is known here"
    return f"; did you mean {near}?" if near in KINDS else ""


def _nearest(name: str, similarity: float) -> str | None:
    from difflib import get_close_matches  # only needed for names that are unknown

    by_lower = _known_by_lower()
    # Names of very different lengths cannot be similar: a file has hundreds of names, and each comparison takes time.
    share = similarity / (2 - similarity)
    length = len(name)
    near = [known for known in by_lower if length * share <= len(known) <= length / share]
    found = get_close_matches(name.lower(), near, n=1, cutoff=similarity)
    return by_lower[found[0]] if found else None


@lru_cache(maxsize=1)
def _known_by_lower() -> dict[str, str]:
    return {name.lower(): name for name in _known()}


def _known() -> Iterator[str]:
    yield from PROTECTING
    yield from (name for name in KINDS if re.search(_LOOKS_PROTECTING, name))
