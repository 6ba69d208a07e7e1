"""Settings from environment variables."""

from __future__ import annotations

from magnetar.settings.environment import read_environment
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


def test_every_setting_has_its_own_variable() -> None:
    assert len({name.lower() for name in KINDS}) == len(KINDS)
