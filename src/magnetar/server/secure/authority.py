"""A certificate authority of one's own, and the certificates that it signs for a broker.

Makes and reads PEM; opens no file and does not read the time. Keys are of the curve P-256, which every client of Pulsar
has.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825
"""The longest that some clients accept."""

_CLOCKS_DIFFER = datetime.timedelta(days=1)


class Issued(NamedTuple):
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Issued(…)"


def new_authority(now_ms: int) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial number tells authorities apart in the lists of a client; names alone would be the same.
    name = _name(f"Magnetar authority {x509.random_serial_number():040x}"[:35])
    usage = _usage(signs_certificates=True)
    built = (
        _builder(name, name, key.public_key(), now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Issued(_pem(built), _key_pem(key))


def issue(authority: Issued, hosts: Iterable[str], now_ms: int, key: bytes = b"") -> Issued:
    """A certificate for a server with these names and addresses, with a key in PEM or a new one.

    Raises ValueError and TypeError for what is not in PEM.
    """
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key, own_key = _private_key(authority.key), _private_key(key) if key else None
    own_key = own_key or ec.generate_private_key(ec.SECP256R1())
    identifier = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    built = (
        _builder(_name("broker"), signer.subject, own_key.public_key(), now_ms, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    return Issued(_pem(built), _key_pem(own_key))


class Certificate:
    """What a certificate says. Raises ValueError for what is none in PEM."""

    def __init__(self, pem: bytes) -> None:
        self._found = x509.load_pem_x509_certificate(pem)

    @property
    def hosts(self) -> frozenset[str]:
        try:
            names = self._found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()
        return frozenset(str(name.value) for name in names)

    @property
    def not_after_ms(self) -> int:
        return round(self._found.not_valid_after_utc.timestamp() * 1000)

    def is_signed_by(self, authority: bytes) -> bool:
        try:
            self._found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        except Exception:  # ValueError, TypeError and InvalidSignature: by another one in any case
            return False
        return True

    def has_key(self, pem: bytes) -> bool:
        """Whether the key is that of the certificate. Raises ValueError and TypeError for what is no key."""
        return _private_key(pem).public_key() == self._found.public_key()


def can_name(host: str) -> bool:
    """Whether a certificate can have the name: others, as long ones, are left out."""
    try:
        _general_name(host)
    except ValueError:
        return False
    return bool(host) and len(host) <= 253


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(now_ms // 1000, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of an elliptic curve")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
