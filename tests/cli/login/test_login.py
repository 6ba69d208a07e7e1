"""Options, profiles and environment: which broker is asked, and which login it is shown."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from magnetar.cli.main import main
from tests.cli.conftest import CommandLine
from tests.client.certificates import Certificates
from tests.client.fake_web import FakeWeb, fake_web
from tests.client.tokens import token_with

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2VjcmV0"


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with fake_web(["public"]) as web:
        yield web


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of profiles, and a token beside it."""
    file = tmp_path / "config.toml"
    monkeypatch.setenv("MAGNETAR_CONFIG", str(file))
    (tmp_path / "token").write_text(TOKEN)
    return file


def sent(web: FakeWeb) -> str | None:
    """The login of the last request."""
    return web.received[-1][1]


def run(*words: str) -> int:
    return main([*words, "tenants", "list"])


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 2
    return capsys.readouterr().err.removeprefix("magnetar: ").strip()


def test_a_profile_has_address_and_login(config: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(f"[profile.prod]\nurl = '{web.url}'\ntoken_file = 'token'\n[profile.dev]\nurl = 'http://dev:1'\n")
    assert main(["tenants", "list", "--profile", "prod"]) == 0
    assert sent(web) == f"Bearer {TOKEN}"
    assert run("--profile", "prod") == 0, "before the command"
    monkeypatch.setenv("MAGNETAR_PROFILE", "prod")
    assert run() == 0
    assert [login for _, login in web.received] == [f"Bearer {TOKEN}"] * 3


def test_a_file_with_one_profile(tmp_path: Path, web: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "admin.toml"
    file.write_text(f"[profile.admin]\nurl = '{web.url}'\ntoken_file = 'token'\n")
    assert run("--profile", str(file)) == 0
    assert sent(web) == f"Bearer {TOKEN}"
    file.write_text("[profile.a]\n[profile.b]\n")
    assert f"{file} has 2 profiles, a, b: choose one" in fails(capsys, "--profile", str(file), "tenants", "list")


def test_the_login_of_a_profile_goes_to_its_address_only(
    config: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("[profile.prod]\nurl = 'https://prod:8443'\ntoken_file = 'token'\n")
    message = fails(capsys, "tenants", "list", "--profile", "prod", "--url", web.url)
    assert message == "--profile has an address of its own, to which alone its login is sent: give no other"
    monkeypatch.setenv("MAGNETAR_PROFILE", "prod")
    assert main(["tenants", "list", "--url", web.url]) == 0
    assert sent(web) is None
    monkeypatch.setenv("MAGNETAR_URL", web.url)
    assert "MAGNETAR_PROFILE and MAGNETAR_URL are both set" in fails(capsys, "tenants", "list")


def test_options_override_a_profile_which_overrides_the_environment(
    config: Path, tmp_path: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").write_text("other")
    monkeypatch.setenv("MAGNETAR_TOKEN", "environment")
    monkeypatch.setenv("MAGNETAR_URL", "http://elsewhere:1")
    config.write_text(f"[profile.a]\nurl = '{web.url}'\ntoken_file = 'token'\n[profile.open]\nurl = '{web.url}'\n")
    assert run("--profile", "a") == 0
    assert sent(web) == f"Bearer {TOKEN}"
    assert run("--profile", "a", "--token", f"file:{tmp_path}/other") == 0
    assert sent(web) == "Bearer other"
    assert run("--profile", "open") == 0
    assert sent(web) == "Bearer environment", "a profile may leave the token to the environment"


def test_a_password_and_a_plugin(config: Path, web: FakeWeb) -> None:
    config.write_text(f"[profile.p]\nurl = '{web.url}'\nusername = 'admin'\npassword = 'apache'\n")
    config.chmod(0o600)
    assert run("--profile", "p") == 0
    assert sent(web) == "Basic YWRtaW46YXBhY2hl"


def test_tokens_of_the_environment(tmp_path: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_TOKEN_FILE", str(tmp_path / "token"))
    assert run("--url", web.url) == 0
    assert sent(web) == f"Bearer {TOKEN}"
    monkeypatch.delenv("MAGNETAR_TOKEN_FILE")
    monkeypatch.setenv("MAGNETAR_AUTH_PLUGIN", "org.apache.pulsar.client.impl.auth.AuthenticationToken")
    monkeypatch.setenv("MAGNETAR_AUTH_PARAMS", "token:t0k")
    assert run("--url", web.url) == 0
    assert sent(web) == "Bearer t0k"


def test_the_token_may_come_from_stdin(web: FakeWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"t0k\nrest\n")))
    assert run("--url", web.url, "--token", "-") == 0
    assert sent(web) == "Bearer t0k"


def test_the_options_of_pulsar_admin(tmp_path: Path, web: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = ("--auth-plugin", "org.apache.pulsar.client.impl.auth.AuthenticationToken")
    assert run("--url", web.url, *plugin, "--auth-params", f"file://{tmp_path}/token") == 0
    assert sent(web) == f"Bearer {TOKEN}"
    for secret in (f"token:{TOKEN}", TOKEN, f'{{"token":"{TOKEN}"}}', "admin:apache"):
        message = fails(capsys, "--url", web.url, *plugin, "--auth-params", secret, "tenants", "list")
        assert message.startswith("--auth-params shows a secret to every user of this machine: give file:///PATH")
        assert secret not in message


@pytest.mark.parametrize(
    ("plugin", "parameters"),
    [
        ("basic", "file:s3cret"),
        ("basic", "file:/s3cret"),
        ("basic", "tlsCertFile:/s3cret"),
        ("token", "file:s3cret"),
        ("token", "tlsKeyFile:/s3cret"),
        ("tls", "tlsCertFile:/a,tlsKeyFile:data:s3cret"),
        ("oauth2", '{"issuerUrl":"https://i","privateKey":"s3cret"}'),
        ("oauth2", '{"issuerUrl":"https://i","privateKey":"/k","clientSecret":"s3cret"}'),
    ],
)
def test_what_only_begins_like_a_path_is_a_secret(
    plugin: str, parameters: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the user `file`, for example, it is the password."""
    message = fails(capsys, "--auth-plugin", plugin, "--auth-params", parameters, "tenants", "list")
    assert message.startswith("--auth-params shows a secret") and "s3cret" not in message
    config.write_text(f"[profile.p]\nauth_plugin = '{plugin}'\nauth_params = '{parameters}'\n")
    config.chmod(0o644)
    assert "has a secret, auth_params, and is open to other users" in fails(capsys, "profiles", "show", "p")


WITH_LOGIN = "http://joe:s3cret@127.0.0.1:1"


@pytest.mark.parametrize(
    "words",
    [
        ["tenants", "list", "--url", WITH_LOGIN],
        ["tenants", "list", "--url", "joe:s3cret@h:8080"],
        ["tenants", "list", "--url", "http://joe:s3/cret@h:8080"],
        ["messages", "peek", "t", "--service-url", "pulsar://joe:s3cret@h:6650"],
        ["clusters", "create", "c", "--service-url", WITH_LOGIN],
        ["clusters", "create", "c", "--service-url-tls", "https://joe:s3cret@h"],
        ["clusters", "update", "c", "--broker-url", "pulsar://joe:s3cret@h"],
        ["clusters", "update", "c", "--broker-url-tls", "pulsar+ssl://joe:s3cret@h,h2"],
        ["pipelines", "--url", WITH_LOGIN],
        ["pipelines", "--service-url", "pulsar://joe:s3cret@h:6650"],
        ["pipelines", "--from", "pulsar://joe:s3cret@h", "--to", "b=pulsar://h,http://h", "--topics", "t"],
        ["pipelines", "--from", "pulsar://h", "--to", "b=pulsar://h,http://joe:s3cret@h", "--topics", "t"],
        ["pipelines", "--from", "pulsar://h", "--admin-from", WITH_LOGIN, "--to", "b=pulsar://h", "--topics", "t"],
    ],
)
def test_an_address_with_a_login_is_refused_and_not_repeated(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The login was sent, and every user of the machine saw it."""
    before = [one for one, word in pairwise(words) if "@" in word]
    message = fails(capsys, *words)
    assert message == f"{before[0]} has a login in its address: give the address alone, and the login by itself"


def test_an_address_in_another_place_has_no_login_either(capsys: pytest.CaptureFixture[str]) -> None:
    compared = ["replication", "diff", f"http://h:1,{WITH_LOGIN.replace('http', 'pulsar')}", "http://h:1"]
    for source, words in (("--url", ["--url", WITH_LOGIN, "tenants", "list"]), ("a cluster to compare", compared)):
        message = fails(capsys, *words)
        assert message.startswith(f"{source} has a login in its address") and "s3cret" not in message


@pytest.mark.parametrize("variable", ["MAGNETAR_URL", "MAGNETAR_SERVICE_URL"])
def test_an_address_of_the_environment_has_no_login(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, WITH_LOGIN)
    assert fails(capsys, "tenants", "list").startswith(f"{variable} has a login in its address")


@pytest.mark.parametrize("setting", ["url", "service_url"])
def test_an_address_of_a_profile_has_no_login(
    setting: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"[profile.p]\n{setting} = '{WITH_LOGIN}'\n")
    for words in (["tenants", "list", "--profile", "p"], ["profiles", "list"], ["profiles", "show", "p"]):
        message = fails(capsys, *words)
        assert message.startswith(f"{setting} of profile p of {config} has a login in its address")
    file = tmp_path / "client.conf"
    file.write_text(f"{'webServiceUrl' if setting == 'url' else 'brokerServiceUrl'}={WITH_LOGIN}\n")
    assert f"{setting} of {file} has a login" in fails(capsys, "--client-conf", str(file), "tenants", "list")


def test_words_that_are_no_address_may_have_any_sign(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "mail", WITH_LOGIN, "--key", "joe@example.com")


def test_pulsars_client_conf(
    tmp_path: Path, web: FakeWeb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.conf"
    plugin = "authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken"
    file.write_text(f"webServiceUrl={web.url}/\nmemoryLimit=\n{plugin}\nauthParams=file://{tmp_path}/token\n")
    assert run("--client-conf", str(file)) == 0
    monkeypatch.setenv("PULSAR_CLIENT_CONF", str(file))
    assert run() == 0
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert run() == 0
    assert [login for _, login in web.received] == [f"Bearer {TOKEN}"] * 3
    file.write_text(f"webServiceUrl={web.url}/\nproxyServiceUrl=pulsar://proxy:6650\n")
    assert "has proxyServiceUrl, which this program does not have" in fails(capsys, "tenants", "list")


def test_a_certificate(tmp_path: Path, config: Path) -> None:
    certificates = Certificates(tmp_path)
    own = certificates.client_security()
    with fake_web(["public"], tls=certificates.demanding_server()) as web:
        files = ("--tls-cert", str(own.certificate_file), "--tls-key", str(own.key_file))
        assert run("--url", web.url, "--trust-certs", str(certificates.file), *files) == 0
        config.write_text(
            f"[profile.p]\nurl = '{web.url}'\ntrust_certs = 'authority.pem'\n"
            "tls_cert = 'client.pem'\ntls_key = 'client-key.pem'\n"
        )
        assert run("--profile", "p") == 0
        assert len(web.received) == 2


@pytest.mark.parametrize("secret", ["token = 't0k'", "username = 'u'\npassword = 't0k'", "auth_params = 'token:t0k'"])
def test_a_file_with_a_secret_is_private(
    secret: str, config: Path, web: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = "auth_plugin = 'token'\n" if "auth_params" in secret else ""
    config.write_text(f"[profile.p]\nurl = '{web.url}'\n{plugin}{secret}\n")
    config.chmod(0o640)
    message = fails(capsys, "tenants", "list", "--profile", "p")
    assert "is open to other users (mode 0640): `chmod 600" in message and "t0k" not in message
    config.chmod(0o600)
    assert run("--profile", "p") == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[profile.p", "is not TOML"),
        ("[profile.other]\n", "has no profile 'p'; it has other"),
        ("[profile.p]\nulr = 'x'\n", "has no setting 'ulr': did you mean url?"),
        ("[profile.p]\nurl = 1\n", "is not as expected: Expected `str | null`, got `int`"),
        ("[profile]\np = 1\n", "is not as expected"),
        ("url = 'x'\n", "has 'url': it has only tables [profile.NAME]"),
        ("[profile.p]\ntoken_file = 'missing'\n", "missing' cannot be read: No such file or directory"),
        ("[profile.p]\ntoken_file = 'token'\nusername = 'u'\npassword_ = ''\n", "has no setting 'password_'"),
        ("[profile.p]\ntoken_file = 'token'\nauth_plugin = 'x.Unknown'\n", "'x.Unknown' is not supported"),
    ],
)
def test_mistakes_in_a_file(content: str, reason: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(content)
    assert reason in fails(capsys, "tenants", "list", "--profile", "p")


@pytest.mark.parametrize(
    ("content", "words", "reason"),
    [
        (
            "token_file = 'token'",
            ["tenants", "list"],
            " has no url: its trust_certs requires an https:// address, not http://localhost:8080",
        ),
        ("url = 'http://h:1'", ["tenants", "list"], ": its trust_certs requires an https:// address, not http://h:1"),
        (
            "service_url = 'pulsar://h:1'",
            ["messages", "publish", "t", "x"],
            ": trust_certs_file is set, but pulsar://h:1 is not encrypted: write pulsar+ssl:// or https://, with the"
            " TLS port",
        ),
    ],
)
def test_a_profile_whose_certificates_have_no_use_is_named(
    content: str, words: list[str], reason: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options were blamed that nobody had given."""
    config.write_text(f"[profile.p]\n{content}\ntrust_certs = 'ca.pem'\n")
    assert fails(capsys, *words, "--profile", "p") == f"profile p of {config}{reason}"


@pytest.mark.parametrize("option", ["--auth-plugin", "--auth-params"])
def test_the_option_that_was_given_is_named(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, option, "file:///nope", "tenants", "list").startswith(f"{option}: ")


def test_a_missing_file(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    assert fails(capsys, "tenants", "list", "--profile", "p") == f"{config} cannot be read: No such file or directory"


def test_profiles_are_shown_without_secrets(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "list"]) == 0
    assert capsys.readouterr().err == f"{config} has no profiles\n"
    config.write_text(
        "[profile.prod]\nurl = 'https://prod:8443'\ntoken = 't0k'\n"
        "[profile.p]\nusername = 'u'\npassword = 't0k'\n[profile.c]\ntls_cert = 'c.pem'\ntls_key = 'k.pem'\n"
    )
    config.chmod(0o600)
    for words in (["list"], ["list", "--json"], ["show", "prod"], ["show", "p"], ["show", "p", "--json"]):
        assert main(["profiles", *words]) == 0
        shown = capsys.readouterr().out
        assert shown and "t0k" not in shown
    assert main(["profiles", "show", "prod"]) == 0
    assert capsys.readouterr().out == "url    https://prod:8443\ntoken  (hidden)\n"


def test_a_refused_login_says_how_to_log_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", token_with({"sub": "alice"}))
    with fake_web({"reason": "authentication is required"}, status=401) as web:
        message = CommandLine(web.url, capsys).fails("tenants", "list")
        assert message == (
            "authentication is required (HTTP 401); log in with --token file:PATH, MAGNETAR_TOKEN, or a profile and"
            " --profile"
        )
    with fake_web({"reason": "no right"}, status=403) as web:
        message = CommandLine(web.url, capsys).fails("tenants", "list", "--token", "env:ALICE")
        assert message == "no right (HTTP 403); the token is for role 'alice'"
