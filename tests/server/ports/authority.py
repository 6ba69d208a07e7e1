"""An authority for tests of ports with TLS: its files, as the settings of a broker and the options of clients."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme

import magnetar.testing
from magnetar.client import Security
from magnetar.testing import TestBroker

HOST = "127.0.0.1"


class Authority:
    """Issues the broker's certificate and those of clients, in a folder of its own."""

    def __init__(self, folder: Path, name: str = "one") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._ca = trustme.CA()
        self.file = self.folder / "authority.pem"
        self._ca.cert_pem.write_to_path(str(self.file))
        self.certificate, self.key = self.issue("broker", HOST)

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate with this common name, and its key."""
        issued = self._ca.issue_cert(*(hosts or (name,)), common_name=name)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key

    @property
    def settings(self) -> dict[str, Any]:
        """Of a broker with both TLS ports."""
        return {
            "brokerServicePortTls": 0,
            "webServicePortTls": 0,
            "tlsCertificateFilePath": str(self.certificate),
            "tlsKeyFilePath": str(self.key),
        }

    @contextlib.contextmanager
    def broker(self, **settings: Any) -> Iterator[TestBroker]:
        with magnetar.testing.broker(**{**self.settings, **settings}) as running:
            yield running

    def security(self, client: str = "") -> Security:
        """Of our own client; `client` is the common name of its certificate."""
        if not client:
            return Security(trust_certs_file=self.file)
        certificate, key = self.issue(client)
        return Security(trust_certs_file=self.file, certificate_file=certificate, key_file=key)

    def context(self, client: str = "") -> ssl.SSLContext:
        """Of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.file))
        if client:
            context.load_cert_chain(*map(str, self.issue(client)))
        return context


def urls(broker: TestBroker) -> tuple[str, str]:
    """The addresses with TLS."""
    own = broker.server.addresses.direct(HOST)
    return own.service_url_tls, own.http_url_tls
