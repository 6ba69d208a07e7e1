"""Access as the settings say: protection that is asked for is there, or ends the start."""

from __future__ import annotations

from typing import Any

import pytest

import magnetar.testing
from magnetar.access.access import Access, without_effect
from magnetar.errors import InvalidSetting
from magnetar.settings.settings import Settings
from tests.access.keys import SECRET_SETTING

WITH_TOKENS: dict[str, Any] = {
    "authenticationEnabled": True,
    "authenticationProviders": "token",
    "tokenSecretKey": SECRET_SETTING,
}
ASKED = {
    "authorizationEnabled": WITH_TOKENS,
    "authenticateMetricsEndpoint": WITH_TOKENS,
    "authenticateOriginalAuthData": WITH_TOKENS,
    "tlsRequireTrustedClientCertOnConnect": {"webServicePortTls": 0},
}


@pytest.mark.parametrize("name", ASKED)
def test_protection_that_would_be_missing_ends_the_start(name: str) -> None:
    """All of them started, without a word."""
    with pytest.raises(InvalidSetting, match=f"{name}=true needs ") as refusal:
        Access.from_settings(Settings(**{name: True}))  # type: ignore[arg-type]
    assert all(needed in str(refusal.value) for needed in list(ASKED[name])[:1])
    Access.from_settings(Settings(**{name: True, **ASKED[name]}))


def test_a_broker_for_tests_is_no_exception() -> None:
    with (
        pytest.raises(InvalidSetting, match="authenticateMetricsEndpoint=true needs authenticationEnabled=true"),
        magnetar.testing.broker(authenticateMetricsEndpoint=True),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({"tlsTrustCertsFilePath": "/ca"}, "brokerServicePortTls or webServicePortTls"),
        ({"webServicePortTls": 0}, "tlsTrustCertsFilePath"),
        (
            {"webServicePortTls": 0, "tlsTrustCertsFilePath": "/ca", "tlsAllowInsecureConnection": True},
            "tlsAllowInsecureConnection=false",
        ),
    ],
)
def test_certificates_as_the_only_login_have_to_be_verified(settings: dict[str, Any], needed: str) -> None:
    only: dict[str, Any] = {"authenticationEnabled": True, "authenticationProviders": "tls"}
    with pytest.raises(InvalidSetting, match=f"authenticationProviders=tls needs {needed}: "):
        Access.from_settings(Settings(**only, **settings))
    Access.from_settings(Settings(**only, webServicePortTls=0, tlsTrustCertsFilePath="/ca"))
    Access.from_settings(Settings(**{**WITH_TOKENS, "authenticationProviders": "tls,token"}))


def test_a_required_certificate_needs_any_port_with_tls() -> None:
    Access.from_settings(Settings(tlsRequireTrustedClientCertOnConnect=True, brokerServicePortTls=6651))


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({}, []),
        ({"anonymousUserRole": "guest", "authorizationAllowWildcardsMatching": True}, []),
        (
            {"superUserRoles": "root", "authenticationProviders": "token", "tokenSecretKey": "/key"},
            ["authenticationProviders, tokenSecretKey, superUserRoles: without effect, because authenticationEnabled"],
        ),
        ({"proxyRoles": "proxy"}, ["proxyRoles: without effect, because authenticationEnabled is not true"]),
        ({**WITH_TOKENS, "proxyRoles": "proxy"}, []),
        (
            {**WITH_TOKENS, "superUserRoles": "root"},
            ["superUserRoles: without effect, because authorizationEnabled is not true"],
        ),
        ({**WITH_TOKENS, "superUserRoles": "root", "authorizationEnabled": True}, []),
        (
            {"tlsCertificateFilePath": "no/such", "tlsTrustCertsFilePath": "no/such"},
            ["tlsCertificateFilePath, tlsTrustCertsFilePath: without effect, because no port has TLS"],
        ),
        ({"tlsCertificateFilePath": "no/such", "brokerServicePortTls": 0}, []),
        (
            {"tokenAudience": "here", "tokenAudienceClaim": "aud", "openIDAllowedAudiences": "here"},
            ["tokenAudienceClaim, tokenAudience, openIDAllowedAudiences: without effect, because"],
        ),
        (
            {"tlsCiphers": "A", "tlsProtocols": frozenset({"TLSv1.3"}), "webServiceTlsCiphers": "A"},
            [
                "tlsProtocols, tlsCiphers: without effect, because brokerServicePortTls is empty",
                "webServiceTlsCiphers: without effect, because webServicePortTls is empty",
            ],
        ),
        ({"tlsCiphers": "A", "brokerServicePortTls": 0}, []),
    ],
)
def test_what_may_be_in_any_file_of_pulsar_is_a_warning(settings: dict[str, Any], warnings: list[str]) -> None:
    found = list(without_effect(Settings(**settings)))
    assert len(found) == len(warnings)
    assert all(one.startswith(warning) for one, warning in zip(found, warnings, strict=True))
