"""The secured broker that the official clients' own suites expect, and the keys for it.

Ports with TLS beside those without; certificates, tokens and passwords prove a role; clients without any have the role
`anonymous`, which administers the tenant `public`. Does not know the suites.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import jwt
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

ANONYMOUS = "anonymous"
SUPER_USER = "admin"
_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


@dataclass(frozen=True)
class Keys:
    """`certificates` is a folder with broker-cert.pem, broker-key.pem and cacert.pem, as both suites have it."""

    certificates: Path
    secret: bytes
    passwords: Path

    def token(self, role: str) -> str:
        return jwt.encode({"sub": role}, self.secret, "HS256")


def new_keys(folder: Path) -> Keys:
    """Keys of a broker on localhost, and those of a client: client-cert.pem with the role of the super user."""
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(folder / "cacert.pem"))
    for name, common_name in (("broker", "localhost"), ("client", SUPER_USER)):
        issued = authority.issue_cert("localhost", common_name=common_name, key_type=trustme.KeyType.RSA)
        (folder / f"{name}-cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        text = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )  # the only format Java's client reads
        (folder / f"{name}-key.pem").write_bytes(text)
    passwords = folder / ".htpasswd"
    passwords.write_text(f"{SUPER_USER}:{{SHA}}fEqNCco3Yq9h5ZUglD3CZJT4lBs=\n")  # 123456
    return Keys(folder, hashlib.sha256(b"of this broker only").digest(), passwords)


def write_configuration(folder: Path, keys: Keys, port_tls: int, http_port_tls: int) -> Path:
    """A broker.conf in `folder`, with copies of the keys: the broker refuses keys that every user can read."""
    copies = {
        "tlsCertificateFilePath": (keys.certificates / "broker-cert.pem").read_bytes(),
        "tlsKeyFilePath": (keys.certificates / "broker-key.pem").read_bytes(),
        "tlsTrustCertsFilePath": (keys.certificates / "cacert.pem").read_bytes(),
        "tokenSecretKey": keys.secret,
        "basicAuthConf": keys.passwords.read_bytes(),
    }
    settings = {
        "advertisedAddress": "localhost",
        "brokerServicePortTls": str(port_tls),
        "webServicePortTls": str(http_port_tls),
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(f"{_PROVIDERS}{name}" for name in ("Tls", "Token", "Basic")),
        "anonymousUserRole": ANONYMOUS,
        "authorizationEnabled": "true",
        "superUserRoles": f"localhost,superUser,{SUPER_USER}",
    }
    for key, data in copies.items():
        _write(folder / key, data)
        settings[key] = f"file://{folder / key}" if key == "tokenSecretKey" else str(folder / key)
    file = folder / "broker.conf"
    _write(file, "".join(f"{key}={value}\n" for key, value in settings.items()).encode())
    return file


def _write(file: Path, data: bytes) -> None:
    file.touch(0o600)
    file.write_bytes(data)
