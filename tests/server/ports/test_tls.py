"""Ports with TLS: clients of all kinds, certificates of clients, handshakes that fail, and files that change."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import magnetar.client
from magnetar.client.connection.address import Address
from magnetar.client.connection.connection import open_connection
from magnetar.client.connection.http import HttpTransport
from magnetar.client.errors import ClientError
from magnetar.errors import InvalidSetting
from magnetar.server.admission import acceptor
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame
from tests.server.ports.authority import HOST, Authority, urls

Command = pb.BaseCommand
CONNECT = Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21))
LOOKUP = Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def connected(url: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(address_of(url), timeout=60)
    return context.wrap_socket(plain, server_hostname=HOST)


def reply(channel: socket.socket, command: Command) -> Command:
    channel.sendall(encode_frame(command))
    decoder = FrameDecoder(1 << 20)
    while True:
        data = channel.recv(1 << 16)
        assert data, "closed by the broker"
        for frame, _ in decoder.receive_data(data):
            return frame


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in (record.getMessage() for record in caplog.records) if "(TLS) refused" in text]


# -- clients


def test_our_client_publishes_and_reads_by_tls(authority: Authority) -> None:
    with authority.broker() as broker:
        for url in urls(broker):
            with magnetar.client.Client(url, security=authority.security()) as client:
                consumer = client.consumer("t", url[:5])
                client.producer("t").send(b"y" * 300_000)
                assert consumer.receive(60).value == b"y" * 300_000


def test_the_admin_is_served_by_https(authority: Authority) -> None:
    with authority.broker() as broker, httpx.Client(verify=authority.context(), base_url=urls(broker)[1]) as web:
        assert web.get("/admin/v2/clusters").json() == ["standalone"]
        for number in range(3):  # one connection for all
            assert web.put(f"/admin/v2/persistent/public/default/t{number}").status_code == 204
        assert len(web.get("/admin/v2/persistent/public/default").json()) == 3
        port = urlsplit(urls(broker)[1]).port
        assert web.get("/admin/v2/brokers").json() == [f"{HOST}:{port}"]
        assert web.get("/admin/v2/brokers/leaderBroker").json()["serviceUrl"] == urls(broker)[1]


def test_lookups_return_the_addresses_with_and_without_tls(authority: Authority) -> None:
    with authority.broker() as broker:
        service_url_tls, http_url_tls = urls(broker)
        with connected(service_url_tls, authority.context()) as channel:
            assert reply(channel, CONNECT).type == Command.CONNECTED
            found = reply(channel, LOOKUP).lookupTopicResponse
        assert (found.brokerServiceUrl, found.brokerServiceUrlTls) == (broker.service_url, service_url_tls)
        path = "/lookup/v2/topic/persistent/public/default/t"
        wanted = {
            "brokerUrl": broker.service_url,
            "nativeUrl": broker.service_url,
            "brokerUrlTls": service_url_tls,
            "brokerUrlSsl": service_url_tls,
            "httpUrl": broker.http_url,
            "httpUrlTls": http_url_tls,
        }
        assert httpx.get(http_url_tls + path, verify=authority.context()).json() == wanted
        assert httpx.get(broker.http_url + path).json() == wanted
        own = httpx.get(f"{broker.http_url}/admin/v2/clusters/standalone").json()
        assert (own["serviceUrlTls"], own["brokerServiceUrlTls"]) == (http_url_tls, service_url_tls)


def test_a_listener_with_a_tls_address_has_no_other(authority: Authority) -> None:
    listeners = "out:pulsar+ssl://example.com:7651,out:https://example.com:7443"
    with authority.broker(advertisedListeners=listeners, internalListenerName="ports") as broker:
        lookup = Command(
            type=Command.LOOKUP,
            lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1, advertised_listener_name="out"),
        )
        with connected(urls(broker)[0], authority.context()) as channel:
            reply(channel, CONNECT)
            found = reply(channel, lookup).lookupTopicResponse
        assert not found.HasField("brokerServiceUrl")
        assert found.brokerServiceUrlTls == "pulsar+ssl://example.com:7651"
        path = f"{broker.http_url}/lookup/v2/topic/persistent/public/default/t?listenerName=out"
        named = httpx.get(path).json()
        assert (named["brokerUrl"], named["brokerUrlTls"]) == ("", "pulsar+ssl://example.com:7651")
        assert (named["httpUrl"], named["httpUrlTls"]) == ("", "https://example.com:7443")


def test_plain_ports_can_be_off(authority: Authority) -> None:
    with authority.broker(brokerServicePort=None, webServicePort=None) as broker:
        assert (broker.service_url, broker.http_url) == urls(broker)
        assert (broker.server.port, broker.server.http_port) == (0, 0)
        for url in urls(broker):
            with magnetar.client.Client(url, security=authority.security()) as client:
                client.producer("t").send(b"x")
        found = httpx.get(
            f"{broker.http_url}/lookup/v2/topic/persistent/public/default/t", verify=authority.context()
        ).json()
        assert (found["brokerUrl"], found["brokerUrlTls"], found["httpUrl"]) == ("", broker.service_url, "")
        own = httpx.get(f"{broker.http_url}/admin/v2/clusters/standalone", verify=authority.context()).json()
        assert "serviceUrl" not in own and own["serviceUrlTls"] == broker.http_url


# -- certificates of clients


ASKED = {"authenticationEnabled": True, "authenticationProviders": "tls", "anonymousUserRole": "guest"}


class Names:
    """The common names that the broker's sessions and requests have shown to its authentication, see `ASKED`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker: TestBroker) -> None:
        self.seen: list[str] = []
        self._is_inside = False  # a request becomes a connect
        authentication = broker.server.broker.authentication
        for way, place in (("connect", 2), ("request", 1)):
            monkeypatch.setattr(authentication, way, self._spy(getattr(authentication, way), place))

    def _spy(self, original: Callable[..., object], place: int) -> Callable[..., object]:
        def call(*arguments: object, **others: object) -> object:
            if not self._is_inside:
                self.seen.append(str(arguments[place]))
            self._is_inside = True
            try:
                return original(*arguments, **others)
            finally:
                self._is_inside = False

        return call


