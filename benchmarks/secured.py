"""Both brokers with TLS, tokens and authorization: the same certificate, key and settings for each.

Knows nothing about the measurements.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import jwt
import trustme
from contestant import ApachePulsar, Contestant, Login, Magnetar
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from perf import TOKEN_PLUGIN
from raw_connection import HOST

ROLE = "bench"
_SECRET = hashlib.sha256(b"of these two brokers only").digest()
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


def secured(contestant: Contestant) -> Contestant:
    """The same broker with security, in a folder next to the other's."""
    folder = contestant.folder.with_name(f"{contestant.folder.name}-secured")
    if isinstance(contestant, ApachePulsar):
        return SecuredApachePulsar(folder, contestant.java, journal_sync=contestant.journal_sync)
    return SecuredMagnetar(folder)


class SecuredMagnetar(Magnetar):
    def command(self, ports: Sequence[int]) -> list[str]:
        file = self.folder / "broker.conf"
        _append(file, _settings(self.folder, ports[3]))
        return [*super().command(ports), "--config", str(file)]

    def login(self, ports: Sequence[int]) -> Login:
        return _login(self.folder, ports)


class SecuredApachePulsar(ApachePulsar):
    def command(self, ports: Sequence[int]) -> list[str]:
        words = super().command(ports)
        own = {
            "brokerClientAuthenticationPlugin": TOKEN_PLUGIN,
            "brokerClientAuthenticationParameters": f"token:{_token()}",
        }
        _append(self.folder / "standalone.conf", {**_settings(self.folder, ports[3]), **own})
        return words

    def login(self, ports: Sequence[int]) -> Login:
        return _login(self.folder, ports)


def _settings(folder: Path, port_tls: int) -> dict[str, str]:
    _write_certificate(folder)
    return {
        "brokerServicePortTls": str(port_tls),
        "tlsCertificateFilePath": str(folder / "broker.pem"),
        "tlsKeyFilePath": str(folder / "broker-key.pem"),
        "authenticationEnabled": "true",
        "authenticationProviders": _PROVIDER,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(_SECRET).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": ROLE,
    }


def _write_certificate(folder: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    issued = authority.issue_cert(HOST, "localhost", key_type=trustme.KeyType.RSA)
    (folder / "broker.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    file = folder / "broker-key.pem"
    file.touch(0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))  # all that Pulsar reads


def _append(file: Path, settings: dict[str, str]) -> None:
    file.touch(0o600)
    with file.open("a") as lines:
        lines.writelines(f"{key}={value}\n" for key, value in settings.items())


def _token() -> str:
    return jwt.encode({"sub": ROLE}, _SECRET, "HS256")


def _login(folder: Path, ports: Sequence[int]) -> Login:
    return Login(_token(), folder / "authority.pem", ports[3])
