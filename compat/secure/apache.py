"""Apache Pulsar with TLS, token authentication and authorization: certificates, tokens and start.

Does not know the tests.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from magnetar.client import Client, Security
from magnetar.client.errors import ClientError

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from contestant import HOST, START_TIMEOUT_S, ApachePulsar, StartFailed
from java import Java
from process import running, tail

SUPER_USER = "admin"
REFRESH_S = 1  # interval of the broker's check for expired tokens
_AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProvider"

ISSUED: list[str] = []
"""Every token handed to a test: none may appear in any output."""


@dataclass(frozen=True)
class Secured:
    """A running broker, and the credentials for it."""

    folder: Path
    secret: bytes
    port: int
    tls_port: int
    http_port: int
    https_port: int

    @property
    def url(self) -> str:
        return f"pulsar+ssl://{HOST}:{self.tls_port}"

    @property
    def https_url(self) -> str:
        return f"https://{HOST}:{self.https_port}"

    @property
    def authority_file(self) -> Path:
        return self.folder / "authority.pem"

    def token(self, role: str = SUPER_USER, *, expires_in_s: float | None = None) -> str:
        claims: dict[str, object] = {"sub": role}
        if expires_in_s is not None:
            claims["exp"] = int(time.time() + expires_in_s)
        return signed(claims, self.secret)

    def security(self, **changes: object) -> Security:
        """Valid credentials, with changes."""
        settings = {"trust_certs_file": self.authority_file, "token": self.token(), **changes}
        return Security(**settings)  # type: ignore[arg-type]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Sends an admin request."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token()}"}
        url = f"{self.https_url}/admin/v2/{path}"
        trusted = ssl.create_default_context(cafile=self.authority_file)
        answer = httpx.request(method, url, json=body, headers=headers, verify=trusted, timeout=30, trust_env=False)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


def signed(claims: dict[str, object], secret: bytes) -> str:
    """A JSON web token signed with HS256."""
    parts = [_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, claims)]
    signature = hmac.new(secret, b".".join(parts), hashlib.sha256).digest()
    token = b".".join([*parts, _base64url(signature)]).decode()
    ISSUED.append(token)
    return token


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class SecureApachePulsar(ApachePulsar):
    """Has ports with and without TLS; all require a token or a client certificate."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[Secured]:
        self.folder.mkdir(parents=True, exist_ok=True)
        secret = hashlib.sha256(b"of this broker only").digest()
        ports = free_ports(5)
        secured = Secured(self.folder, secret, ports[0], ports[3], ports[1], ports[4])
        write_certificates(self.folder)
        command = self.command(ports)
        with (self.folder / "standalone.conf").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in _settings(secured).items())
        log = self.folder / "log"
        with running(command, log, self.folder) as process:
            deadline_s = time.monotonic() + START_TIMEOUT_S
            while not _serves(secured):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise StartFailed(f"{self.name} did not serve; its log ends with:\n{tail(log)}")
                time.sleep(0.2)
            yield secured


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def write_certificates(folder: Path) -> None:
    """Writes certificates of an authority, the broker and a client; keys in PKCS #8, the only format Pulsar reads."""
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    for name, identities, common_name in (("broker", [HOST], None), ("client", ["client"], SUPER_USER)):
        issued = authority.issue_cert(*identities, common_name=common_name, key_type=trustme.KeyType.RSA)
        (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        (folder / f"{name}-key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _settings(secured: Secured) -> dict[str, object]:
    plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    return {
        "brokerServicePortTls": secured.tls_port,
        "webServicePortTls": secured.https_port,
        "tlsCertificateFilePath": secured.folder / "broker.pem",
        "tlsKeyFilePath": secured.folder / "broker-key.pem",
        "tlsTrustCertsFilePath": secured.authority_file,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": SUPER_USER,
        "authenticationProviders": f"{_AUTHENTICATION}Token,{_AUTHENTICATION}Tls",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secured.secret).decode()}",
        "authenticationRefreshCheckSeconds": REFRESH_S,
        "brokerClientAuthenticationPlugin": plugin,
        "brokerClientAuthenticationParameters": f"token:{secured.token()}",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }


def _serves(secured: Secured) -> bool:
    try:
        with Client(secured.url, security=secured.security(), operation_timeout_s=5) as client:
            return bool(client.get_partitions_for_topic("is-it-there"))
    except ClientError:
        return False


def of(folder: Path, java: Java) -> SecureApachePulsar:
    return SecureApachePulsar(folder, java, journal_sync=False)
