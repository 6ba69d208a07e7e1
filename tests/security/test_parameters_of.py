"""Settings as the parameters of Pulsar's clients, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.security.credentials import Security
from magnetar.security.oauth2 import OAuth2
from magnetar.security.pulsar_parameters import parameters_of


@pytest.mark.parametrize(
    "security",
    [
        Security(),
        Security(token="a:b"),
        Security(token="{x"),
        Security(username="ann", password="{p:w"),
        Security(trust_certs_file="/ca.pem", allow_insecure=True, verify_hostname=False),
        Security(certificate_file="/own.pem", key_file="/own.key"),
        Security(token_file="/run/a b/token"),
        Security(oauth2=OAuth2(issuer_url="https://issuer", private_key="/key.json", audience="a", scope="s")),
    ],
)
def test_settings_survive_their_parameters(security: Security) -> None:
    assert Security.from_pulsar(parameters_of(security)) == security


def test_a_supplier_is_asked_for_its_token_now(tmp_path: Path) -> None:
    assert parameters_of(Security(token_supplier=lambda: "now"))["authParams"] == "token:now"
