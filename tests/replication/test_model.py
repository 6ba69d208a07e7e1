"""What is shown of the credentials of a cluster: paths of files, and never a secret."""

from __future__ import annotations

import pytest

from magnetar.replication.model import ClusterAddress, without_secrets

PACKAGE = "org.apache.pulsar.client.impl.auth."


@pytest.mark.parametrize(
    ("plugin", "parameters", "shown"),
    [
        ("token", "file:///run/token", "file:///run/token"),
        (PACKAGE + "AuthenticationTls", "tlsCertFile:/a,tlsKeyFile:/b", "tlsCertFile:/a,tlsKeyFile:/b"),
        ("oauth2", '{"issuerUrl":"https://i","privateKey":"/k"}', '{"issuerUrl":"https://i","privateKey":"/k"}'),
        ("", "", ""),
        ("token", "token:s3cret", "token:(hidden)"),
        ("token", "tlsCertFile:s3cret", "(hidden)"),
        ("token", "file:s3cret", "(hidden)"),
        ("basic", "joe:s3cret", "(hidden)"),
        ("basic", "file:s3cret", "(hidden)"),
        ("basic", "file:/s3cret", "(hidden)"),
        ("basic", "token:s3cret", "token:(hidden)"),
        (PACKAGE + "AuthenticationBasic", "tlsKeyFile:/s3cret", "(hidden)"),
        ("oauth2", '{"issuerUrl":"https://i","client_id":"c","client_secret":"s3cret"}', "(hidden)"),
    ],
)
def test_paths_are_shown_and_secrets_are_not(plugin: str, parameters: str, shown: str) -> None:
    assert without_secrets(parameters, plugin) == shown
    address = ClusterAddress(authentication_plugin=plugin, authentication_parameters=parameters)
    assert "s3cret" not in repr(address) + repr(address.without_secret)
    assert address.without_secret.authentication_parameters == ("" if "hidden" in shown else shown)
    assert address.without_secret.has_hidden_credentials == ("hidden" in shown)


def test_of_an_unknown_plugin_only_absolute_paths_are_shown() -> None:
    assert without_secrets("file:///run/token") == "file:///run/token"
    assert without_secrets("tlsCertFile:/a,tlsKeyFile:/b") == "tlsCertFile:/a,tlsKeyFile:/b"
    assert without_secrets("file:s3cret") == without_secrets("tlsCertFile:s3cret") == "(hidden)"


@pytest.mark.parametrize(("parameters", "role"), [("joe:s3cret", "joe"), ("file:s3cret", "file"), ("s3cret", "")])
def test_the_user_of_a_hidden_password_is_the_role(parameters: str, role: str) -> None:
    address = ClusterAddress(authentication_plugin="basic", authentication_parameters=parameters)
    assert address.without_secret.role == role
