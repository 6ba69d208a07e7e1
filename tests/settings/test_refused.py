"""Protection that is asked for and not there ends the start; Pulsar's own files do not ask for it."""

from __future__ import annotations

import pytest

from magnetar.settings.refused import PROTECTING, asks_for_protection, is_secret, refusal
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
    assert "athenzDomainNames=shop of a.conf" in text
    assert "tlsKeyStorePassword=(hidden) of a.conf" in text
    assert "s3cret" not in text


@pytest.mark.parametrize("value", ["token:abc", "data:;base64,AAAA", "AAAA", "/AAA"])
def test_a_literal_is_a_secret_and_a_place_is_not(value: str) -> None:
    assert is_secret("brokerClientAuthenticationParameters", value)
    assert not is_secret("brokerClientAuthenticationParameters", "file:///run/token")
    assert not is_secret("brokerClientAuthenticationParameters", __file__)
    assert not is_secret("clusterName", value)
