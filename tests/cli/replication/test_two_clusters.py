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


def tokens(web: FakeWeb) -> set[str | None]:
    return {authorization for _, authorization in web.received}


def diff(a: FakeWeb, b: FakeWeb, *words: str) -> int:
    return main(["replication", "diff", a.url, b.url, *words])


def test_one_cluster_with_tls_and_one_without(certificates: Certificates, capsys: pytest.CaptureFixture[str]) -> None:
    trusted = ("--trust-certs", str(certificates.file))
    with fake_web([], tls=certificates.server()) as secured, fake_web([]) as plain:
        assert diff(secured, plain, *trusted, "--token", "t0k") == 0, capsys.readouterr()
        assert (tokens(secured), tokens(plain)) == ({"Bearer t0k"}, {None}), "a token does not leave in plain text"
    with fake_web([], tls=certificates.server()) as secured, fake_web([]) as plain:
        assert diff(plain, secured, *trusted, "--token-b", "t0k") == 0
        assert (tokens(secured), tokens(plain)) == ({"Bearer t0k"}, {None})


def test_the_token_of_a_is_used_for_b_too(certificates: Certificates) -> None:
    with fake_web([]) as a, fake_web([]) as b:
        assert diff(a, b, "--token", "t0k") == 0
        assert tokens(a) == tokens(b) == {"Bearer t0k"}
    with fake_web([]) as a, fake_web([]) as b:
        assert diff(a, b, "--token", "t0k", "--token-b", "other") == 0
        assert (tokens(a), tokens(b)) == ({"Bearer t0k"}, {"Bearer other"})


def test_certificates_without_a_tls_cluster_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_web([]) as a, fake_web([]) as b:
        assert diff(a, b, "--trust-certs", str(tmp_path / "ca.pem")) == 2
        assert "--trust-certs requires" in capsys.readouterr().err
