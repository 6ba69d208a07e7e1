"""TLS for the client's sockets: the context that `Security` asks for, and words for what goes wrong.

OpenSSL's errors name the symptom; here they get the cause and what to do. Opens no connection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from enum import Enum, auto
from functools import lru_cache

import msgspec

from magnetar.client.errors import InvalidArgument
from magnetar.security.credentials import Security

SHUTDOWN_TIMEOUT_S = 3.0
"""How long the other side has to say goodbye before the socket is closed all the same."""

_FILES = ("trust_certs_file", "certificate_file", "key_file")
_OTHER_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_UNTRUSTED = (2, 18, 19, 20, 21)  # no way from the certificate to an authority that is trusted
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
CERTIFICATE_HINT = "it may want a certificate of the client, given as certificate_file and key_file"
_PLAIN_PORT = "it may be a port without TLS: the one for TLS is mostly 6651, or 8443 for https://"


class Fault(Enum):
    """What is wrong with TLS."""

    UNTRUSTED = auto()
    OTHER_HOST = auto()
    NOT_TLS = auto()
    CERTIFICATE_WANTED = auto()  # of the client
    OTHER = auto()


def context_of(security: Security, *, for_http: bool = False) -> ssl.SSLContext:
    """Has the certificates as they are now; raises `InvalidArgument`.

    They are read again when a file was replaced, and only then: those of the system take a tenth of a second. HTTP has
    a context of its own, for its library writes into it which protocol is spoken.
    """
    settings = msgspec.structs.replace(security, token=None, token_file=None)
    return _read_context(settings, tuple(_stamp(settings, name) for name in _FILES), for_http)


def _stamp(security: Security, name: str) -> tuple[int, ...]:
    """Differs when a file is another one than before."""
    file = getattr(security, name)
    if file is None:
        return ()
    try:
        found = os.stat(file)
    except OSError as error:
        raise InvalidArgument(f"{_named(security, name)} {_why_not(error)}") from None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=16)
def _read_context(security: Security, stamps: tuple[tuple[int, ...], ...], for_http: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=security.trust_certs_file)
    except OSError as error:
        raise InvalidArgument(f"{_named(security, 'trust_certs_file')} {_why_not(error)}") from None
    # The newest Pythons refuse, by this flag, certificates of home-made authorities that every other client takes.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if security.allow_insecure or not security.verify_hostname:
        context.check_hostname = False
    if security.allow_insecure:
        context.verify_mode = ssl.CERT_NONE
    if security.certificate_file is not None:
        try:
            # With a password, though an empty one, nobody is asked for it at the terminal.
            context.load_cert_chain(security.certificate_file, security.key_file, password="")
        except OSError as error:
            both = f"{_named(security, 'certificate_file')} with {_named(security, 'key_file')}"
            raise InvalidArgument(f"{both} {_why_not(error)}") from None
    return context


def explain(error: BaseException) -> str:
    """Why a connection with TLS cannot be made, and what to do, of an error or one of those that caused it."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _explain_certificate(cause)
        if isinstance(cause, ssl.SSLError):
            return _explain_conversation(cause)
        if isinstance(cause, ConnectionError) and not isinstance(cause, ConnectionRefusedError):
            return f"the other side ended it before the TLS handshake was done; {_PLAIN_PORT}"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def fault_of(error: BaseException) -> Fault | None:
    """What is wrong with TLS, of an error or one of those that caused it; None if it is something else."""
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
    """Why a connection with TLS that was made has ended. A refused client learns of it only then, with TLS 1.3."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError) and any(word in str(cause.reason) for word in _CERTIFICATE_WANTED):
            return _explain_conversation(cause)
    return str(error) or type(error).__name__


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_HOST:
        return f"the certificate is for another host ({reason}); use a name that it has, or verify_hostname=False"
    if error.verify_code in _UNTRUSTED:
        return f"the certificate is not trusted ({reason}); give the one of its authority as trust_certs_file"
    return f"the certificate is not valid: {reason}"


def _explain_conversation(error: ssl.SSLError) -> str:
    reason = str(error.reason or error)
    if isinstance(error, ssl.SSLEOFError) or "EOF" in reason:
        return f"the other side ended it before the TLS handshake was done; {_PLAIN_PORT}"
    if any(word in reason for word in _NOT_TLS):
        return f"the other side does not speak TLS; {_PLAIN_PORT}"
    words = reason.lower().replace("_", " ")
    if any(word in reason for word in _CERTIFICATE_WANTED):
        return f"the other side refused TLS ({words}); {CERTIFICATE_HINT}"
    return f"TLS failed: {words}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _named(security: Security, name: str) -> str:
    return f"{name} {os.fspath(getattr(security, name))!r}"


def _why_not(error: OSError) -> str:
    """Why a file cannot be used; of what is inside, OpenSSL mostly says no more than where in its code it gave up."""
    if not isinstance(error, ssl.SSLError):
        return f"cannot be read: {error.strerror or error}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return "cannot be used: the key belongs to another certificate"
    return "cannot be used: not in PEM, damaged, or a key with a password"
