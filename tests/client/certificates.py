"""Certificates for tests, issued by a temporary authority."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

import trustme

from magnetar.client import Security

HOST = "127.0.0.1"


class Certificates:
    """An authority, and its certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.file = folder / "authority.pem"
        self.authority.cert_pem.write_to_path(str(self.file))

    def server(self, *hosts: str, not_after: datetime | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(*(hosts or (HOST,)), not_after=not_after).configure_cert(context)
        return context

    def demanding_server(self) -> ssl.SSLContext:
        """Requires a client certificate."""
        context = self.server()
        context.verify_mode = ssl.CERT_REQUIRED
        self.authority.configure_trust(context)
        return context

    def security(self, **settings: object) -> Security:
        return Security(trust_certs_file=self.file, **settings)  # type: ignore[arg-type]

    def client_security(self) -> Security:
        issued = self.authority.issue_cert("client", common_name="admin")
        certificate, key = self.folder / "client.pem", self.folder / "client-key.pem"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return self.security(certificate_file=certificate, key_file=key)
