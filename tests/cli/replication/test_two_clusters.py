"""Commands about two clusters: which credentials each of them receives."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.cli.main import main
from tests.client.certificates import Certificates
from tests.client.fake_web import FakeWeb, fake_web


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOR_A", "t0k")
    monkeypatch.setenv("FOR_B", "other")


def tokens(web: FakeWeb) -> set[str | None]:
    return {authorization for _, authorization in web.received}


def diff(a: FakeWeb, b: FakeWeb, *words: str) -> int:
    return main(["replication", "diff", a.url, b.url, *words])


def test_one_cluster_with_tls_and_one_without(certificates: Certificates, capsys: pytest.CaptureFixture[str]) -> None:
    trusted = ("--trust-certs", str(certificates.file))
    with fake_web([], tls=certificates.server()) as secured, fake_web([]) as plain:
        assert diff(secured, plain, *trusted, "--token", "env:FOR_A") == 0, capsys.readouterr()
        assert (tokens(secured), tokens(plain)) == ({"Bearer t0k"}, {None}), "a token does not leave in plain text"
    with fake_web([], tls=certificates.server()) as secured, fake_web([]) as plain:
        assert diff(plain, secured, *trusted, "--token-b", "env:FOR_A") == 0
        assert (tokens(secured), tokens(plain)) == ({"Bearer t0k"}, {None})


def test_the_token_of_a_is_used_for_b_too(certificates: Certificates) -> None:
    with fake_web([]) as a, fake_web([]) as b:
        assert diff(a, b, "--token", "env:FOR_A") == 0
        assert tokens(a) == tokens(b) == {"Bearer t0k"}
    with fake_web([]) as a, fake_web([]) as b:
        assert diff(a, b, "--token", "env:FOR_A", "--token-b", "env:FOR_B") == 0
        assert (tokens(a), tokens(b)) == ({"Bearer t0k"}, {"Bearer other"})


def test_certificates_without_a_tls_cluster_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_web([]) as a, fake_web([]) as b:
        assert diff(a, b, "--trust-certs", str(tmp_path / "ca.pem")) == 2
        assert "--trust-certs requires" in capsys.readouterr().err


def test_a_cluster_may_be_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own login."""
    file = tmp_path / "config.toml"
    monkeypatch.setenv("MAGNETAR_CONFIG", str(file))
    with fake_web([]) as a, fake_web([]) as b:
        (tmp_path / "a.token").write_text("t0k")
        file.write_text(f"[profile.a]\nurl = '{a.url}'\ntoken_file = 'a.token'\n[profile.b]\nurl = '{b.url}'\n")
        assert main(["replication", "diff", "a", "b"]) == 0
        assert (tokens(a), tokens(b)) == ({"Bearer t0k"}, {None})


def test_a_token_of_the_environment_does_not_leave_in_plain_text(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_TOKEN", "t0k")
    monkeypatch.setenv("MAGNETAR_TRUST_CERTS", str(certificates.file))
    with fake_web([], tls=certificates.server()) as secured, fake_web([]) as plain:
        assert diff(secured, plain) == 0
        assert (tokens(secured), tokens(plain)) == ({"Bearer t0k"}, {None})


def test_another_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://c:8080", "replication", "diff", "http://a:8080", "http://b:8080"]) == 2
    assert "magnetar: --url is of no use here: the clusters are the two arguments" in capsys.readouterr().err
