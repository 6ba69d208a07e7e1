"""The broker over HTTP: version, active brokers, and dynamic settings."""

from __future__ import annotations

import pytest

from magnetar.broker.catalog.policies import BacklogQuota, Overrides, QuotaKind, QuotaPolicy
from magnetar.names import TopicName
from magnetar.settings.dynamic import DYNAMIC
from magnetar.settings.settings import KINDS
from magnetar.version import __version__
from tests.admin.driver import Admin

PATH = "/admin/v2/brokers"
SETTINGS = f"{PATH}/configuration"
ADDRESS = "broker.test:8080"


def changed(admin: Admin, method: str, path: str) -> None:
    """Apache Pulsar returns an empty 200 for these changes."""
    response = admin(method, path)
    assert (response.status_code, response.content) == (200, b""), response.text
    assert admin.broker.commits.idle


def test_version(admin: Admin) -> None:
    response = admin("GET", f"{PATH}/version")
    assert (response.status_code, response.text) == (200, __version__)


def test_active_brokers(admin: Admin) -> None:
    assert admin.get(PATH) == admin.get(f"{PATH}/standalone") == [ADDRESS]
    assert admin.get(f"{PATH}/leaderBroker") == {"serviceUrl": f"http://{ADDRESS}", "brokerId": ADDRESS}
    assert admin.get(f"{PATH}/elsewhere") == [ADDRESS]  # as Apache Pulsar returns without authorization


def test_words_of_pulsar_are_no_clusters(admin: Admin) -> None:
    reason = admin.reason(501, "GET", "/admin/v2/brokers/internal-configuration")
    assert "not supported: the broker has one storage" in reason


def test_it_owns_every_namespace(admin: Admin) -> None:
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    path = f"{PATH}/standalone/{ADDRESS}/ownedNamespaces"
    assert admin.get(path) == {"public/default/0x00000000_0xffffffff": status}
    admin.done("PUT", "/admin/v2/namespaces/public/other")
    assert list(admin.get(path)) == ["public/default/0x00000000_0xffffffff", "public/other/0x00000000_0xffffffff"]
    admin.reason(404, "GET", f"{PATH}/standalone/elsewhere:8080/ownedNamespaces")


def test_settings_are_shown() -> None:
    admin = Admin(maxTopicsPerNamespace=7, brokerDeduplicationEnabled=True)
    assert admin.get(SETTINGS) == sorted(DYNAMIC)
    assert admin.get(f"{SETTINGS}/values") == {}
    runtime = admin.get(f"{SETTINGS}/runtime")
    assert list(runtime) == list(KINDS)
    assert runtime["maxTopicsPerNamespace"] == "7"
    assert runtime["brokerDeduplicationEnabled"] == "true"
    assert runtime["allowAutoTopicCreationType"] == "non-partitioned"
    assert all(isinstance(value, str) for value in runtime.values())


def test_a_dynamic_setting_takes_effect_at_once_and_survives() -> None:
    admin = Admin(maxTopicsPerNamespace=5)
    changed(admin, "POST", f"{SETTINGS}/maxTopicsPerNamespace/1")
    assert admin.get(f"{SETTINGS}/values") == {"maxTopicsPerNamespace": "1"}
    assert admin.get(f"{SETTINGS}/runtime")["maxTopicsPerNamespace"] == "1"
    admin.done("PUT", "/admin/v2/persistent/public/default/a")
    admin.reason(412, "PUT", "/admin/v2/persistent/public/default/b")

    restarted = Admin(admin.storage.crash(), maxTopicsPerNamespace=5)
    assert restarted.get(f"{SETTINGS}/values") == {"maxTopicsPerNamespace": "1"}
    restarted.reason(412, "PUT", "/admin/v2/persistent/public/default/b")

    changed(restarted, "DELETE", f"{SETTINGS}/maxTopicsPerNamespace")
    assert restarted.get(f"{SETTINGS}/runtime")["maxTopicsPerNamespace"] == "5"
    restarted.done("PUT", "/admin/v2/persistent/public/default/b")
    changed(restarted, "DELETE", f"{SETTINGS}/maxTopicsPerNamespace")  # already unset: no effect
    assert Admin(restarted.storage.crash()).get(f"{SETTINGS}/values") == {}


def test_a_value_with_a_slash_or_a_space_is_kept(admin: Admin) -> None:
    changed(admin, "POST", f"{SETTINGS}/subscriptionTypesEnabled/Shared%2C%20Failover")
    assert admin.get(f"{SETTINGS}/runtime")["subscriptionTypesEnabled"] == "Shared,Failover"
    assert "a/b" in admin.reason(412, "POST", f"{SETTINGS}/subscriptionTypesEnabled/a%2Fb")


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("maxTopicsPerNamespace", "many", "a whole number from 0 to 2147483647"),
        ("maxTopicsPerNamespace", "-1", "a whole number from 0 to 2147483647"),
        ("maxTopicsPerNamespace", "99999999999999999999", "a whole number from 0 to 2147483647"),
        ("brokerDeduplicationEnabled", "yes", "true or false"),
        ("allowAutoTopicCreationType", "any", "one of non-partitioned, partitioned"),
        ("allowAutoTopicCreationType", "x" * 10_000, "one of non-partitioned, partitioned"),
    ],
)
def test_an_invalid_value_is_rejected_with_the_allowed_ones(
    admin: Admin, setting: str, value: str, allowed: str
) -> None:
    before = admin.get(f"{SETTINGS}/runtime")
    reason = admin.reason(412, "POST", f"{SETTINGS}/{setting}/{value}")
    assert reason.startswith(f"{setting}=") and reason.endswith(f"is not allowed: {allowed}") and len(reason) < 300
    assert admin.get(f"{SETTINGS}/runtime") == before
    assert admin.get(f"{SETTINGS}/values") == {}


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("maxMessageSize", "maxMessageSize is only read at start"),
        ("maxTopicPerNamespace", "unknown setting 'maxTopicPerNamespace'; did you mean maxTopicsPerNamespace?"),
        ("zzz", "unknown setting 'zzz'"),
    ],
)
def test_a_static_setting_is_rejected(admin: Admin, setting: str, why: str) -> None:
    update = admin.reason(412, "POST", f"{SETTINGS}/{setting}/4096")
    assert update == f"Can't update non-dynamic configuration: {why}"
    delete = admin.reason(412, "DELETE", f"{SETTINGS}/{setting}")
    assert delete == f"Can't delete non-dynamic configuration: {why}"


def test_backlogs_are_measured_on_request(admin: Admin) -> None:
    admin.unsubscribe_idle(admin.subscribe("t", "s"))
    admin.publish("t", b"a" * 100, b"b" * 100)
    quota = BacklogQuota(150, QuotaPolicy.consumer_backlog_eviction)
    topic = TopicName.parse("t")
    admin.broker.catalog.set_overrides(topic, Overrides(backlog_quotas={QuotaKind.destination_storage: quota}))
    backlog = "/admin/v2/persistent/public/default/t/stats"
    assert admin.get(backlog)["subscriptions"]["s"]["msgBacklog"] == 2
    admin.done("GET", f"{PATH}/backlog-quota-check")
    assert admin.get(backlog)["subscriptions"]["s"]["msgBacklog"] == 1


def test_backlogs_are_not_measured_when_disabled() -> None:
    admin = Admin(backlogQuotaCheckEnabled=False)
    assert "backlogQuotaCheckEnabled" in admin.reason(412, "GET", f"{PATH}/backlog-quota-check")