def test_the_name_of_a_verified_certificate_reaches_sessions_and_requests(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with authority.broker(tlsTrustCertsFilePath=str(authority.file), **ASKED) as broker:
        names = Names(monkeypatch, broker)
        for client in ("admin", ""):
            with connected(urls(broker)[0], authority.context(client)) as channel:
                assert reply(channel, CONNECT).type == Command.CONNECTED
            assert httpx.get(f"{urls(broker)[1]}/admin/v2/clusters", verify=authority.context(client)).is_success
        assert names.seen == ["admin", "admin", "", ""]
        stranger = Authority(tmp_path, "two").issue("admin")
        context = authority.context()
        context.load_cert_chain(*map(str, stranger))
        assert is_refused(urls(broker)[0], context)
        assert len(names.seen) == 4


def is_refused(url: str, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client learns of it only when it reads."""
    try:
        with connected(url, context) as channel:
            channel.sendall(encode_frame(CONNECT))
            return channel.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_a_certificate_can_be_required(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"tlsTrustCertsFilePath": str(authority.file), "tlsRequireTrustedClientCertOnConnect": True}
    with caplog.at_level(logging.WARNING), authority.broker(**settings) as broker:
        for url in urls(broker):
            assert is_refused(url, authority.context())
        with magnetar.client.Client(urls(broker)[0], security=authority.security("admin")) as client:
            client.producer("t").send(b"x")
        assert httpx.get(f"{urls(broker)[1]}/admin/v2/clusters", verify=authority.context("admin")).is_success
        until(lambda: len(refusals(caplog)) == 2)
    assert all("tlsRequireTrustedClientCertOnConnect demands" in line for line in refusals(caplog))


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_the_certificate_that_is_required_gets_a_hint(authority: Authority, protocol: str) -> None:
    settings = {"tlsTrustCertsFilePath": str(authority.file), "tlsRequireTrustedClientCertOnConnect": True}
    versions = {"tlsProtocols": frozenset({protocol}), "webServiceTlsProtocols": frozenset({protocol})}
    with authority.broker(**settings, **versions) as broker:
        service_url, http_url = urls(broker)
        host, port = address_of(service_url)
        connecting = open_connection(
            Address(host, port),
            proxy_to_broker=None,
            timeout_s=60,
            keepalive_s=60,
            security=authority.security(),
            is_tls=True,
        )
        with pytest.raises(ClientError, match="it may require a client certificate"):
            asyncio.run(connecting)
        with (
            HttpTransport([http_url], authority.security(), 60) as http,
            pytest.raises(ClientError, match="it may require a client certificate"),
        ):
            http.request("GET", "/admin/v2/clusters", "clusters")


def test_an_insecure_connection_never_has_a_name(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the only login, certificates that are not verified are refused at the start."""
    secret = "data:;base64," + base64.b64encode(bytes(32)).decode()
    settings = {**ASKED, "authenticationProviders": "tls,token", "tokenSecretKey": secret}
    settings |= {"tlsTrustCertsFilePath": str(authority.file), "tlsAllowInsecureConnection": True}
    with authority.broker(**settings) as broker:
        names = Names(monkeypatch, broker)
        trusted, untrusted = authority.context("admin"), authority.context()
        untrusted.load_cert_chain(*map(str, Authority(tmp_path, "two").issue("admin")))
        for context in (trusted, untrusted):
            with connected(urls(broker)[0], context) as channel:
                assert reply(channel, CONNECT).type == Command.CONNECTED
            assert httpx.get(f"{urls(broker)[1]}/admin/v2/clusters", verify=context).is_success
        assert names.seen == [""] * 4


# -- handshakes that fail


def test_a_client_without_tls_is_refused_in_the_log(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), authority.broker() as broker:
        for url, first in zip(urls(broker), (encode_frame(CONNECT), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), strict=True):
            with socket.create_connection(address_of(url), timeout=60) as channel:
                channel.sendall(first)
                while True:
                    try:
                        if not channel.recv(1 << 16):
                            break
                    except ConnectionError:
                        break
        until(lambda: len(refusals(caplog)) == 2)
        assert not broker.server.connections
    assert all(line.endswith("it does not use TLS, which this port requires") for line in refusals(caplog))


def test_a_handshake_that_never_ends_takes_room_only_for_its_time(
    authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "_HANDSHAKE_S", 0.5)
    with caplog.at_level(logging.WARNING), authority.broker(brokerMaxConnections=2) as broker:
        silent = [socket.create_connection(address_of(urls(broker)[0]), timeout=60) for _ in range(2)]
        until(lambda: "not complete" in "".join(refusals(caplog)))
        for channel in silent:
            with channel, contextlib.suppress(ConnectionError):
                assert channel.recv(1) == b""
        monkeypatch.setattr(acceptor, "_HANDSHAKE_S", 60)
        with connected(urls(broker)[0], authority.context()) as channel:
            assert reply(channel, CONNECT).type == Command.CONNECTED


def test_connections_with_tls_count_with_the_others(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), authority.broker(brokerMaxConnections=2) as broker:
        silent = socket.create_connection(address_of(urls(broker)[0]), timeout=60)
        with silent, socket.create_connection(address_of(broker.service_url), timeout=60) as plain:
            assert reply(plain, CONNECT).type == Command.CONNECTED
            assert is_refused(urls(broker)[0], authority.context())
        assert any("Reached the maximum number of connections: 2" in line for line in refusals(caplog))
    with caplog.at_level(logging.WARNING), authority.broker(maxHttpServerConnections=2) as broker:
        silent = socket.create_connection(address_of(urls(broker)[1]), timeout=60)
        with silent, httpx.Client(base_url=broker.http_url) as web:
            assert web.get("/admin/v2/clusters").is_success
            assert is_refused(urls(broker)[1], authority.context())
            assert httpx.get(f"{broker.http_url}/admin/v2/clusters").status_code == 503
        assert any("Reached the maximum number of HTTP connections: 2" in line for line in refusals(caplog))


@pytest.mark.parametrize(("kind", "number"), [("tls", 0), ("webServiceTls", 1)])
def test_protocols_and_ciphers_are_those_of_the_settings(authority: Authority, kind: str, number: int) -> None:
    def talk(url: str, **limits: object) -> tuple[str, str]:
        context = authority.context()
        for name, value in limits.items():
            setattr(context, name, value)
        with connected(url, context) as channel:
            cipher = channel.cipher()
            return channel.version() or "", cipher[0] if cipher else ""

    old, new = {"maximum_version": ssl.TLSVersion.TLSv1_2}, {"minimum_version": ssl.TLSVersion.TLSv1_3}
    with authority.broker() as broker:
        url = urls(broker)[number]
        assert talk(url)[0] == "TLSv1.3" and talk(url, **old)[0] == "TLSv1.2"
    with authority.broker(**{f"{kind}Protocols": frozenset({"TLSv1.3"})}) as broker:
        assert talk(urls(broker)[number], **new)[0] == "TLSv1.3"
        assert talk(urls(broker)[1 - number], **old)[0] == "TLSv1.2", "the other port has its own"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            talk(urls(broker)[number], **old)
    java = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    with authority.broker(**{f"{kind}Ciphers": f"ECDHE-RSA-CHACHA20-POLY1305, {java}"}) as broker:
        assert talk(urls(broker)[number])[0] == "TLSv1.2", "there is none of TLS 1.3 in the list"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            talk(urls(broker)[number], **new)


# -- files that change


def is_broker_of(authority: Authority, url: str) -> bool:
    try:
        connected(url, authority.context()).close()
    except ssl.SSLError:
        return False
    return True


@pytest.fixture
def two(tmp_path: Path) -> tuple[Authority, Authority]:
    return Authority(tmp_path, "one"), Authority(tmp_path, "two")


@pytest.fixture
def files(tmp_path: Path, two: tuple[Authority, Authority]) -> dict[str, str]:
    shutil.copy(two[0].certificate, tmp_path / "c.pem")
    shutil.copy(two[0].key, tmp_path / "k.pem")
    return {"tlsCertificateFilePath": str(tmp_path / "c.pem"), "tlsKeyFilePath": str(tmp_path / "k.pem")}


def test_new_connections_use_certificates_that_were_replaced(
    tmp_path: Path, two: tuple[Authority, Authority], files: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = two
    with caplog.at_level(logging.INFO), one.broker(tlsCertRefreshCheckDurationSec=0, **files) as broker:
        open_before = connected(urls(broker)[0], one.context())
        with open_before:
            assert reply(open_before, CONNECT).type == Command.CONNECTED
            shutil.copy(other.certificate, tmp_path / "c.pem")  # the key is not replaced yet
            for _ in range(2):
                assert all(is_broker_of(one, url) and not is_broker_of(other, url) for url in urls(broker))
            shutil.copy(other.key, tmp_path / "k.pem")
            assert all(is_broker_of(other, url) and not is_broker_of(one, url) for url in urls(broker))
            assert reply(open_before, LOOKUP).type == Command.LOOKUP_RESPONSE
    lines = [record.getMessage() for record in caplog.records if "certificates" in record.getMessage()]
    assert len(lines) == 2, lines
    assert "the old ones stay in force" in lines[0] and "the key does not match the certificate" in lines[0]
    assert lines[1].startswith("certificates were read again")


def test_certificates_are_checked_at_an_interval(
    tmp_path: Path, two: tuple[Authority, Authority], files: dict[str, str]
) -> None:
    one, other = two
    with one.broker(tlsCertRefreshCheckDurationSec=1, **files) as broker:
        (tmp_path / "c.pem").unlink()
        assert is_broker_of(one, urls(broker)[0])
        shutil.copy(other.certificate, tmp_path / "c.pem")
        shutil.copy(other.key, tmp_path / "k.pem")
        until(lambda: is_broker_of(other, urls(broker)[0]))


# -- the start


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tlsCertificateFilePath": ""}, "brokerServicePortTls requires tlsCertificateFilePath"),
        ({"tlsKeyFilePath": ""}, "brokerServicePortTls requires tlsKeyFilePath"),
        ({"tlsKeyFilePath": "", "brokerServicePortTls": None}, "webServicePortTls requires tlsKeyFilePath"),
        ({"tlsKeyFilePath": "no/such"}, "tlsKeyFilePath=no/such cannot be read: No such file or directory"),
        ({"tlsKeyFilePath": "{other}"}, "cannot be used: the key does not match the certificate"),
        ({"tlsCertificateFilePath": "{key}"}, "cannot be used: not PEM, corrupt, or a key with a password"),
        ({"tlsTrustCertsFilePath": "no/such"}, "tlsTrustCertsFilePath=no/such cannot be read: No such file"),
        ({"tlsTrustCertsFilePath": "{key}"}, "cannot be used: not PEM"),
        ({"tlsRequireTrustedClientCertOnConnect": True}, "requires tlsTrustCertsFilePath"),
        (
            {
                "tlsRequireTrustedClientCertOnConnect": True,
                "tlsAllowInsecureConnection": True,
                "tlsTrustCertsFilePath": "{authority}",
            },
            "contradict each other",
        ),
        ({"tlsProtocols": frozenset({"TLSv1.1"})}, "one or more, separated by commas, of TLSv1.3, TLSv1.2"),
        ({"tlsCiphers": "TLS_NO_SUCH"}, "tlsCiphers: 'TLS_NO_SUCH' is not a cipher"),
        ({"tlsCiphers": "NULL-SHA256"}, "tlsCiphers: 'NULL-SHA256' is not a cipher"),
        ({"webServiceTlsCiphers": "ALL"}, "webServiceTlsCiphers: 'ALL' is not a cipher"),
        ({"tlsCiphers": "TLS_AES_128_GCM_SHA256"}, "ciphers of TLSv1.3 are all chosen or none, not only TLS_AES_128"),
        (
            {"tlsCiphers": "ECDHE-RSA-AES128-GCM-SHA256", "tlsProtocols": frozenset({"TLSv1.3"})},
            "tlsCiphers has no cipher for the protocols of tlsProtocols",
        ),
        ({"brokerServicePort": None, "brokerServicePortTls": None}, "brokerServicePort and brokerServicePortTls are"),
        ({"webServicePort": None, "webServicePortTls": None}, "webServicePort and webServicePortTls are both empty"),
    ],
)
def test_what_cannot_be_obeyed_ends_the_start(authority: Authority, changed: dict[str, object], reason: str) -> None:
    other = authority.issue("other")[1]
    names = {"key": authority.key, "other": other, "authority": authority.file}
    given = {key: value.format(**names) if isinstance(value, str) else value for key, value in changed.items()}
    with pytest.raises(InvalidSetting) as error, authority.broker(**given):
        pass
    assert reason in str(error.value)


def test_keys_may_be_of_pkcs1_and_pkcs8(authority: Authority) -> None:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(authority.key.read_bytes(), None)
    for form, title in ((PrivateFormat.TraditionalOpenSSL, b"EC PRIVATE"), (PrivateFormat.PKCS8, b"PRIVATE")):
        authority.key.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
        assert b"BEGIN " + title + b" KEY" in authority.key.read_bytes()
        with authority.broker() as broker:
            assert is_broker_of(authority, urls(broker)[0])
