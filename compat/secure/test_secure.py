"""Our client against Apache Pulsar with TLS and authentication: accepted and rejected credentials, and errors."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pytest
from apache import HOST, REFRESH_S, Secured, signed

from magnetar.client import EARLIEST, Client, Security
from magnetar.client.errors import ClientError, ConnectionLost, NotAuthenticated, NotAuthorized

_topics = count()
_SCHEMES = ("pulsar+ssl", "https")


@pytest.fixture
def topic() -> str:
    return f"secure-{next(_topics)}"


def url_of(secured: Secured, scheme: str) -> str:
    return secured.url if scheme == "pulsar+ssl" else secured.https_url


def produce_and_read(client: Client, topic: str, messages: int = 100) -> None:
    with client.producer(topic) as producer:
        for number in range(messages):
            producer.send_async(b"%d" % number)
    with client.reader(topic, EARLIEST) as reader:
        assert [reader.read(30).value for _ in range(messages)] == [b"%d" % number for number in range(messages)]


def rejection(url: str, security: Security, error: type[ClientError]) -> str:
    """Connects, expects a quick rejection and returns the error."""
    began = time.monotonic()
    with Client(url, security=security) as client, pytest.raises(error) as raised:
        client.producer("secure")
    assert time.monotonic() - began < 8
    for part in (security.token or "-" * 9).split("."):
        assert len(part) < 9 or part not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_tls_and_a_token(secured: Secured, topic: str, scheme: str) -> None:
    with Client(url_of(secured, scheme), security=secured.security()) as client:
        produce_and_read(client, topic)


def test_a_token_without_tls(secured: Secured, topic: str) -> None:
    for url in (f"pulsar://{HOST}:{secured.port}", f"http://{HOST}:{secured.http_port}"):
        with Client(url, security=Security(token=secured.token())) as client:
            produce_and_read(client, f"{topic}-{url[:4]}")


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_a_client_certificate(secured: Secured, topic: str, scheme: str) -> None:
    security = Security.from_pulsar(
        {
            "authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationTls",
            "authParams": f"tlsCertFile:{secured.folder}/client.pem,tlsKeyFile:{secured.folder}/client-key.pem",
            "tlsTrustCertsFilePath": str(secured.authority_file),
        }
    )
    with Client(url_of(secured, scheme), security=security) as client:
        produce_and_read(client, topic)


def test_large_messages(secured: Secured, topic: str) -> None:
    """TLS records and frames have different boundaries."""
    values = [bytes([number]) * (4 << 20) for number in range(10)]
    with Client(secured.url, security=secured.security()) as client:
        with client.producer(topic, batching=False) as producer:
            for value in values:
                producer.send_async(value)
        with client.reader(topic, EARLIEST) as reader:
            assert [reader.read(30).value for _ in values] == values


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_no_token(secured: Secured, scheme: str) -> None:
    rejection(url_of(secured, scheme), secured.security(token=None), NotAuthenticated)


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_a_token_with_a_foreign_signature(secured: Secured, scheme: str) -> None:
    token = signed({"sub": "admin"}, b"another secret of 32 characters.")
    rejection(url_of(secured, scheme), secured.security(token=token), NotAuthenticated)


def test_a_malformed_token(secured: Secured) -> None:
    rejection(secured.url, secured.security(token="nonsense"), NotAuthenticated)


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_an_expired_token(secured: Secured, scheme: str) -> None:
    rejection(url_of(secured, scheme), secured.security(token=secured.token(expires_in_s=-60)), NotAuthenticated)


def test_a_role_without_permissions(secured: Secured) -> None:
    rejection(secured.url, secured.security(token=secured.token("nobody")), NotAuthorized)


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_an_untrusted_certificate(secured: Secured, scheme: str) -> None:
    text = rejection(url_of(secured, scheme), secured.security(trust_certs_file=None), ConnectionLost)
    assert "the certificate is not trusted" in text and "trust_certs_file" in text and HOST in text


@pytest.mark.parametrize("scheme", _SCHEMES)
def test_a_certificate_for_another_host(secured: Secured, scheme: str) -> None:
    url = url_of(secured, scheme).replace(HOST, "localhost")
    text = rejection(url, secured.security(), ConnectionLost)
    assert "the certificate is for another host" in text and "verify_hostname" in text
    with Client(url, security=secured.security(verify_hostname=False)) as client:
        assert client.get_partitions_for_topic("secure")
    with Client(url, security=secured.security(trust_certs_file=None, allow_insecure=True)) as client:
        assert client.get_partitions_for_topic("secure")


def test_tls_to_a_plain_text_port(secured: Secured) -> None:
    for url in (f"pulsar+ssl://{HOST}:{secured.port}", f"https://{HOST}:{secured.http_port}"):
        assert "without TLS" in rejection(url, secured.security(), ConnectionLost)


def test_plain_text_to_a_tls_port(secured: Secured) -> None:
    for url in (f"pulsar://{HOST}:{secured.tls_port}", f"http://{HOST}:{secured.https_port}"):
        assert "port for TLS" in rejection(url, Security(token=secured.token()), ConnectionLost)


def test_a_token_is_replaced_while_in_use(secured: Secured, topic: str, tmp_path: Path) -> None:
    """The broker requests a fresh token on expiry; nothing is lost or interrupted."""
    file = tmp_path / "token"
    file.write_text(secured.token(expires_in_s=3))
    security = secured.security(token=None, token_file=file)
    with Client(secured.url, security=security) as client, client.producer(topic) as producer:
        producer.send(b"before")
        connections = dict(client._client._service._pool._connections)
        file.write_text(secured.token())
        deadline_s = time.monotonic() + 3 + 4 * REFRESH_S
        while time.monotonic() < deadline_s:
            producer.send(b"during")
            time.sleep(0.1)
        assert client._client._service._pool._connections == connections
        assert all(connection.is_open for connection in connections.values())
        produce_and_read(client, f"{topic}-after")


def test_a_token_that_is_not_renewed_fails_the_producer(secured: Secured, topic: str) -> None:
    security = secured.security(token=secured.token(expires_in_s=3))
    with Client(secured.url, security=security) as client:
        producer = client.producer(topic)
        producer.send(b"before")
        with pytest.raises(NotAuthenticated):
            deadline_s = time.monotonic() + 20
            while time.monotonic() < deadline_s:
                producer.send(b"during")
                time.sleep(0.1)
