"""`--token` and `--trust-certs`: credentials sent to an authenticating broker, and never shown elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.cli.main import main
from magnetar.testing import broker
from tests.cli.conftest import CommandLine
from tests.client.certificates import Certificates
from tests.client.fake_broker import fake_broker
from tests.client.fake_web import FakeWeb, fake_web
from tests.client.tokens import token_with

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2VjcmV0"


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMIN", TOKEN)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


REFUSED = (
    "--token shows a secret to every user of this machine: give file:PATH, env:NAME, - for the first line of stdin, or"
    " a profile"
)


def received(web: FakeWeb) -> list[str | None]:
    return [authorization for _, authorization in web.received]


def test_a_token_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with fake_web(["public"]) as web:
        cli = CommandLine(web.url, capsys)
        cli.ok("tenants", "list")
        cli.ok("tenants", "list", "--token", f"file:{tmp_path}/token")
        cli.ok("tenants", "list", "--token", f"file://{tmp_path}/token")
        monkeypatch.setenv("MAGNETAR_TOKEN", f"token:{TOKEN}")
        cli.ok("tenants", "list")
        assert TOKEN not in cli.ok("tenants", "list", "--help")
        assert received(web) == [None, *[f"Bearer {TOKEN}"] * 3]


def test_an_expired_token_is_reported_as_expired(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_web({"reason": "go away"}, status=401) as web:
        cli = CommandLine(web.url, capsys)
        monkeypatch.setenv("EXPIRED", token_with({"exp": 1_700_000_000}))
        message = cli.fails("tenants", "list", "--token", "env:EXPIRED")
        assert message == "go away (HTTP 401); the token expired at 2023-11-14T22:13:20Z"
        monkeypatch.setenv("VALID", TOKEN)
        assert cli.fails("tenants", "list", "--token", "env:VALID") == "go away (HTTP 401)"


def test_a_redirect_takes_the_token_to_no_other_address(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_web(["public"]) as other, fake_web({}, status=307, headers={"Location": other.url + "{path}"}) as asked:
        message = CommandLine(asked.url, capsys).fails("tenants", "list", "--token", "env:ADMIN")
        assert message.endswith("credentials are not sent there; give that address instead")
        assert other.url in message
        assert received(asked) == [f"Bearer {TOKEN}"] and other.received == []
        CommandLine(asked.url, capsys).ok("tenants", "list")  # without a credential there is nothing to lose
        assert received(other) == [None]


def test_https_with_a_custom_authority(
    certificates: Certificates, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_web(["public"], tls=certificates.server()) as web:
        cli = CommandLine(web.url, capsys)
        message = cli.fails("tenants", "list", "--token", "env:ADMIN")
        assert message.startswith(f"cannot connect to {web.url}: the certificate is not trusted (")
        assert message.endswith("; here with --trust-certs FILE") and "magnetar standalone" not in message
        assert web.received == []
        cli.ok("tenants", "list", "--token", "env:ADMIN", "--trust-certs", str(certificates.file))
        monkeypatch.setenv("MAGNETAR_TRUST_CERTS", str(certificates.file))
        cli.ok("tenants", "list")
        assert received(web) == [f"Bearer {TOKEN}", None]


def test_the_binary_port_for_tls_is_not_https(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(secure=True) as running:
        url = running.service_url.replace("pulsar+ssl://", "https://")
        message = CommandLine(url, capsys).fails("tenants", "list", "--trust-certs", running.trust_certs_file)
    assert "; it may be the binary port for TLS" in message


def test_an_untrusted_certificate_of_the_binary_port(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(secure=True) as running:
        words = ("messages", "publish", "t", "x", "--service-url", running.service_url)
        message = CommandLine(running.http_url, capsys).fails(*words)
    assert message.endswith("; here with --trust-certs FILE") and "magnetar standalone" not in message


def test_messages_are_sent_with_both(certificates: Certificates) -> None:
    """Over the binary protocol, found by HTTPS or named."""
    tls = certificates.server()
    words = ["messages", "publish", "t", "x", "--token", "env:ADMIN", "--trust-certs", str(certificates.file)]
    with fake_broker(tls=tls) as fake, fake_web({"partitions": 0, "brokerUrlTls": fake.url}, tls=tls) as web:
        assert main([*words, "--url", web.url]) == 0
        assert main([*words, "--service-url", fake.url]) == 0
        connects = [command.connect for command in fake.received if command.connect.client_version]
        assert [connect.auth_data for connect in connects] == [TOKEN.encode()] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--token", "env:SPACED"],
            "--token: token contains spaces, line breaks or other characters that are illegal in a token",
        ),
        (["--token", "env:CUT"], "--token: token begins with { but is not a JSON object"),
        (["--token", "env:NONE"], "--token env:NONE: the variable NONE is not set"),
        (
            ["--token", "file:///missing/token"],
            "--token: token_file '/missing/token' cannot be read: No such file or directory",
        ),
        (["--token", TOKEN], REFUSED),
        (["--token", f"token:{TOKEN}"], REFUSED),
        (["--token", ""], "--token is empty: give file:PATH, env:NAME, - for the first line of stdin, or a profile"),
        (["--trust-certs", "ca.pem"], "--trust-certs requires an https:// address, not {url}"),
    ],
)
def test_unusable_credentials(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.setenv("SPACED", f"two {TOKEN}")
    monkeypatch.setenv("CUT", f'{{"token": {TOKEN}')
    with fake_web(["public"]) as web:
        found = CommandLine(web.url, capsys).fails("tenants", "list", *words, code=2)
        assert found == message.replace("{url}", web.url)
        assert web.received == []


@pytest.mark.parametrize(("content", "reason"), [("no certificate", "not PEM"), ("", "it is empty")])
def test_a_file_without_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, reason: str
) -> None:
    file = tmp_path / "own.pem"
    file.write_text(content)
    message = CommandLine("https://localhost:1", capsys).fails("tenants", "list", "--trust-certs", str(file), code=2)
    assert message.startswith(f"--trust-certs: trust_certs_file {str(file)!r} cannot be used: {reason}")
