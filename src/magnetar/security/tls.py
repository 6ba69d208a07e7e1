"""TLS contexts from `Security`, and explanations of TLS failures.

OpenSSL's errors name a symptom; `explain` adds the cause and the remedy. Opens no connection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from enum import Enum, auto
from functools import lru_cache
from typing import Protocol

from magnetar.client.errors import InvalidArgument
from magnetar.security.credentials import Security
from magnetar.security.pem_files import why_not
from magnetar.security.regular_files import PEM_SIZE_MAX, check_regular

SHUTDOWN_TIMEOUT_S = 3.0
"""The time for the peer to close the TLS session before the socket is closed."""

_FILES = ("trust_certs_file", "certificate_file", "key_file")
_OTHER_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_UNTRUSTED = (2, 18, 19, 20, 21)  # no chain from the certificate to a trusted CA
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
)
_CERTIFICATE_WANTED = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
)
CERTIFICATE_HINT = "it may require a client certificate: set certificate_file and key_file"
_PLAIN_PORT = "it may be a port without TLS: the TLS port is usually 6651, or 8443 for https://"
_CLOSED = f"the peer closed the connection during the TLS handshake; {_PLAIN_PORT}; or {CERTIFICATE_HINT}"


class Endpoint(Protocol):
    """A service URL, of which only the encryption matters here."""

    @property
    def is_tls(self) -> bool: ...


class Fault(Enum):
    """The kinds of TLS failures."""

    UNTRUSTED = auto()
    OTHER_HOST = auto()
    NOT_TLS = auto()
    CERTIFICATE_WANTED = auto()  # of the client
    OTHER = auto()


def check_settings(security: Security, *urls: Endpoint) -> None:
    """Raises `InvalidArgument` for settings that cannot be used, or that have no effect on any of `urls`."""
    security.check()
    if any(url.is_tls for url in urls):
        context_of(security)
        return
    for name in ("trust_certs_file", "certificate_file"):
        if getattr(security, name) is not None:
            raise InvalidArgument(
                f"{name} is set, but {urls[0]} is not encrypted: write pulsar+ssl:// or https://, with the TLS port"
            )


def context_of(security: Security, *, for_http: bool = False) -> ssl.SSLContext:
    """A context with the current certificates; raises `InvalidArgument`.

    Files are read again only when they were replaced: reading those of the system takes a tenth of a second. HTTP has
    its own context, because its library writes the protocol (ALPN) into it.
    """
    settings = security.without_secrets()
    return _read_context(settings, tuple(_stamp(settings, name) for name in _FILES), for_http)


def _stamp(security: Security, name: str) -> tuple[int, ...]:
    """Changes when the file is replaced. Raises `InvalidArgument` for one that cannot be opened safely."""
    file = getattr(security, name)
    if file is None:
        return ()
    found = check_regular(file, name, PEM_SIZE_MAX)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=16)
def _read_context(security: Security, stamps: tuple[tuple[int, ...], ...], for_http: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=security.trust_certs_file)
    except OSError as error:
        raise InvalidArgument(f"{_named(security, 'trust_certs_file')} {why_not(error)}") from None
    # Python 3.13 sets this flag, which rejects certificates of private CAs that every other client accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if security.allow_insecure or not security.verify_hostname:
        context.check_hostname = False
    if security.allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    if security.certificate_file is not None:
        try:
            # With a password, even an empty one, OpenSSL does not prompt for it at the terminal.
            context.load_cert_chain(security.certificate_file, security.key_file, password="")
        except OSError as error:
            both = f"{_named(security, 'certificate_file')} with {_named(security, 'key_file')}"
            raise InvalidArgument(f"{both} {why_not(error)}") from None
    return context


def explain(error: BaseException) -> str:
    """Why a TLS connection failed, and the remedy, from an error or one of its causes."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _explain_certificate(cause)
        if isinstance(cause, ssl.SSLError):
            return _explain_handshake(cause)
        if isinstance(cause, ConnectionError) and not isinstance(cause, ConnectionRefusedError):
            return _CLOSED
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def fault_of(error: BaseException) -> Fault | None:
    """The kind of TLS failure of an error or one of its causes; None if it is none."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _OTHER_HOST:
                return Fault.OTHER_HOST
            return Fault.UNTRUSTED if cause.verify_code in _UNTRUSTED else Fault.OTHER
        if isinstance(cause, ssl.SSLError):
            reason = str(cause.reason or cause)
            if "EOF" in reason or any(word in reason for word in _NOT_TLS):
                return Fault.NOT_TLS
            is_wanted = any(word in reason for word in _CERTIFICATE_WANTED)
            return Fault.CERTIFICATE_WANTED if is_wanted else Fault.OTHER
    return None


def explain_loss(error: BaseException) -> str:
    """Why an open TLS connection ended. With TLS 1.3, a rejected client certificate is reported only then."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError) and any(word in str(cause.reason) for word in _CERTIFICATE_WANTED):
            return _explain_handshake(cause)
    return str(error) or type(error).__name__


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_HOST:
        return (
            f"the certificate is for another host ({reason}); use a name in the certificate, or verify_hostname=False"
        )
    if error.verify_code in _UNTRUSTED:
        return f"the certificate is not trusted ({reason}); set trust_certs_file to the certificate of its CA"
    return f"the certificate is not valid: {reason}"


def _explain_handshake(error: ssl.SSLError) -> str:
    reason = str(error.reason or error)
    if isinstance(error, ssl.SSLEOFError) or "EOF" in reason:
        return _CLOSED
    if any(word in reason for word in _NOT_TLS):
        return f"the peer does not use TLS; {_PLAIN_PORT}"
    words = reason.lower().replace("_", " ")
    if any(word in reason for word in _CERTIFICATE_WANTED):
        return f"the peer rejected the TLS handshake ({words}); {CERTIFICATE_HINT}"
    return f"TLS failed: {words}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _named(security: Security, name: str) -> str:
    return f"{name} {os.fspath(getattr(security, name))!r}"
