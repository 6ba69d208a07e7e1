"""`--token` and `--trust-certs`: credentials sent to an authenticating broker, and never shown elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.cli.main import main
from tests.cli.conftest import CommandLine
from tests.client.certificates import Certificates
from tests.client.fake_broker import fake_broker
from tests.client.fake_web import FakeWeb, fake_web
from tests.client.tokens import token_with

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2VjcmV0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def received(web: FakeWeb) -> list[str | None]:
    return [authorization for _, authorization in web.received]


def test_a_token_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with fake_web(["public"]) as web:
        cli = CommandLine(web.url, capsys)
        cli.ok("tenants", "list")
        cli.ok("tenants", "list", "--token", TOKEN)
        cli.ok("tenants", "list", "--token", f"file://{tmp_path}/token")
        monkeypatch.setenv("MAGNETAR_TOKEN", f"token:{TOKEN}")
        cli.ok("tenants", "list")
        assert TOKEN not in cli.ok("tenants", "list", "--help")
        assert received(web) == [None, *[f"Bearer {TOKEN}"] * 3]


def test_an_expired_token_is_reported_as_expired(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_web({"reason": "go away"}, status=401) as web:
        cli = CommandLine(web.url, capsys)
        token = token_with({"exp": 1_700_000_000})
        message = cli.fails("tenants", "list", "--token", token)
        assert message == "go away (HTTP 401); the token expired at 2023-11-14T22:13:20Z"
        assert cli.fails("tenants", "list", "--token", TOKEN) == "go away (HTTP 401)"


def test_a_redirect_takes_the_token_to_no_other_address(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_web(["public"]) as other, fake_web({}, status=307, headers={"Location": other.url + "{path}"}) as asked:
        message = CommandLine(asked.url, capsys).fails("tenants", "list", "--token", TOKEN)
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
        message = cli.fails("tenants", "list", "--token", TOKEN)
        assert message.startswith(f"cannot connect to {web.url}: the certificate is not trusted (")
        assert web.received == []
        cli.ok("tenants", "list", "--token", TOKEN, "--trust-certs", str(certificates.file))
        monkeypatch.setenv("MAGNETAR_TRUST_CERTS", str(certificates.file))
        cli.ok("tenants", "list")
        assert received(web) == [f"Bearer {TOKEN}", None]


def test_messages_are_sent_with_both(certificates: Certificates) -> None:
    """Over the binary protocol, found by HTTPS or named."""
    tls = certificates.server()
    words = ["messages", "publish", "t", "x", "--token", TOKEN, "--trust-certs", str(certificates.file)]
    with fake_broker(tls=tls) as fake, fake_web({"partitions": 0, "brokerUrlTls": fake.url}, tls=tls) as web:
        assert main([*words, "--url", web.url]) == 0
        assert main([*words, "--service-url", fake.url]) == 0
        connects = [command.connect for command in fake.received if command.connect.client_version]
        assert [connect.auth_data for connect in connects] == [TOKEN.encode()] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--token", f"two {TOKEN}"],
            "--token contains spaces, line breaks or other characters that are illegal in a token",
        ),
        (["--token", f'{{"token": {TOKEN}'], "--token begins with { but is not a JSON object"),
        (["--token", "file:///missing/token"], "--token '/missing/token' cannot be read: No such file or directory"),
        (["--trust-certs", "ca.pem"], "--trust-certs requires an https:// address, not {url}"),
    ],
)
def test_unusable_credentials(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    with fake_web(["public"]) as web:
        found = CommandLine(web.url, capsys).fails("tenants", "list", *words, code=2)
        assert found == message.replace("{url}", web.url)
        assert web.received == []


def test_a_file_without_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.pem"
    file.touch()
    message = CommandLine("https://localhost:1", capsys).fails("tenants", "list", "--trust-certs", str(file), code=2)
    assert message.startswith(f"--trust-certs: trust_certs_file {str(file)!r} cannot be used: not PEM")
