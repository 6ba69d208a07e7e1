"""Certificates that are made for a secured broker: what is in them, and that clients accept them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from magnetar.clock import SystemClock
from magnetar.server.secure.authority import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    Certificate,
    Issued,
    can_name,
    issue,
    new_authority,
)

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
HOSTS = ("localhost", "127.0.0.1", "::1", "broker.example.com", "*.example.org")

AUTHORITY = new_authority(NOW_MS)
ISSUED = issue(AUTHORITY, HOSTS, NOW_MS)


def handshake(server: Issued, trust: bytes, host: str, tmp_path: Path) -> None:
    """Between two ends in memory, as a strict client makes it; raises what the client does."""
    file = tmp_path / "pair.pem"
    file.write_bytes(server.key + server.certificate)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(str(file))
    context = ssl.create_default_context(cadata=trust.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = context.wrap_bio(to_client, to_server, server_hostname=host)
    other = served.wrap_bio(to_server, to_client, server_side=True)
    ends = [one, other]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not ends:
            return
    raise AssertionError("the handshake did not end")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "broker.example.com", "any.example.org"])
def test_strict_clients_accept_every_name(host: str, tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()  # the time that OpenSSL has
    authority = new_authority(now_ms)
    handshake(issue(authority, HOSTS, now_ms), authority.certificate, host, tmp_path)


def test_no_client_accepts_another_name_or_authority(tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    authority, other = new_authority(now_ms), new_authority(now_ms)
    server = issue(authority, HOSTS, now_ms)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, authority.certificate, "example.net", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed"):
        handshake(server, other.certificate, "localhost", tmp_path)


def test_an_expired_one_is_refused(tmp_path: Path) -> None:
    authority = new_authority(0)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(issue(authority, HOSTS, 0), authority.certificate, "localhost", tmp_path)


def test_what_a_certificate_says() -> None:
    found = Certificate(ISSUED.certificate)
    assert found.hosts == frozenset(HOSTS)
    assert found.not_after_ms == NOW_MS + CERTIFICATE_DAYS * DAY_MS
    assert found.is_signed_by(AUTHORITY.certificate)
    assert not found.is_signed_by(new_authority(NOW_MS).certificate)
    assert found.has_key(ISSUED.key)
    assert not found.has_key(AUTHORITY.key)
    assert Certificate(AUTHORITY.certificate).not_after_ms == NOW_MS + AUTHORITY_DAYS * DAY_MS
    assert Certificate(AUTHORITY.certificate).hosts == frozenset()


def test_a_certificate_made_again_keeps_its_key() -> None:
    again = issue(AUTHORITY, ["localhost"], NOW_MS + DAY_MS, ISSUED.key)
    assert again.key == ISSUED.key
    assert again.certificate != ISSUED.certificate
    assert Certificate(again.certificate).has_key(ISSUED.key)


def test_what_is_no_certificate_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        Certificate(b"no")
    with pytest.raises(ValueError):
        issue(Issued(AUTHORITY.certificate, b"no"), ["a"], NOW_MS)


@pytest.mark.parametrize("host", ["", "ü.example", "x" * 254])
def test_names_that_no_certificate_has(host: str) -> None:
    assert not can_name(host)
    assert can_name("a.example") and can_name("::1")


def test_a_key_is_never_shown() -> None:
    assert ISSUED.key.decode() not in repr(ISSUED)
