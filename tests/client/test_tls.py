"""TLS and tokens on the wire: trust, credentials, and no plain text."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop

from magnetar.client import AsyncClient, Client, Security
from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    NotAuthenticated,
    NotAuthorized,
    NotSupported,
    ProtocolBroken,
)
from magnetar.security.tls import context_of
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from tests.client.certificates import HOST, Certificates
from tests.client.fake_broker import Answer, Command, FakeBroker, fake_broker, lookup_response
from tests.client.fake_web import fake_web
from tests.client.tokens import token_with
from tests.compat.stage import PATIENCE_MS

PATIENCE_S = PATIENCE_MS / 1000
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2VjcmV0"
NO_REQUEST = (1 << 64) - 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def refusal(url: str, security: Security | None, error: type[ClientError], **options: float) -> str:
    with Client(url, security=security, **options) as client, pytest.raises(error) as raised:  # type: ignore[arg-type]
        client.producer("t")
    assert TOKEN not in str(raised.value)
    return str(raised.value)


def loss(client: Client) -> str:
    """The error of the client, as soon as it has noticed the lost connection."""
    while True:
        try:
            client.get_partitions_for_topic("t")
        except ConnectionLost as error:
            if "was closed by the broker" not in error.text:
                return error.text


def connects(broker: FakeBroker) -> list[pb.CommandConnect]:
    return [command.connect for command in list(broker.received) if command.type == Command.CONNECT]


def tokens(broker: FakeBroker) -> list[bytes]:
    """The tokens of every CONNECT and AUTH_RESPONSE."""
    received = [
        (each.connect.auth_data, each.authResponse.response.auth_data, each.type) for each in list(broker.received)
    ]
    return [first or second for first, second, kind in received if kind in (Command.CONNECT, Command.AUTH_RESPONSE)]


def looking_up(url: str, *, redirect: bool = False, proxy: bool = False) -> Answer:
    def answer(broker: FakeBroker, command: Command) -> Command | None:
        return lookup_response(command, url, redirect=redirect, proxy=proxy) if command.type == Command.LOOKUP else None

    return answer


def accepting(*accepted: str) -> Answer:
    """A broker that accepts these tokens, like Apache Pulsar."""

    def answer(broker: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.CONNECT or command.connect.auth_data.decode() in accepted:
            return None
        error = pb.CommandError(request_id=NO_REQUEST, error=pb.AuthenticationError, message="Failed to authenticate")
        return Command(type=Command.ERROR, error=error)

    return answer


def challenge(method: str = "token") -> Command:
    asked = pb.AuthData(auth_method_name=method, auth_data=b"PulsarAuthRefresh")
    return Command(type=Command.AUTH_CHALLENGE, authChallenge=pb.CommandAuthChallenge(challenge=asked))


# -- TLS


def test_a_producer_over_tls_with_a_token(certificates: Certificates) -> None:
    with (
        fake_broker(tls=certificates.server()) as fake,
        Client(fake.url, security=certificates.security(token=TOKEN)) as client,
    ):
        client.producer("t").send(b"x")
        [connect] = connects(fake)
        assert (connect.auth_method_name, connect.auth_data) == ("token", TOKEN.encode())
        assert connect.feature_flags.supports_auth_refresh


def test_large_messages_over_tls(certificates: Certificates) -> None:
    """TLS records and frames have different boundaries."""
    sizes = [1, 900, 17, 1000]
    with (
        fake_broker(tls=certificates.server()) as fake,
        Client(fake.url, security=certificates.security()) as client,
        client.producer("t", batching=False) as producer,
    ):
        for _ in range(200):
            for size in sizes:
                producer.send_async(b"x" * size)
        producer.flush()
        assert fake.types().count("SEND") == 800


def test_under_uvloop(certificates: Certificates) -> None:
    async def send(url: str) -> None:
        async with AsyncClient(url, security=certificates.security()) as client:
            await (await client.producer("t")).send(b"x")

    with fake_broker(tls=certificates.server()) as fake, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(send(fake.url))
        assert fake.has_received("SEND", "CLOSE_PRODUCER")


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_errors_have_the_same_text_with_every_loop(
    running: TestBroker, certificates: Certificates, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def ask(url: str, security: Security) -> str:
        async with AsyncClient(url, security=security) as client:
            with pytest.raises(ConnectionLost) as raised:
                await client.get_partitions_for_topic("t")
            return str(raised.value)

    trusting = certificates.security()
    plain = running.service_url.removeprefix("pulsar://")
    with (
        asyncio.Runner(loop_factory=loop_factory) as runner,
        fake_broker(tls=certificates.server()) as fake,
        fake_broker(tls=certificates.demanding_server()) as demanding,
    ):
        assert "the certificate is not trusted" in runner.run(ask(fake.url, Security()))
        assert "it may be a port without TLS" in runner.run(ask(f"pulsar+ssl://{plain}", trusting))
        assert "port for TLS" in runner.run(ask(f"pulsar://{fake.address}", Security()))
        assert "certificate_file and key_file" in runner.run(ask(demanding.url, trusting))


def test_nothing_is_sent_to_an_untrusted_broker(certificates: Certificates) -> None:
    with fake_broker(tls=certificates.server()) as fake:
        text = refusal(fake.url, Security(token=TOKEN), ConnectionLost)
        assert fake.received == []
        assert text.startswith(f"cannot connect to {fake.address}: the certificate is not trusted (")
        assert text.endswith("set trust_certs_file to the certificate of its CA")


def test_a_certificate_for_another_host(certificates: Certificates) -> None:
    with fake_broker(tls=certificates.server("broker.example")) as fake:
        text = refusal(fake.url, certificates.security(token=TOKEN), ConnectionLost)
        assert fake.received == []
        assert f"cannot connect to {fake.address}: the certificate is for another host (" in text
        assert HOST in text and "verify_hostname=False" in text
        with Client(fake.url, security=certificates.security(verify_hostname=False)) as client:
            client.producer("t").send(b"x")


def test_without_hostname_verification_the_authority_still_counts(certificates: Certificates) -> None:
    with fake_broker(tls=certificates.server()) as fake:
        assert "not trusted" in refusal(fake.url, Security(verify_hostname=False), ConnectionLost)
        with Client(fake.url, security=Security(allow_insecure=True)) as client:
            client.producer("t").send(b"x")


def test_an_expired_certificate(certificates: Certificates) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    with fake_broker(tls=certificates.server(not_after=yesterday)) as fake:
        text = refusal(fake.url, certificates.security(), ConnectionLost)
        assert "the certificate is not valid: certificate has expired" in text


def test_tls_to_a_plain_text_port(running: TestBroker) -> None:
    for url in (running.service_url, running.http_url):
        encrypted = url.replace("pulsar:", "pulsar+ssl:").replace("http:", "https:")
        text = refusal(encrypted, Security(token=TOKEN), ConnectionLost)
        assert url.partition("://")[2] in text and "it may be a port without TLS" in text


def test_plain_text_to_a_tls_port(certificates: Certificates) -> None:
    with fake_broker(tls=certificates.server()) as fake:
        text = refusal(f"pulsar://{fake.address}", None, ConnectionLost)
        assert fake.address in text and "port for TLS" in text and "pulsar+ssl://" in text


def test_a_tls_alert_is_recognised(certificates: Certificates) -> None:
    with fake_broker(greeting=b"\x15\x03\x03\x00\x02\x02\x46") as fake:
        text = refusal(fake.url, None, ProtocolBroken)
        assert text.endswith("was closed: it is a port for TLS: write pulsar+ssl://")


def test_a_client_certificate(certificates: Certificates) -> None:
    with fake_broker(tls=certificates.demanding_server()) as fake:
        with Client(fake.url, security=certificates.client_security()) as client:
            client.producer("t").send(b"x")
        [connect] = connects(fake)
        assert (connect.auth_method_name, connect.auth_data) == ("tls", b"")
        text = refusal(fake.url, certificates.security(), ConnectionLost)
        assert fake.address in text and "certificate_file and key_file" in text


def test_the_example_of_the_documentation(
    certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    [block] = re.findall(r"<!-- test: tls -->\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "token").write_text(TOKEN)
    with fake_broker(tls=certificates.server()) as fake:
        code = block.replace("authority.pem", str(certificates.file)).replace("/run/secrets", str(tmp_path))
        exec(code.replace("pulsar+ssl://broker.example:6651", fake.url), {})
        assert tokens(fake) == [TOKEN.encode()]
    assert capsys.readouterr().out.startswith("1:0")


def test_replaced_certificates_are_reloaded(certificates: Certificates, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    file = tmp_path / "trusted.pem"
    file.write_bytes(Certificates(stranger).file.read_bytes())
    with (
        fake_broker(tls=certificates.server()) as fake,
        Client(fake.url, security=Security(trust_certs_file=file)) as client,
    ):
        with pytest.raises(ConnectionLost, match="the certificate is not trusted"):
            client.producer("t")
        certificates.file.with_name("copy.pem").write_bytes(certificates.file.read_bytes())
        certificates.file.with_name("copy.pem").rename(file)
        client.producer("t").send(b"x")


def test_replaced_certificates_are_reloaded_for_http_too(certificates: Certificates, tmp_path: Path) -> None:
    """A long-running process outlives them."""
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    file, copy = tmp_path / "trusted.pem", tmp_path / "copy.pem"
    file.write_bytes(Certificates(stranger).file.read_bytes())
    with (
        fake_web({"partitions": 0}, tls=certificates.server()) as web,
        Client(web.url, security=Security(trust_certs_file=file)) as client,
    ):
        with pytest.raises(ConnectionLost, match="the certificate is not trusted"):
            client.get_partitions_for_topic("t")
        copy.write_bytes(certificates.file.read_bytes())
        copy.rename(file)
        for _ in range(2):
            assert client.get_partitions_for_topic("t") == ["persistent://public/default/t"]
        file.unlink()
        with pytest.raises(ConnectionLost, match=r"trust_certs_file .* cannot be read"):
            client.get_partitions_for_topic("t")


def test_certificates_are_read_once(certificates: Certificates) -> None:
    assert context_of(Security(token="a")) is context_of(Security(token="b"))
    assert context_of(certificates.security()) is context_of(certificates.security())
    assert context_of(certificates.security()) is not context_of(certificates.security(verify_hostname=False))
    assert context_of(certificates.security()) is not context_of(certificates.security(), for_http=True)


# -- between brokers


def test_the_owner_of_the_topic_is_used(certificates: Certificates) -> None:
    tls = certificates.server()
    with (
        fake_broker(tls=tls) as owner,
        fake_broker(looking_up(owner.url), tls=tls) as second,
        fake_broker(looking_up(second.url, redirect=True), tls=tls) as first,
        Client(first.url, security=certificates.security(token=TOKEN)) as client,
    ):
        client.producer("t").send(b"x")
        assert second.types() == ["CONNECT", "LOOKUP"]
        assert owner.types() == ["CONNECT", "PRODUCER", "SEND"]
        assert tokens(first) == tokens(second) == tokens(owner) == [TOKEN.encode()]


def test_a_proxy_receives_the_brokers_address(certificates: Certificates) -> None:
    with (
        fake_broker(looking_up("pulsar+ssl://inside:6651", proxy=True), tls=certificates.server()) as proxy,
        Client(proxy.url, security=certificates.security(token=TOKEN)) as client,
    ):
        client.producer("t").send(b"x")
        assert [connect.proxy_to_broker_url for connect in connects(proxy)] == ["", "inside:6651"]
        assert tokens(proxy) == [TOKEN.encode()] * 2


@pytest.mark.parametrize("redirect", [True, False])
@pytest.mark.parametrize("field", ["brokerServiceUrl", "brokerServiceUrlTls"])
def test_a_client_with_tls_never_continues_without(certificates: Certificates, redirect: bool, field: str) -> None:
    """Neither if the broker has no TLS address, nor if it returns a plain one instead."""

    def answer(broker: FakeBroker, command: Command) -> Command | None:
        reply = lookup_response(command, "", redirect=redirect)
        setattr(reply.lookupTopicResponse, field, plain.url)
        return reply if command.type == Command.LOOKUP else None

    with fake_broker() as plain, fake_broker(answer, tls=certificates.server()) as fake:
        text = refusal(fake.url, certificates.security(token=TOKEN), NotSupported)
        assert plain.url in text
        assert plain.received == []


def test_a_client_without_tls_gets_an_error_that_names_tls(certificates: Certificates) -> None:
    with fake_broker(looking_up("pulsar+ssl://a:6651")) as fake:
        text = refusal(fake.url, None, NotSupported)
        assert "named a broker with TLS only, pulsar+ssl://a:6651" in text


def test_the_next_broker_is_used_after_a_loss(certificates: Certificates) -> None:
    tls = certificates.server()
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(fake_broker(tls=tls)) for _ in range(2))
        url = f"pulsar+ssl://{first.address},{second.address}"
        client = stack.enter_context(Client(url, security=certificates.security(token=TOKEN)))
        producer = client.producer("t")
        producer.send(b"before")
        first.close()
        producer.send(b"after")
        assert second.types() == ["CONNECT", "LOOKUP", "PRODUCER", "SEND"]


def test_an_untrusted_broker_is_skipped(certificates: Certificates, tmp_path: Path) -> None:
    with (
        fake_broker(tls=Certificates(tmp_path).server()) as stranger,
        fake_broker(tls=certificates.server()) as fake,
        Client(f"pulsar+ssl://{stranger.address},{fake.address}", security=certificates.security()) as client,
    ):
        client.producer("t").send(b"x")
        assert stranger.received == []


# -- tokens


def test_a_rejected_token() -> None:
    with fake_broker(accepting(TOKEN)) as fake:
        text = refusal(fake.url, Security(token="another"), NotAuthenticated)
        assert text == f"{fake.address}: the broker refused the connection: Failed to authenticate"
        assert refusal(fake.url, None, NotAuthenticated).endswith("; no credentials were given")
        assert len(connects(fake)) == 2


def test_an_expired_token_is_reported_as_expired() -> None:
    """Apache Pulsar reports it only in its log."""
    expired = token_with({"sub": "admin", "exp": 1_700_000_000})
    hint = "; the token expired at 2023-11-14T22:13:20Z"
    with fake_broker(accepting(TOKEN)) as fake, fake_web({}, status=401) as web:
        for url in (fake.url, web.url):
            assert refusal(url, Security(token=expired), NotAuthenticated).endswith(hint)
            assert "expired" not in refusal(url, Security(token="another"), NotAuthenticated)
    with fake_web({}, status=403) as web:
        assert "expired" not in refusal(web.url, Security(token=expired), NotAuthorized)


def test_a_token_rejected_later_fails_open_producers_and_consumers(tmp_path: Path) -> None:
    """At once, not after five minutes of retries."""
    file = tmp_path / "token"
    file.write_text("first")
    with (
        fake_broker(accepting("first")) as fake,
        Client(fake.url, security=Security(token_file=file)) as client,
    ):
        producer = client.producer("t")
        producer.send(b"before")
        file.write_text("second")
        fake.drop()
        with pytest.raises(NotAuthenticated, match="Failed to authenticate"):
            producer.send(b"after")
        assert tokens(fake) == [b"first", b"second"]


def test_a_new_token_is_used_for_a_new_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with (
        fake_broker(accepting("first", "second")) as fake,
        Client(fake.url, security=Security(token_file=file)) as client,
    ):
        producer = client.producer("t")
        producer.send(b"before")
        file.write_text("second\n")
        fake.drop()
        producer.send(b"after")
        assert tokens(fake) == [b"first", b"second"]


def test_a_temporarily_missing_token_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with fake_broker() as fake, Client(fake.url, security=Security(token_file=file)) as client:
        producer = client.producer("t")
        producer.send(b"before")
        file.unlink()
        fake.drop()
        later = producer.send_async(b"after")
        assert f"cannot connect to {fake.address}: token_file" in loss(client)
        file.write_text("second")
        later.result(PATIENCE_S)
        assert tokens(fake) == [b"first", b"second"]


def test_a_challenge_while_connecting_is_answered() -> None:
    def answer(broker: FakeBroker, command: Command) -> Command | None:
        if command.type == Command.CONNECT:
            return challenge()
        connected = pb.CommandConnected(server_version="Fake 1")
        return Command(type=Command.CONNECTED, connected=connected) if command.type == Command.AUTH_RESPONSE else None

    with fake_broker(answer) as fake, Client(fake.url, security=Security(token=TOKEN)) as client:
        client.producer("t").send(b"x")
        assert tokens(fake) == [TOKEN.encode()] * 2
        response = fake.received[1].authResponse
        assert response.client_version.startswith("Magnetar ") and response.protocol_version == 21
        assert response.response.auth_method_name == "token"


@pytest.mark.parametrize("method", ["token", ""])
def test_a_fresh_token_is_sent_on_a_challenge(tmp_path: Path, method: str) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with fake_broker() as fake, Client(fake.url, security=Security(token_file=file)) as client:
        producer = client.producer("t")
        producer.send(b"before")
        file.write_text("second")
        fake.send(encode_frame(challenge(method)))
        producer.send(b"after")  # its receipt follows the challenge,
        producer.send(b"later")  # and this one is sent after the response
        assert tokens(fake) == [b"first", b"second"]
        assert len(connects(fake)) == 1


def test_an_unreadable_fresh_token_closes_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with fake_broker() as fake, Client(fake.url, security=Security(token_file=file)) as client:
        producer = client.producer("t", send_timeout_s=5)
        producer.send(b"before")
        file.unlink()
        fake.send(encode_frame(challenge()))
        assert "token_file" in loss(client)
        file.write_text("second")
        producer.send(b"after")
        assert tokens(fake) == [b"first", b"second"]


@pytest.mark.parametrize(
    ("security", "text"), [(Security(token=TOKEN), "for 'token' only"), (None, "the client has no credentials")]
)
def test_an_unanswerable_challenge(security: Security | None, text: str) -> None:
    with fake_broker(greeting=encode_frame(challenge("sasl"))) as fake:
        shown = refusal(fake.url, security, NotSupported)
        assert f"{fake.address}: the broker requests authentication by 'sasl', but the client" in shown
        assert text in shown


# -- HTTP


@pytest.mark.parametrize("field", ["brokerUrlTls", "brokerUrlSsl"])
def test_https_lookup_uses_tls_with_the_token(certificates: Certificates, field: str) -> None:
    tls = certificates.server()
    with fake_broker(tls=tls) as fake:
        found = {"partitions": 0, "brokerUrl": "pulsar://elsewhere:6650", field: fake.url}
        with (
            fake_web(found, tls=tls) as web,
            Client(web.url, security=certificates.security(token=TOKEN)) as client,
        ):
            client.producer("t").send(b"x")
            assert [authorization for _, authorization in web.received] == [f"Bearer {TOKEN}"] * 2
            assert tokens(fake) == [TOKEN.encode()]


def test_https_lookup_never_uses_a_broker_without_tls(certificates: Certificates) -> None:
    with (
        fake_broker() as plain,
        fake_web({"partitions": 0, "brokerUrl": plain.url}, tls=certificates.server()) as web,
    ):
        text = refusal(web.url, certificates.security(token=TOKEN), NotSupported)
        assert f"named a broker without TLS, {plain.url}" in text
        assert plain.received == []


def test_a_redirect_keeps_the_token_within_the_addresses_that_were_given(certificates: Certificates) -> None:
    """A cluster redirects a request about a topic to its owner, which authenticates it too."""
    tls = certificates.server()
    with (
        fake_web({"partitions": 3}, tls=tls) as owner,
        fake_web({}, status=307, headers={"Location": owner.url + "{path}"}, tls=tls) as asked,
        Client(f"{asked.url},{owner.url.removeprefix('https://')}", security=certificates.security(token=TOKEN)) as one,
    ):
        assert len(one.get_partitions_for_topic("t")) == 3
        assert owner.received[0][1] == f"Bearer {TOKEN}"


def test_a_redirect_takes_the_token_nowhere_else(certificates: Certificates) -> None:
    tls = certificates.server()
    with (
        fake_web({"partitions": 3}, tls=tls) as attacker,
        fake_web({}, status=307, headers={"Location": attacker.url + "{path}"}, tls=tls) as asked,
    ):
        text = refusal(asked.url, certificates.security(token=TOKEN), NotSupported)
        assert f"{asked.url} redirects to {attacker.url}, which is not an address that was given" in text
        assert attacker.received == []


def test_a_redirect_to_plain_http_is_not_followed(certificates: Certificates) -> None:
    with (
        fake_web({"partitions": 3}) as plain,
        fake_web({}, status=307, headers={"Location": plain.url + "{path}"}, tls=certificates.server()) as asked,
    ):
        text = refusal(asked.url, certificates.security(token=TOKEN), NotSupported)
        assert f"{asked.url} redirects to {plain.url}" in text
        assert plain.received == []


def test_a_token_file_is_read_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    with fake_web({"partitions": 0}) as web, Client(web.url, security=Security(token_file=file)) as client:
        client.get_partitions_for_topic("t")
        file.write_text("second")
        client.get_partitions_for_topic("t")
        file.unlink()
        with pytest.raises(ConnectionLost, match=r"cannot send a request to http://.*: token_file .* cannot be read"):
            client.get_partitions_for_topic("t")
        assert [authorization for _, authorization in web.received] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(("status", "error"), [(401, NotAuthenticated), (403, NotAuthorized)])
def test_a_token_rejected_over_http(status: int, error: type[ClientError]) -> None:
    page = {"Content-Type": "text/html"}
    with fake_web("<html>a long page", status=status, headers=page) as web:
        text = refusal(web.url, Security(token=TOKEN), error)
        assert "partitions of persistent://public/default/t" in text and "html" not in text
        assert len(web.received) == 1


def test_https_and_certificates(certificates: Certificates) -> None:
    with fake_web({"partitions": 0}, tls=certificates.server("broker.example")) as web:
        assert "the certificate is not trusted" in refusal(web.url, Security(token=TOKEN), ConnectionLost)
        assert "for another host" in refusal(web.url, certificates.security(token=TOKEN), ConnectionLost)
        assert "a port for TLS: then write https://" in refusal(
            web.url.replace("https", "http"), Security(token=TOKEN), ConnectionLost
        )
        assert web.received == []
        with Client(web.url, security=certificates.security(verify_hostname=False)) as client:
            assert client.get_partitions_for_topic("t") == ["persistent://public/default/t"]
