"""Settings of the ports with TLS, their certificates and those of clients.

They are a part of `Settings`, which inherits them. What is made of them is `security.server_tls`.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from magnetar.settings.authorization import AuthorizationSettings
from magnetar.settings.kinds import Choices, Flag, Port, Text, Whole

TlsProtocol = Literal["TLSv1.3", "TLSv1.2"]

_PATH = r"[^\r\n\0]*"
_CIPHERS = r"[-\w]*([,\s]+[-\w]+)*"


class TlsSettings(AuthorizationSettings, frozen=True, kw_only=True):
    """Listed after those of authorization on the reference page."""

    brokerServicePortTls: Annotated[
        int | None, Port("Port of the binary protocol with TLS, usually 6651; 0 picks a free port, empty has none.")
    ] = None
    webServicePortTls: Annotated[
        int | None, Port("Port of HTTPS, usually 8443; 0 picks a free port, empty has none.")
    ] = None
    tlsCertificateFilePath: Annotated[
        str,
        Text(
            _PATH,
            "the path of a file",
            "PEM file of the broker's certificate and those between it and its authority; read again when it changes.",
        ),
    ] = ""
    tlsKeyFilePath: Annotated[
        str,
        Text(_PATH, "the path of a file", "PEM file of the key of that certificate, PKCS#1 or PKCS#8, no password."),
    ] = ""
    tlsTrustCertsFilePath: Annotated[
        str,
        Text(
            _PATH,
            "the path of a file",
            "PEM file of the authorities that sign certificates of clients; empty asks clients for none.",
        ),
    ] = ""
    tlsRequireTrustedClientCertOnConnect: Annotated[
        bool,
        Flag("Refuse clients without a certificate of `tlsTrustCertsFilePath`; false refuses only those with another."),
    ] = False
    tlsAllowInsecureConnection: Annotated[
        bool,
        Flag("Ask clients for no certificate, so none is refused, and none proves a role; unlike in Apache Pulsar."),
    ] = False
    tlsProtocols: Annotated[
        frozenset[str], Choices(TlsProtocol, "Versions of TLS that `brokerServicePortTls` accepts.")
    ] = frozenset(get_args(TlsProtocol))
    tlsCiphers: Annotated[
        str,
        Text(
            _CIPHERS,
            "names of OpenSSL or Java, separated by commas",
            "Ciphers of `brokerServicePortTls`; empty is a safe choice. Those of TLSv1.3 are all named or none.",
        ),
    ] = ""
    webServiceTlsProtocols: Annotated[
        frozenset[str], Choices(TlsProtocol, "Versions of TLS that `webServicePortTls` accepts.")
    ] = frozenset(get_args(TlsProtocol))
    webServiceTlsCiphers: Annotated[
        str,
        Text(_CIPHERS, "names of OpenSSL or Java, separated by commas", "Ciphers of `webServicePortTls`, likewise."),
    ] = ""
    tlsCertRefreshCheckDurationSec: Annotated[
        int,
        Whole(
            0, 86_400, "Interval at which files of certificates are checked for changes; 0 checks at each connection."
        ),
    ] = 300
