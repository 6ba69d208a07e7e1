"""Protection that is asked for and not there ends the start; Pulsar's own files do not ask for it."""

from __future__ import annotations

import pytest

from magnetar.settings.refused import PROTECTING, asks_for_protection, is_secret, names_files, refusal
from magnetar.settings.settings import KINDS

PULSARS_FILES = {
    "authenticateMetricsEndpoint": "false",
    "authenticationEnabled": "false",
    "authenticationProviders": "",
    "authenticationRefreshCheckSeconds": "60",
    "authenticationRoleLoggingAnonymizer": "NONE",
    "authorizationEnabled": "false",
    "authorizationProvider": "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
    "basicAuthConf": "",
    "bookkeeperTLSClientAuthentication": "false",
    "bookkeeperTLSKeyFileType": "PEM",
    "bookkeeperTLSProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
    "bookkeeperTLSTrustCertTypes": "PEM",
    "bookkeeperTlsCertFilesRefreshDurationSeconds": "300",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerServicePortTls": "",
    "disableHttpDebugMethods": "false",
    "encryptionRequireOnProducer": "false",
    "httpMaxRequestHeaderSize": "8192",
    "httpMaxRequestSize": "-1",
    "httpRequestsLimitEnabled": "false",
    "saslJaasClientAllowedIds": ".*pulsar.*",
    "saslJaasServerSectionName": "PulsarBroker",
    "superUserRoles": "",
    "tlsCertRefreshCheckDurationSec": "300",
    "tlsEnabled": "false",
    "tlsHostnameVerificationEnabled": "true",
    "tlsKeyStoreType": "JKS",
    "tlsTrustStoreType": "JKS",
    "tokenSecretKey": "",
    "webServicePortTls": "",
    "webServiceTlsProvider": "Conscrypt",
    # names without protection, with values that are not false
    "allowAutoTopicCreation": "true",
    "dispatchRateLimiterFactoryClassName": "org.example.DispatchRateLimiterFactoryAsyncTokenBucket",
    "httpRequestsMaxPerSecond": "100.0",
    "replicationMetricsEnabled": "true",
    "s3ManagedLedgerOffloadRegion": "eu-west-1",
    "topicFactoryClassName": "org.example.Topics",
    "strictBookieAffinityEnabled": "true",
    "subscriptionKeySharedEnable": "true",
    "webServiceTrustXForwardedFor": "true",
    "zookeeperServers": "a:1",
}


@pytest.mark.parametrize("name", PULSARS_FILES)
def test_pulsars_own_files_ask_for_nothing(name: str) -> None:
    assert not asks_for_protection(name, PULSARS_FILES[name])


def test_no_setting_is_obeyed_and_refused() -> None:
    assert not set(PROTECTING) & set(KINDS), "a setting that is obeyed now: take its row out of PROTECTING"


@pytest.mark.parametrize("name", PROTECTING)
def test_every_other_value_asks_for_protection(name: str) -> None:
    assert asks_for_protection(name, "another")
    assert not asks_for_protection(name, " ")
    assert not asks_for_protection(name, "FALSE")


@pytest.mark.parametrize(
    "name",
    ["authenticationEnbled", "autenticationEnabled", "AuthorizationEnabled", "tlsRequired", "encryptEverything",
     "adminRoles", "sslPort", "jwtKey"],
)  # fmt: skip
def test_a_name_that_looks_like_protection_asks_for_it(name: str) -> None:
    assert asks_for_protection(name, "true")
    assert not asks_for_protection(name, "false")


def test_the_sentence_names_source_setting_and_value_and_no_secret() -> None:
    secrets = ["tlsKeyStorePassword", "managedLedgerPassword", "bookkeeperClientAuthenticationParameters", "myToken"]
    text = str(refusal([("a.conf", "athenzDomainNames", "shop"), *(("a.conf", name, "s3cret") for name in secrets)]))
    assert "athenzDomainNames=shop (a.conf)" in text
    assert "tlsKeyStorePassword=(hidden) (a.conf)" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("autenticationEnabled", "a.conf; did you mean authenticationEnabled?"),
        ("tlsKeyStorePasword", "a.conf"),
        ("athenzDomainName", "a.conf"),
        ("athenzDomainNames", "a.conf"),
        ("jwt", "a.conf; no setting of Apache Pulsar that is known here"),
    ],
)
def test_only_a_setting_that_is_obeyed_is_suggested(name: str, suggestion: str) -> None:
    assert f" ({suggestion}) asks for protection" in str(refusal([("a.conf", name, "true")]))


