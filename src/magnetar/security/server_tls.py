"""TLS contexts of the broker's ports from its settings, and explanations of handshakes that fail there.

A certificate proves something only if it was verified: `common_name_of` is empty for every other one. Opens no
connection, and does not know when files are read again.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from magnetar.errors import InvalidSetting
from magnetar.security.pem_files import why_not
from magnetar.settings.settings import Settings

COMMON_NAME_MAX = 1024
"""Characters of a common name; a longer one names no client."""

_FILES = ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath")
_SUITES = "ALL:!aNULL:!eNULL:!PSK:!SRP:!aDSS"  # what a setting may choose from; the default is Python's, which is less
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
)

Stamp = tuple[tuple[int, ...], ...]


class TlsContexts(NamedTuple):
    """For the two ports with TLS; both have the same certificate, and protocols and ciphers of their own."""

    binary: ssl.SSLContext
    http: ssl.SSLContext


def read_contexts(settings: Settings) -> TlsContexts:
    """Reads the files; raises InvalidSetting."""
    for name in _FILES[:2]:
        if not getattr(settings, name):
            wanted = "brokerServicePortTls" if settings.brokerServicePortTls is not None else "webServicePortTls"
            raise InvalidSetting(f"{wanted} requires {name}")
    if settings.tlsRequireTrustedClientCertOnConnect:
        if settings.tlsAllowInsecureConnection:
            raise InvalidSetting(
                "tlsRequireTrustedClientCertOnConnect and tlsAllowInsecureConnection contradict each other"
            )
        if not settings.tlsTrustCertsFilePath:
            raise InvalidSetting("tlsRequireTrustedClientCertOnConnect requires tlsTrustCertsFilePath")
    return TlsContexts(_read_context(settings, ""), _read_context(settings, "webService"))


def stamp_of(settings: Settings) -> Stamp:
    """Changes when one of the files is replaced, or its mode changes; empty for a file that is missing."""
    return tuple(_stamp(getattr(settings, name)) for name in _FILES)


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read_context(settings: Settings, port: Literal["", "webService"]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _choose_protocols(context, settings, port)
    certificate, key = settings.tlsCertificateFilePath, settings.tlsKeyFilePath
    try:
        # With a password, even an empty one, OpenSSL does not prompt for it at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        both = f"tlsCertificateFilePath={certificate} with tlsKeyFilePath={key}"
        raise InvalidSetting(f"{_unreadable(settings, _FILES[:2]) or both} {why_not(error)}") from None
    if settings.tlsTrustCertsFilePath and not settings.tlsAllowInsecureConnection:
        try:
            context.load_verify_locations(cafile=settings.tlsTrustCertsFilePath)
        except OSError as error:
            raise InvalidSetting(f"tlsTrustCertsFilePath={settings.tlsTrustCertsFilePath} {why_not(error)}") from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate authority can be trusted alone
        is_required = settings.tlsRequireTrustedClientCertOnConnect
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    if port:
        context.set_alpn_protocols(["http/1.1"])
    return context


def _unreadable(settings: Settings, names: Iterable[str]) -> str:
    """The first file that cannot be opened; OpenSSL's error does not name it."""
    for name in names:
        path = getattr(settings, name)
        if not os.access(path, os.R_OK):
            return f"{name}={path}"
    return ""


# -- protocols and ciphers


def _choose_protocols(context: ssl.SSLContext, settings: Settings, port: Literal["", "webService"]) -> None:
    """The protocols of the setting that have one of the ciphers, as in Java."""
    protocols_name, ciphers_name = (f"{port}Tls{rest}" if port else f"tls{rest}" for rest in ("Protocols", "Ciphers"))
    protocols: frozenset[str] = getattr(settings, protocols_name)
    chosen = [word.strip() for word in getattr(settings, ciphers_name).split(",") if word.strip()]
    if chosen:
        by_protocol = _ciphers_of(ciphers_name, chosen)
        if by_protocol["TLSv1.2"]:
            context.set_ciphers(":".join(by_protocol["TLSv1.2"]))
        protocols = frozenset(protocol for protocol in protocols if by_protocol[protocol])
        if not protocols:
            raise InvalidSetting(f"{ciphers_name} has no cipher for the protocols of {protocols_name}")
    versions = sorted(_VERSIONS[protocol] for protocol in protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _ciphers_of(setting: str, chosen: list[str]) -> dict[str, list[str]]:
    """OpenSSL's names by protocol. Those of TLS 1.3 cannot be chosen one by one: OpenSSL has its own list."""
    known = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    known.set_ciphers(_SUITES)
    newer = {cipher["name"] for cipher in known.get_ciphers() if cipher["protocol"] == "TLSv1.3"}
    older = {cipher["name"] for cipher in known.get_ciphers()} - newer
    names = {word: word if word in newer | older else _openssl_name(word) for word in chosen}
    for word, name in names.items():
        if name not in newer | older:
            raise InvalidSetting(f"{setting}: {word[:100]!r} is not a cipher that this machine's OpenSSL has")
    wanted = newer.intersection(names.values())
    if wanted and wanted != newer:
        raise InvalidSetting(
            f"{setting}: ciphers of TLSv1.3 are all chosen or none, not only {', '.join(sorted(wanted))}:"
            f" add {', '.join(sorted(newer - wanted))}"
        )
    return {"TLSv1.2": [name for name in names.values() if name in older], "TLSv1.3": sorted(wanted)}


def _openssl_name(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, as Java calls it, is ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    for old, new in (("AES_", "AES"), ("_CBC", ""), ("POLY1305_SHA256", "POLY1305")):
        cipher = cipher.replace(old, new, 1)
    return f"{'' if exchange == 'RSA' else exchange + '-'}{cipher}".replace("_", "-")


# -- clients


def common_name_of(certificate: Mapping[str, Any] | None) -> str:
    """The common name of a verified certificate, the most specific one if there are several; empty if there is none.

    `certificate` is what `getpeercert` returns, which is empty unless the certificate was verified.
    """
    found = ""
    for names in (certificate or {}).get("subject", ()):
        for kind, value in names:
            if kind == "commonName":
                found = value
    return found if len(found) <= COMMON_NAME_MAX else ""


def explain_refusal(error: ssl.SSLError) -> str:
    """Why a handshake with a client failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = str(error.reason or error)
    if any(word in reason for word in _NOT_TLS):
        return "it does not use TLS, which this port requires"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has no certificate, which tlsRequireTrustedClientCertOnConnect demands"
    words = reason.lower().replace("_", " ")
    if "ALERT" in reason:
        return f"it ended the TLS handshake ({words}): it may not accept the broker's certificate"
    return f"the TLS handshake failed: {words}"
