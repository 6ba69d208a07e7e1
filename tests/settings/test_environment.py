"""Settings from environment variables."""

from __future__ import annotations

import pytest

from magnetar.settings.environment import read_environment, without_secrets
from magnetar.settings.refused import asks_for_protection
from magnetar.settings.settings import KINDS


def test_three_forms_of_a_variable_and_their_order() -> None:
    bare = {"clusterName": "a", "HOME": "/", "clustername": "no"}
    assert read_environment(bare).pairs == {"clusterName": "a"}
    pulsar = {**bare, "PULSAR_PREFIX_clusterName": "b"}
    assert read_environment(pulsar).pairs == {"clusterName": "b"}
    ours = {**pulsar, "MAGNETAR_CLUSTER_NAME": "c", "MAGNETAR_brokerServicePort": "1"}
    found = read_environment(ours)
    assert found.pairs == {"clusterName": "c", "brokerServicePort": "1"}
    assert found.variables["clusterName"] == "MAGNETAR_CLUSTER_NAME"
    assert found.unknown == []


def test_variables_that_are_no_settings_are_returned_and_those_of_others_are_not() -> None:
    variables = ["MAGNETAR_CLUSTR_NAME", "PULSAR_PREFIX_zookeeperServers"]
    others = ["MAGNETAR_URL", "MAGNETAR_TOKEN", "MAGNETAR_SERVICE_HOST", "MAGNETAR_PORT_6650_TCP", "PULSAR_MEM"]
    assert sorted(read_environment(dict.fromkeys([*variables, *others], "x")).unknown) == variables


LINKED = {
    "MAGNETAR_PORT": "tcp://10.0.0.1:6650",
    "MAGNETAR_PORT_6650_TCP": "tcp://10.0.0.1:6650",
    "MAGNETAR_PORT_6650_TCP_ADDR": "10.0.0.1",
    "MAGNETAR_SERVICE_HOST": "10.0.0.1",
    "MAGNETAR_SERVICE_PORT": "6650",
    "MAGNETAR_SERVICE_PORT_HTTP": "8080",
}
"""Of a service called magnetar, in Docker and Kubernetes."""


def test_only_the_variables_of_a_linked_service_are_skipped() -> None:
    ours = {"MAGNETAR_SERVICE_AUTHENTICATION_ENABLED": "true", "MAGNETAR_PORT_TLS": "true"}
    found = read_environment({**LINKED, **ours})
    assert sorted(found.unknown) == sorted(ours)
    assert all(asks_for_protection(name, text) for name, (_, text) in found.refused.items())
    assert read_environment({"MAGNETAR_PORT": "6651"}).unknown == ["MAGNETAR_PORT"]


def test_every_setting_has_its_own_variable() -> None:
    assert len({name.lower() for name in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    "variable",
    ["MAGNETAR_TOKEN", "MAGNETAR_REMOTE_TOKEN", "MAGNETAR_AUTH_PARAMS", "MAGNETAR_TOKEN_SECRET_KEY",
     "PULSAR_AUTH_PARAMS", "PULSAR_TOKEN", "PULSAR_CLIENT_AUTH_PARAMS", "PULSAR_PREFIX_authParams",
     "PULSAR_PREFIX_brokerClientAuthenticationParameters", "PULSAR_PREFIX_tlsKeyStorePassword", "PULSAR_PASSWORD",
     "PULSAR_OAUTH2_CLIENT_SECRET", "PULSAR_AUTHENTICATION_PARAMETERS", "TOKEN", "tokenSecretKey"],
)  # fmt: skip
def test_a_child_does_not_get_the_secrets_of_the_broker_and_of_commands(variable: str) -> None:
    assert without_secrets({variable: "s3cret", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_a_child_gets_everything_else() -> None:
    """Also the credentials of other programs: Spark may need them for its master or storage."""
    kept = dict.fromkeys(
        ("MAGNETAR_URL", "MAGNETAR_TRUST_CERTS", "MAGNETAR_TOKEN_FILE", "MAGNETAR_CONFIG", "PULSAR_CLIENT_CONF",
         "PULSAR_MEM", "PULSAR_PREFIX_tlsKeyFilePath", "AWS_SECRET_ACCESS_KEY", "SPARK_AUTH_SECRET", "clusterName"),
        "x",
    )  # fmt: skip
    assert without_secrets(kept) == kept