@pytest.mark.parametrize("value", ["token:abc", "data:;base64,AAAA", "AAAA", "/AAA"])
def test_a_literal_is_a_secret_and_a_place_is_not(value: str) -> None:
    assert is_secret("brokerClientAuthenticationParameters", value)
    assert not is_secret("brokerClientAuthenticationParameters", "file:///run/token")
    assert not is_secret("brokerClientAuthenticationParameters", __file__)
    assert not is_secret("clusterName", value)


def test_a_key_of_any_length_is_a_secret_and_not_shown() -> None:
    """A key in base64 may begin like a path, and be too long for one."""
    for key in ("/AAAA", "/" + "A" * 5000, "file:AAAA", "tlsCertFile:AAAA"):
        assert is_secret("tokenSecretKey", key)
        assert key not in str(refusal([("a.conf", "tokenSecretKy", key)]))
    assert "tlsKeyStore=" + __file__ in str(refusal([("a.conf", "tlsKeyStore", __file__)]))
    assert "bookkeeperTLSKeyFilePath=/no/such" in str(refusal([("a.conf", "bookkeeperTLSKeyFilePath", "/no/such")]))


PACKAGE = "org.apache.pulsar.client.impl.auth."
OF_TOKEN = ("file:/run/token", "file:///run/token", "file://localhost/run/token")
OF_TLS = (
    "tlsCertFile:/a,tlsKeyFile:/b",
    "tlsKeyFile:~/b, tlsCertFile:./a",
    "tlsKeyFile:../b",
    '{"tlsCertFile": "/a", "tlsKeyFile": "/b"}',
)
OF_OAUTH2 = (
    '{"issuerUrl": "https://i", "privateKey": "file:///k", "audience": "a", "scope": "s"}',
    '{"issuer_url": "https://i", "private_key": "/k", "type": "client_credentials", "client_id": "c"}',
)
PLUGINS = {
    "token": OF_TOKEN,
    PACKAGE + "AuthenticationToken": OF_TOKEN,
    "tls": OF_TLS,
    PACKAGE + "AuthenticationTls": OF_TLS,
    "oauth2": OF_OAUTH2,
    PACKAGE + "oauth2.AuthenticationOAuth2": OF_OAUTH2,
    "basic": (),
    PACKAGE + "AuthenticationBasic": (),
    "com.acme.Own": (),
    "": (*OF_TOKEN, *OF_TLS, *OF_OAUTH2),
}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_parameters_that_name_files_are_those_of_their_plugin(plugin: str) -> None:
    """A password of the user `file` was taken for a path, and shown."""
    named = {text for text in PLUGINS[""] if names_files(plugin, text)}
    assert named == set(PLUGINS[plugin])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3cret",
        "/s3cret",
        "token:s3cret",
        "token:/s3cret",
        "file:s3cret",
        "file:",
        "file://joe:s3cret@h/x",
        "file:///a\ns3cret",
        "tlsCertFile:s3cret",
        "tlsKeyFile:data:s3cret",
        "tlsCertFile:/a,s3cret",
        "tlsCertFile:/a,tlsKeyFile:s3cret",
        "{s3cret",
        '"s3cret"',
        "{}",
        '{"token": "s3cret"}',
        '{"token": "/s3cret"}',
        '{"userId": "joe", "password": "/s3cret"}',
        '{"tlsCertFile": "/a", "tlsKeyFile": "s3cret"}',
        '{"issuerUrl": "https://i", "client_id": "c", "client_secret": "/s3cret"}',
        '{"issuerUrl": "https://i", "privateKey": "data:;base64,s3cret"}',
        '{"issuerUrl": "https://i", "privateKey": {"client_secret": "/s3cret"}}',
        '{"issuerUrl": "https://joe:s3cret@i", "privateKey": "/k"}',
        '{"issuerUrl": "https://i", "scope": "s3cret"}',
    ],
)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_other_parameters_may_have_a_secret(plugin: str, text: str) -> None:
    assert not names_files(plugin, text)


def test_the_plugin_decides_whether_a_setting_is_a_secret() -> None:
    name, path = "brokerClientAuthenticationParameters", "file:///run/token"
    assert not is_secret(name, path, plugin="token")
    assert is_secret(name, path, plugin="basic")
    assert not is_secret("tokenSecretKey", path, plugin="basic"), "the plugin of another setting"
